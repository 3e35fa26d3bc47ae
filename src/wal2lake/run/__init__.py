"""`run` is two children, capture and pipeline, and a parent that starts again whatever dies."""
