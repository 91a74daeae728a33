"""What one name of a JSON object holds, read piece by piece: documents of any size, in a bounded memory.

A JSON parser keeps one of two equal names; this sees both. It judges no grammar: who needs that parses as well.
"""

from __future__ import annotations

import json
import re

LONGEST = 512  # bytes of a word that are kept; a longer one is no name and no value that is looked for

_STRUCTURE = re.compile(rb'["{}\[\]:,]')
_NESTED = re.compile(rb'["{}\[\]]')  # deeper down only what opens and closes matters
_STRING = re.compile(rb'[^"\\]*')


class NameWatch:
    """Looks for one name among an object's own.

    Args:
        name: The name.

    Attributes:
        values: The text that it holds, as often as it stands there; None for a value that is no text.
        whole: Whether the object has ended, and nothing after it opened another.
    """

    def __init__(self, name: str) -> None:
        self.values: list[str | None] = []
        self.whole = False
        self._name = name
        self._depth = 0
        self._key: str | None = None  # the last name at the top
        self._in_value = False
        self._pending = False  # the value of the name that is looked for has not come yet
        self._word: bytearray | None = None  # a string that has begun
        self._escaped = False

    def feed(self, piece: bytes) -> None:
        """The next bytes."""
        at = 0
        while at < len(piece):
            if self._word is not None:
                at = self._string(piece, at)
                continue
            found = (_STRUCTURE if self._depth <= 1 else _NESTED).search(piece, at)
            if found is None:
                return
            at = found.end()
            self._structure(found.group())

    def _string(self, piece: bytes, at: int) -> int:
        assert self._word is not None
        if self._escaped:
            self._keep(piece[at : at + 1])
            self._escaped = False
            return at + 1
        found = _STRING.match(piece, at)
        end = found.end() if found else at
        self._keep(piece[at:end])
        if end == len(piece):
            return end
        if piece[end : end + 1] == b"\\":
            self._keep(b"\\")
            self._escaped = True
        else:
            self._finish(bytes(self._word))
            self._word = None
        return end + 1

    def _keep(self, part: bytes) -> None:
        assert self._word is not None
        if self._depth == 1:
            self._word += part[: LONGEST + 1 - len(self._word)]

    def _finish(self, word: bytes) -> None:
        if self._depth != 1:
            return
        text: str | None = None
        if len(word) <= LONGEST:
            try:
                text = json.loads(b'"' + word + b'"')
            except ValueError:
                text = None
        if not self._in_value:
            self._key = text
        elif self._pending:
            self.values.append(text)
            self._pending = False

    def _structure(self, token: bytes) -> None:
        if token == b'"':
            self._word = bytearray()
        elif token in b"{[":
            self._no_text()
            self.whole = False
            self._depth += 1
            if self._depth == 1:
                self._key, self._in_value = None, token == b"["  # a list has no names
        elif token in b"}]":
            if self._depth == 1:
                self._no_text()
                self.whole = True
            self._depth -= 1
        elif self._depth == 1 and token == b":":
            self._in_value, self._pending = True, self._key == self._name
        elif self._depth == 1 and token == b",":
            self._no_text()
            self._in_value = False

    def _no_text(self) -> None:
        """Something that is no string stood, or begins, where the value is."""
        if self._depth == 1 and self._pending:
            self.values.append(None)
            self._pending = False
