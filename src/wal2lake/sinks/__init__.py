"""Where changes land: targets that commit (pipeline, LSN) in the same transaction as the data."""
