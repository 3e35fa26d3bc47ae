"""Deletion vectors of Delta tables in Python: which rows of a data file are no longer the table's.

Knows the format and the log, and nothing of whose rows they are: positions in, positions out. Files are reached through
a ``pyarrow.fs`` file system rooted at the table's folder. Needs numpy, pyarrow and pyroaring, and nothing of the house
but how a file is put in place (``files.py``).

Source: Delta transaction log protocol, "Deletion Vectors".
"""
