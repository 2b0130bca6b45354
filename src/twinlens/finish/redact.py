"""The step `redact`: hides personal data, in text while it streams and in JSON as a whole.

In text: ID numbers, bank cards, phone numbers, e-mail addresses, number plates and passports by what they look like,
names behind a label. In JSON: the same in every value, and whole fields by their names.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import phonenumbers
from msgspec import Meta

from twinlens.errors import AnswerError, TaskError
from twinlens.finish import options
from twinlens.finish.redact_fields import KINDS, LABELS
from twinlens.finish.redact_numbers import Numbers
from twinlens.finish.redact_text import Reader, Scanner
from twinlens.finish.redact_value import FIELD, ValueReader
from twinlens.finish.redact_words import EMAIL, MRZ, PASSPORT, PLATE, Labelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlens.core import FinishReason
    from twinlens.finish.redact_seam import Finder
    from twinlens.finish.redact_value import Found
    from twinlens.finish.seam import About, Draft, Seen

Action = Literal["mask", "hash", "drop"]
_LETTERS = "abcdefghijklmnop"  # of a hash: letters only, so that none ever looks like a number again


class Options(msgspec.Struct, frozen=True):
    """`kinds`: what is hidden. `action`: how; `actions`: how by kind. `fields`: further names of fields in JSON."""

    kinds: tuple[Literal["id", "passport", "phone", "card", "email", "plate", "name"], ...] = KINDS
    action: Action = "mask"
    actions: dict[str, Action] = {}
    fields: tuple[str, ...] = ()
    regions: tuple[str, ...] = ("CN",)  # whose way of writing phone numbers without “+” is understood
    keep_last: Annotated[int, Meta(ge=0, le=4)] = 0  # characters of a mask that stay


class Redact:
    """Plan of the step."""

    name, private = "redact", True

    def __init__(self, given: Mapping[str, Any], about: About) -> None:
        self.chosen = options.read(Options, given, about.where)
        options.known(self.chosen.actions, (*KINDS, FIELD), f"{about.where}.actions")
        for region in self.chosen.regions:
            if region not in phonenumbers.SUPPORTED_REGIONS:
                raise TaskError(f"{about.where}.regions: “{region}” is no region; they are written like CN, DE or US.")
        self._secret = about.secret.encode()
        if not self._secret and "hash" in (self.chosen.action, *self.chosen.actions.values()):
            raise TaskError(f"{about.where}: to hash needs a key.", cure="Set redact_key to a long secret text.")
        self.per_piece = about.answer.kind == "text"
        self.reader = Reader(self._finders(), lambda kind, text: self.hidden(kind, text) or "")
        self.values = ValueReader(self.reader, self.chosen.kinds, self.chosen.fields, self.hidden)
        self.shown = frozenset(keys_of(about.answer.schema)) | frozenset(self.chosen.fields)

    def _finders(self) -> list[Finder]:
        kinds = self.chosen.kinds
        found: list[Finder] = []
        if not frozenset(kinds).isdisjoint(("id", "card", "phone")):
            found.append(Numbers(kinds, self.chosen.regions))
        found += [finder for finder in (EMAIL, PLATE, PASSPORT, MRZ) if finder.kind in kinds]
        if "name" in kinds:
            found.append(Labelled(LABELS))
        return found

    def hidden(self, kind: str, text: str) -> str | None:
        """What stands there instead; None: nothing."""
        action = self.chosen.actions.get(kind, self.chosen.action)
        if action == "drop":
            return None
        if action == "hash":
            plain = re.sub(r"[\W_]+", "", text).casefold() if kind != "email" else text.casefold()
            digest = hmac.digest(self._secret, f"{kind}\0{plain}".encode(), hashlib.sha256)[:8]
            return f"[{kind}#{''.join(_LETTERS[byte >> 4] + _LETTERS[byte & 15] for byte in digest)}]"
        return _masked(text, self.chosen.keep_last)

    def begin(self, seen: Seen) -> TextRun | ValueRun:
        """See `Plan.begin`."""
        return TextRun(self) if self.per_piece else ValueRun(self)

    def seal(self, text: str) -> str:
        """See `Seals.seal`. JSON is cleaned by field too, as far as it can be read."""
        try:
            value, _ = self.values.read(msgspec.json.decode(text))
            return msgspec.json.encode(value).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            # Escapes would hide digits from the finders.
            return self.reader.read(re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text))[0]


class TextRun:
    """Run over text."""

    def __init__(self, plan: Redact) -> None:
        self._scanner = Scanner(plan.reader)

    def feed(self, text: str) -> str:
        """See `PieceRun.feed`."""
        return self._scanner.feed(text)

    def end(self, reason: FinishReason) -> str:
        """See `PieceRun.end`."""
        return self._scanner.end()

    def changes(self) -> Mapping[str, int]:
        """Kinds of what was hidden."""
        return dict(Counter(self._scanner.kinds))


class ValueRun:
    """Run over JSON."""

    def __init__(self, plan: Redact) -> None:
        self._plan = plan
        self.found: Found | None = None
        self._kinds: list[str] = []

    def finish(self, draft: Draft) -> Draft:
        """See `WholeRun.finish`."""
        try:
            draft = draft.decoded()
        except AnswerError:  # a template before this step may have made text of it
            text, self._kinds = self._plan.reader.read(draft.text)
            return draft.with_text(text)
        value, self.found = self._plan.values.read(draft.value)
        return draft.with_value(value)

    def changes(self) -> Mapping[str, int]:
        """Places and kinds of what was hidden."""
        return self.found.changes(self._plan.shown) if self.found else dict(Counter(self._kinds))


def _masked(text: str, keep: int) -> str:
    """Letters and digits as “*”, separators as they are; the last `keep` stay where there are many more."""
    left = sum(char.isalnum() for char in text)
    keep = keep if left >= 2 * keep + 4 else 0
    out = []
    for char in text:
        if char.isalnum():
            out.append(char if left <= keep else "*")
            left -= 1
        elif char.isascii() or char.isprintable():
            out.append(char)
    return "".join(out)


def keys_of(schema: Any) -> set[str]:
    """Names of properties anywhere in a schema: keys that are the task's own and no content."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            properties = node.get("properties")
            found |= set(properties) if isinstance(properties, dict) else set()
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found
