"""Colours and escapes in a text hide no secret, and a text without one keeps them."""

from __future__ import annotations

import json
import re

import pytest

from cachekit import redact
from cachekit.redact import Stream

KEY, PASSWORD = "hf_" + "aBcDeF" * 6, "S3cretHush99"


@pytest.mark.feature("T7")
def test_colours_and_jsons_escapes_hide_no_secret():
    for text in [
        f"login with \x1b[32m{KEY}\x1b[0m ok",
        f"token: \x1b[38;5;208m{KEY}",
        json.dumps({"msg": f"\x1b[32m{KEY}\x1b[0m"}),
        json.dumps(json.dumps({"msg": f"\x1b[32m{KEY}"})),
        f"printf '\\033[1m\\x1b[32m{KEY}\\e[0m'",
        f"\x1b(B\x1b[m{KEY}",
        f"\x1b[01;31m\x1b[Khf_\x1b[m\x1b[K{KEY[3:]}",  # as `grep --color` prints what it found
        f'{{"m":"\\u003d{KEY}"}}',
        json.dumps({"m": f"\u2192{KEY}"}),
        f"\x1b[32mHF_TOKEN\x1b[0m=\x1b[1m{PASSWORD}",
        f"\x1b[36mpassword\x1b[39m=\x1b[35m{PASSWORD}",
        f"{{\\u0022token\\u0022:\\u0022{PASSWORD}\\u0022}}",
        f"https:\\/\\/ann:{PASSWORD}@host\\/x",
        f"https://host/x?a=1\\u0026sig={PASSWORD}",
    ]:
        shown = redact.printed(text)
        assert redact.HIDDEN in shown
        assert not re.search(f"{KEY[3:]}|{PASSWORD}", shown)
        assert [*redact.places({"hard": {"command.arguments": [text]}})] == ["hard.command.arguments.0"]
        if text[:2] in {'{"', '"{'}:
            json.loads(shown)


def test_lines_without_a_secret_keep_their_colours():
    red, said = "\x1b[31m\u00e9poque\x1b[0m \\/\n", f"\x1b[32m{KEY}\x1b[0m\n"
    stream = Stream()
    assert stream.feed(f"{red}{said}{red}".encode()).decode() == f"{red}***\n{red}"
    colours = "\x1b[1mloss\x1b[0m=0.25"
    assert redact.printed(colours) == colours


def test_escapes_without_an_end_cost_no_more_than_their_length():
    for piece in [
        "\x1b[",
        "\x1b[0",
        "\\",
        "\\u001b[",
        "\\u005c",
        "\x1b[0mtoken:",
        "\x1b[;",
        "-tvly-",
        "-sb_secret_",
        " password ",
    ]:
        line = "machine" + piece * (100_000 // len(piece))
        assert redact.printed(line) == line
