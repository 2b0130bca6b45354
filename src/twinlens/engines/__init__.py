"""Processes that hold a model and generate text, and the client that asks them.

The seam is OpenAI's HTTP (`wire`) on a Unix socket or loopback, plus `twinlens:` references and `GET /health`.
`fake` and `openvino` are the engines that ship; `registry.ENGINES` says how each is started;
tests/contracts/test_engine.py is the one suite that every engine has to pass.
"""
