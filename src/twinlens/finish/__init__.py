"""What happens to an answer between the engine and the client: a transform a file."""
