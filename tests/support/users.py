"""Other users of the host: something done by one of them, in a process of its own; only root can."""

from __future__ import annotations

import os
import traceback

import pytest

ONE, ANOTHER = 65534, 65533  # users that own nothing of ours


def as_user(user, act, groups=()):
    """Do something as a user whose group has the same number, and in these groups; what it returns, a string."""
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            os.write(writing, str(act()).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - the parent shows it
            os.write(writing, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        said = source.read().decode()
    assert os.waitpid(child, 0)[1] == 0, said
    return said
