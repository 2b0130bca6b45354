"""Proofs that take minutes: run by hand or by scripts, in short form by the tests."""
