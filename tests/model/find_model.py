"""`twinlens.model.hub.find` in a process of its own: the hubs' clients read their variables when they are imported.

python -m tests.model.find_model MODEL HUB REVISION     prints the folder, or the error's message and cure, as JSON
"""

from __future__ import annotations

import json
import sys

from twinlens.errors import ModelError
from twinlens.model import hub
from twinlens.settings import Settings

if __name__ == "__main__":
    model, name, revision = sys.argv[1:4]
    try:
        found = {"folder": str(hub.find(model, Settings(hub=name, revision=revision)))}
    except ModelError as error:
        found = {"message": error.message, "cure": error.cure}
    print(json.dumps(found))
