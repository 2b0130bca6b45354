"""Tasks: a prompt, a schema and finishing steps under a name, from files."""
