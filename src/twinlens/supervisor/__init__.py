"""The parent of `twinlens serve`: binds the port, starts engine and gateway workers, watches, replaces, drains."""
