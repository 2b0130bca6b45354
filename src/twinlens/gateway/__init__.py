"""HTTP in and out: OpenAI's chat completions, the seed-style inference call, and the operator's routes."""
