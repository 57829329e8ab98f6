"""How agents of one job talk: codec, authentication, transport, discovery, and the parties that drive it."""
