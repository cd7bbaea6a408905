"""One measurement a file."""
