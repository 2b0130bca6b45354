"""The command line: one module a command. Each parses, builds a value, calls one function and prints."""
