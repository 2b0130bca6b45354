"""Benchmarks: what `scripts/bench` runs. Not part of the package."""
