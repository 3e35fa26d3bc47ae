"""A small shop that lives: its schema, its workload, and the whole pipeline around it by one command."""
