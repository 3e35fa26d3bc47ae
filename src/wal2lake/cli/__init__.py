"""The commands: each resolves its configuration, calls one function below, and prints the result."""
