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
from cachekit.store.partial import receiving
from tests.support.doctor_cases import another_user

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
    layout.partial.chmod(0o777)
    with another_user(), receiving(layout, DIGEST) as part:
        assert part.path.name != DIGEST
        part.write(DATA)
        assert part.finish() == (DIGEST, PIECES)
    assert (layout.partial / DIGEST).read_bytes() == b"few"
