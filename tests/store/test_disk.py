"""A disk that fails, is full or is read-only: no partial entry, and hits are served on."""

import os
import subprocess

import pytest

from cachekit.errors import StoreError
from tests.support.standins import (
    Watched,
    expected,
    find,
    garbage_of,
    make_record,
    overwrite,
    publish,
    served,
)


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 128 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting needs root: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_real_full_disk(small_disk):
    """With ever more space left, until it is enough."""
    home, filler = small_disk / "home", small_disk / "filler"
    kept, made = make_record(1, ("a",)), make_record(2, ("b", "c", "d"))
    publish(Watched(home).store, kept)
    hints = []
    for pages in range(40):
        status = os.statvfs(small_disk)
        filler.write_bytes(bytes(max(0, status.f_bfree - pages) * status.f_frsize))
        watched = Watched(home)
        try:
            publish(watched.store, made)
        except StoreError as error:
            hints.append(error.hint)
        found = find(watched.store, made[0])
        filler.unlink()
        assert served(watched.store, find(watched.store, kept[0])) == expected(kept)
        assert watched.damage() == []
        assert garbage_of(home) == set()
        if found:
            break
        assert len(hints) == pages + 1, "what is not there was said not to be"
    assert served(Watched(home).store, found) == expected(made)
    assert "free some space, or set CACHEKIT_HOME to another disk" in hints


def test_a_real_read_only_store_serves_its_hits(small_disk):
    home = small_disk / "home"
    made, damaged = make_record(1, ("a", "b")), make_record(2, ("c",))
    for pair in (made, damaged):
        publish(Watched(home).store, pair)
    overwrite(Watched(home).store.layout.blob(damaged[0].files[0].sha256), b"damage")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    watched = Watched(home)
    assert served(watched.store, find(watched.store, made[0])) == expected(made)
    assert find(watched.store, damaged[0]) is None
    assert watched.told("store.damaged")[0]["kept"] is True, "it could not be set aside, and is a miss all the same"
    for write in (watched.store.check_writable, lambda: publish(watched.store, make_record(3))):
        with pytest.raises(StoreError) as caught:
            write()
        assert "read-only" in caught.value.hint
    assert {record.key for record in watched.store.records()} == {made[0].key, damaged[0].key}
