"""The command line, ``scoutd``."""
