"""Other users of the host: something done by one of them, in a process of its own; only root can."""

from __future__ import annotations

import os
import pwd
import struct
import traceback
from inspect import unwrap

import pytest

from cachekit import whose

ONE, ANOTHER = 65534, 65533  # users that own nothing of ours


def known(monkeypatch, members):
    """Stand in for this machine's user database: it knows these users by number, and the groups that each is in."""
    account, groups = pwd.getpwuid, os.getgrouplist
    names = {f"user{user}": user for user in members}

    def of_number(user):
        return pwd.struct_passwd((f"user{user}", "x", user, user, "", "/", "")) if user in members else account(user)

    def of_name(name, group):
        return [group, *members[names[name]]] if name in names else groups(name, group)

    monkeypatch.setattr(pwd, "getpwuid", of_number)
    monkeypatch.setattr(os, "getgrouplist", of_name)
    monkeypatch.setattr(whose, "_member", unwrap(whose._member))


def allow(folder, *groups):
    """Let groups write to a folder by an access list."""
    entries = [(1, 7, -1), (4, 5, -1), *((8, 7, group) for group in sorted(groups)), (16, 7, -1), (32, 5, -1)]
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_access", raw)
    except OSError as error:
        pytest.skip(f"this file system keeps no access lists: {error.strerror}")


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
