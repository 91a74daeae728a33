"""Reading values: in threads, and what is no UTF-8."""

from __future__ import annotations

import json
import sys
import threading

import msgspec
import pytest

from cachekit.decode import from_builtins, from_json
from tests.support.processes import side_by_side


def _read_a_new_type(read) -> None:
    """Have three threads be the first to read a type with others in it."""
    kind, value = int, 1
    for number in range(5):
        kind = msgspec.defstruct(f"Level{number}", [("one", kind), ("several", list[kind])])
        value = {"one": value, "several": [value]}
    together = threading.Barrier(3)
    readers = [threading.Thread(target=lambda: (together.wait(), read(value, kind))) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


@pytest.mark.parametrize("read", [from_builtins, lambda value, kind: from_json(json.dumps(value), kind)])
def test_threads_that_read_a_type_first_do_not_end_the_process(read):
    """As msgspec 0.22 does by itself, at about one such type in ten."""

    def work(_):
        sys.setswitchinterval(1e-6)
        for _ in range(60):
            _read_a_new_type(read)
        return "alive"

    assert side_by_side(1, work) == ["alive"]


@pytest.mark.parametrize("raw", [b'"\xff"', b"\xff", b'{"a": "\xc3"}', '"\ud800"'])
def test_a_text_that_is_no_utf_8_is_no_json(raw):
    with pytest.raises(msgspec.DecodeError):
        from_json(raw, object)
