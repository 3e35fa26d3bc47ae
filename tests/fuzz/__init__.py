"""Mutants against every decoder: a message or file as it was written, or one error that says where; else a bug."""
