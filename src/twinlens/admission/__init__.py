"""Who may come, when, and for how long."""
