"""Content-addressed memory shared by the processes of one host: a folder on tmpfs, one file an object.

Standard library and numpy only, because engines import it inside environments of their own.
"""

from twinlens.store.keys import features_key, pixels_key
from twinlens.store.lease import Lease
from twinlens.store.store import Store, StoreStats, resolve

__all__ = ["Lease", "Store", "StoreStats", "features_key", "pixels_key", "resolve"]
