"""The live server, through libpq: what is asked of it, and what it answers, typed.

Rule: a failure leaves this layer as a Wal2LakeError or not at all.
"""
