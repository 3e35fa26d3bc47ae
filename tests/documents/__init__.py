"""The documents: what they show is run, what there is to document is documented, where they point is there."""
