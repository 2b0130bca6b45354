"""Twinlens serves a vision-language model that its users own: pictures and a prompt in, text or JSON out."""

__version__ = "0.1.0"
