"""A blob on its way in: what is in the file is always a beginning of what was taken, and its digests are right."""

import errno
import hashlib
import os
import random
from contextlib import nullcontext

import pytest
import xxhash

from cachekit.store import Store
from cachekit.store.blobs import PIECE
from cachekit.store.partial import receiving, sweep
from tests.support.doctor_cases import another_user
from tests.support.users import ONE

pytest_plugins = ["tests.support.doctor_cases"]

SIZE = 3 * PIECE + 12_345  # above what is written without threads
DATA = random.Random(1).randbytes(SIZE)
DIGEST = hashlib.sha256(DATA).hexdigest()
PIECES = tuple(xxhash.xxh3_128(DATA[at : at + PIECE]).hexdigest() for at in range(0, SIZE, PIECE))


@pytest.fixture
def layout(tmp_path):
    return Store(tmp_path, None).layout


def odd_pieces(data, seed=0):
    dice, at = random.Random(seed), 0
    while at < len(data):
        size = dice.choice([1, 1000, 65_536, 3_000_000])
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("size", [0, 1, 4096, PIECE, PIECE + 1, SIZE])
def test_what_came_is_in_the_file_with_its_digests(layout, size):
    wanted = DATA[:size]
    with receiving(layout, DIGEST) as part:
        for piece in odd_pieces(wanted):
            part.write(piece)
        assert part.size == size
        sha256, pieces = part.finish()
        assert part.path.read_bytes() == wanted
    assert sha256 == hashlib.sha256(wanted).hexdigest()
    assert pieces == (PIECES if size == SIZE else pieces)
    assert len(pieces) == max(1, -(-size // PIECE))


def test_an_interrupted_one_is_gone_on_with(layout):
    half = SIZE // 2
    with pytest.raises(KeyboardInterrupt), receiving(layout, DIGEST) as part:  # noqa: PT012
        for piece in odd_pieces(DATA[:half]):
            part.write(piece)
        raise KeyboardInterrupt
    with receiving(layout, DIGEST) as part:
        assert part.size == half
        for piece in odd_pieces(DATA[half:], seed=2):
            part.write(piece)
        assert part.finish() == (DIGEST, PIECES)


def test_one_that_began_wrong_begins_anew(layout):
    with receiving(layout, DIGEST) as part:
        part.write(b"x" * SIZE)
        part.restart()
        assert part.size == 0
        for piece in odd_pieces(DATA):
            part.write(piece)
        assert part.finish() == (DIGEST, PIECES)
        assert part.path.read_bytes() == DATA


def test_a_full_disk_is_told_and_leaves_no_hole(layout, monkeypatch):
    real, room = os.pwrite, 2 * PIECE + 1000

    def limited(handle, data, offset):
        left = room - offset
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[:left], offset)

    monkeypatch.setattr(os, "pwrite", limited)
    with pytest.raises(OSError, match="No space left"), receiving(layout, DIGEST) as part:  # noqa: PT012
        for piece in odd_pieces(DATA):
            part.write(piece)
        part.finish()
    monkeypatch.undo()
    with receiving(layout, DIGEST) as part:
        assert part.path.read_bytes() == DATA[:room]
        part.write(DATA[part.size :])
        assert part.finish() == (DIGEST, PIECES)


def test_one_that_was_read_only_when_its_owner_died_is_gone_on_with(public):
    public.chmod(0o777)
    layout = Store(public, None).layout
    with nullcontext() if os.geteuid() else another_user():  # root may write whatever the mode says
        with receiving(layout, DIGEST) as part:
            part.write(DATA)
            part.finish()
        part.path.chmod(0o444)  # about to be published
        with receiving(layout, DIGEST) as part:
            assert part.path.name == DIGEST
            assert part.size == SIZE
            assert part.finish() == (DIGEST, PIECES)


def test_another_users_is_left_alone(public):
    layout = Store(public, None).layout
    with receiving(layout, DIGEST) as part:
        part.write(b"few")
    layout.partial.parent.chmod(0o777)
    with another_user(), receiving(Store(public, None).layout, DIGEST) as part:
        assert part.path.parent != layout.partial
        part.write(DATA)
        assert part.finish() == (DIGEST, PIECES)
    assert (layout.partial / DIGEST).read_bytes() == b"few"


UNKNOWN = f"unknown-{DIGEST}"


@pytest.mark.feature("T2")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [DIGEST, UNKNOWN])
@pytest.mark.parametrize(("owner", "mode"), [(ONE, 0o666), (ONE, 0o600), (0, 0o666)])
def test_what_others_wrote_or_can_write_to_is_not_gone_on_with(layout, name, owner, mode):
    layout.partial.mkdir(parents=True)
    theirs = layout.partial / name
    theirs.write_bytes(b"evil")
    theirs.chmod(mode)
    os.chown(theirs, owner, owner)
    with receiving(layout, name) as part:
        assert (part.size, part.path.name == name) == (0, False)
        part.write(DATA)
        assert part.finish() == (DIGEST, PIECES)
    assert theirs.read_bytes() == b"evil"


@pytest.mark.feature("T2")
@pytest.mark.parametrize(("mode", "goes_on"), [(0o777, False), (0o755, True)])
def test_where_others_move_files_about_only_a_digest_says_which_file_began_a_blob(layout, mode, goes_on):
    for name, kept in ((DIGEST, True), (UNKNOWN, goes_on)):
        layout.partial.mkdir(parents=True, exist_ok=True)
        layout.partial.chmod(mode)
        (layout.partial / name).write_bytes(DATA[:100])
        (layout.partial / name).chmod(0o600)
        with receiving(layout, name) as part:
            assert part.size == (100 if kept else 0)


@pytest.mark.parametrize("name", [DIGEST, UNKNOWN, f"{UNKNOWN}.0123abcd"])
def test_what_nobody_went_on_with_for_a_week_is_removed(layout, name):
    layout.partial.mkdir(parents=True)
    for one in (name, "thesis.tex"):
        (layout.partial / one).write_bytes(DATA[:100])
        os.utime(layout.partial / one, (1e9, 1e9))
    sweep(layout)
    assert [one.name for one in layout.partial.iterdir()] == ["thesis.tex"]
