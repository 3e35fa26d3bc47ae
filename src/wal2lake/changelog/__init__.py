"""The change log: raw pgoutput messages in immutable segments, with an index of committed transactions.

Capture appends through ``writer.LogWriter``; everybody else reads ranges (start, end] of commit end LSNs through
``log.ChangeLog``. Nothing is imported here: its documents are read where neither NumPy nor Arrow is installed.
"""
