"""Mutated vectors against every decoder: a message, or ProtocolError with its offset; anything else is a bug."""
