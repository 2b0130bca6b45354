"""From a reference in a request to pixels in the store: data URI, header, decoding, limits."""

from twinlens.media.loader import Loader

__all__ = ["Loader"]
