"""The same task over thousands of files: reads them, asks a service over HTTP, keeps the answers, writes a table."""
