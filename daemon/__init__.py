"""How the core lives: an asyncio process with sockets, clocks, files, a command line and metrics."""
