"""Hostile and damaged archives: nothing is unpacked that could do harm."""

import gzip
import io
import random
import tarfile
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.store.archive import MAX_MEMBERS, UnsafeArchiveError, unpack
from tests.store.archive_trees import grow, member, packed, put, tar, tree_of, yard  # noqa: F401 - fixtures


def untouched(yard):
    """Nothing but the archive, the victim and the folder lies here."""
    assert (yard / "victim").read_bytes() == b"untouched"
    assert {path.name for path in yard.iterdir()} <= {"in", "victim", "a.tar"}
    assert not any(path.is_symlink() for path in (yard / "in").rglob("*"))


def refused(yard, raw):
    with pytest.raises(UnsafeArchiveError) as caught:
        unpack(put(yard, raw), yard / "in")
    assert isinstance(caught.value, ValueError)
    assert str(caught.value)
    untouched(yard)


OUTSIDE = ["..", ".", "./", "../victim", "../escaped", "../escaped/deeper", "./../escaped"]
OUTSIDE += ["a/..", "a/../b", "a/../../escaped"]
OUTSIDE += ["{yard}/escaped", "/{yard}/escaped", "{yard}/in/inside", "..\\escaped", "a\\b", "C:\\escaped"]


def test_a_member_that_would_lie_outside_is_refused(yard):
    for kind in [tarfile.REGTYPE, tarfile.DIRTYPE]:
        for name in (outside.format(yard=yard) for outside in OUTSIDE):
            for layout in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
                refused(yard, tar(member("fine"), member(name, type=kind), layout=layout))
            refused(yard, tar(member("innocent", type=kind, pax_headers={"path": name})))


KINDS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE)


def test_a_member_that_is_no_file_is_refused(yard):
    for target in ["../victim", "/etc/passwd", "fine", ""]:
        for kind in [*KINDS, b"Z", b"V", b"M", b"A"]:
            refused(yard, tar(member("fine"), member("link", b"", type=kind, linkname=target)))
            assert tree_of(yard / "in") == {}, "all members are looked at before the first is made"


@pytest.mark.parametrize(
    "members",
    [
        [member("a", b"1"), member("a", b"2")],
        [member("a/b", b"1"), member("a//b", b"2")],
        [member("a", b"1"), member("./a", b"2")],
        [member("a", b"1"), member("b", b"2"), member("a", b"1")],
        [member("a", b"1"), member("a/b", b"2")],
        [member("a/b", b"1"), member("a", b"2")],
        [member("a", b"1"), member("a", b"", type=tarfile.DIRTYPE)],
        [member("a", b"", type=tarfile.DIRTYPE), member("a", b"1")],
        [member("a", b"1"), member("a/b/c", b"2")],
        [member("a", b"1"), member("a/b", b"", type=tarfile.DIRTYPE)],
    ],
)
def test_a_name_that_stands_twice_or_is_file_and_folder_is_refused(yard, members):
    refused(yard, tar(*[(info, io.BytesIO(data.getvalue())) for info, data in members]))


def test_nothing_that_is_there_is_overwritten(yard):
    (yard / "in" / "a").write_bytes(b"mine")
    refused(yard, tar(member("a", b"theirs")))
    assert (yard / "in" / "a").read_bytes() == b"mine"


def test_no_link_that_is_there_is_followed(yard):
    (yard / "in" / "a").symlink_to(yard / "victim")
    with pytest.raises(UnsafeArchiveError):
        unpack(put(yard, tar(member("a", b"theirs"))), yard / "in")
    assert (yard / "victim").read_bytes() == b"untouched"


@pytest.mark.parametrize("size", ["-1", "-512", "-513", "-1024", "9999999", str(2**62), str(2**70)])
def test_a_size_that_is_a_lie_is_refused(yard, size):
    refused(yard, tar(member("a", b"x" * 600, pax_headers={"size": size})))


def with_size(raw, size):
    """An archive whose first header says another size, in GNU's binary form, with its checksum made good."""
    header = bytearray(raw[:512])
    header[124:136] = bytes([0xFF if size < 0 else 0x80]) + (size % 2**88).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + raw[512:]


@pytest.mark.parametrize("size", [-1, -512, -513, -600, -1024, -100_000, 100_000, 2**60, 2**63, 2**80])
def test_a_size_in_binary_that_is_a_lie_is_refused(yard, size):
    raw = tar(member("a", b"x" * 600), layout=tarfile.GNU_FORMAT)
    assert unpack(put(yard, with_size(raw, 600)), yard / "in") == 600
    (yard / "in" / "a").unlink()
    refused(yard, with_size(raw, size))


def test_a_sparse_file_is_refused(yard):
    for data in [b"x" * 600, b"1\n0\n1000000\n" + b"\0" * 500 + b"x" * 88]:
        for headers in [
            {"GNU.sparse.size": "1000000", "GNU.sparse.name": "z"},
            {"GNU.sparse.map": "0,10", "GNU.sparse.size": "1000000", "GNU.sparse.name": "z"},
            {"GNU.sparse.map": "0,10", "GNU.sparse.size": "1000000", "GNU.sparse.name": "../victim"},
            {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": "z",
                "GNU.sparse.realsize": "1000000",
            },
            {"GNU.sparse.map": "0", "GNU.sparse.size": "1"},
            {"GNU.sparse.map": "a,b", "GNU.sparse.size": "1"},
            {"GNU.sparse.size": "a"},
            {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "x"},
        ]:
            refused(yard, tar(member("a", data, pax_headers=headers)))


def test_a_name_that_no_file_system_takes_is_refused(yard):
    for name in ("a" * 300, "a/" * 3000 + "b", "a\0b"):
        refused(yard, tar(member("innocent", pax_headers={"path": name})))


def test_more_members_than_any_cache_has_are_refused(yard, monkeypatch):
    assert MAX_MEMBERS > 10_000
    monkeypatch.setattr("cachekit.store.archive.MAX_MEMBERS", 3)
    three = [member(name) for name in "abc"]
    refused(yard, tar(*three, member("d")))
    assert "d" not in tree_of(yard / "in")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x",
        b"no tar at all, but long enough to hold the header of one. " * 40,
        b"\xff" * 10_240,
        random.Random(0).randbytes(10_240),
        gzip.compress(tar(member("a")), mtime=0),
        b"PK\x03\x04" + b"\0" * 2000,
    ],
)
def test_what_is_no_tar_is_refused(yard, raw):
    refused(yard, raw)
    assert tree_of(yard / "in") == {}


def attempt(yard, raw, name):
    """Unpack into a new folder; what came out, or None where it was refused."""
    target = yard / "in" / name
    target.mkdir()
    try:
        unpack(put(yard, raw), target)
    except UnsafeArchiveError:
        return None
    return tree_of(target)


THREE = {"a": b"1" * 700, "b/c": b"2" * 10, "d": b"", "e": b"3" * 512}


def test_a_truncated_archive_is_refused_or_whole(yard):
    """It may lose the padding at its end, and not one byte more."""
    raw = packed(grow(yard / "in" / "s", THREE), THREE)
    ends = [*range(0, len(raw), 128), *range(1, len(raw), 512), *range(511, len(raw), 512)]
    for end in sorted(set(ends)):
        found = attempt(yard, raw[:end], f"t{end}")
        assert found in (None, THREE), f"cut at {end}: {sorted(found)} came out, and nobody was told"
    assert attempt(yard, raw, "whole") == THREE


def test_a_header_with_a_changed_bit_is_refused_or_harmless(yard):
    """A header has a checksum of its own; contents are the business of the record's digest."""
    raw = packed(grow(yard / "in" / "s", THREE), THREE)
    second = 512 + 1024  # the header of b/c
    for place in range(second, second + 512, 3):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        assert attempt(yard, changed, f"t{place}") in (None, THREE), place


@settings(max_examples=100)
@given(st.data())
def test_no_archive_reaches_outside_or_fails_in_another_way(tmp_path_factory, data):
    """Members of any kind under any name, and bytes changed anywhere with the header's checksum made good."""
    root = tmp_path_factory.mktemp("hostile")
    hostile = ["../victim", "../new", "a/../../new", f"{root}/new", "..", ".", "a\\b"]
    names = st.sampled_from(["a", "b", "a/b", *hostile])
    kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, *b"012345678SLKDxgX".replace(b"0", b"").decode()])
    members = [
        member(
            data.draw(names),
            data.draw(st.binary(max_size=20)),
            type=kind if isinstance(kind, bytes) else kind.encode(),
            linkname=data.draw(names),
        )
        for kind in data.draw(st.lists(kinds, min_size=1, max_size=4))
    ]
    raw = bytearray(tar(*members, layout=data.draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))))
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, 511), st.integers(0, 255)), max_size=3)):
        raw[place] = byte
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    (root / "in").mkdir()
    (root / "victim").write_bytes(b"untouched")
    (root / "a.tar").write_bytes(raw)
    with suppress(UnsafeArchiveError):
        unpack(root / "a.tar", root / "in")
    assert (root / "victim").read_bytes() == b"untouched"
    assert {path.name for path in root.iterdir()} == {"in", "victim", "a.tar"}
    for path in (root / "in").rglob("*"):
        assert path.is_dir() or path.is_file()
        assert not path.is_symlink()
        assert path.is_dir() or path.stat().st_nlink == 1


@pytest.mark.parametrize("blocks", range(22))
def test_an_archive_of_any_length_is_unpacked(yard, blocks):
    """tarfile fills its archives up to a record of twenty blocks: every remainder must do."""
    files = {"a": b"x" * 512 * blocks, "b": b"y"}
    raw = packed(grow(yard / "in" / "s", files), files)
    assert attempt(yard, raw, "out") == files
