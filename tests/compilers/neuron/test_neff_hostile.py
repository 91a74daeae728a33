"""Hostile NEFFs cost nothing, reach no terminal, and are refused in words."""

import gzip
import json
import struct
import tarfile
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.neuron.neff import NeffError, read
from cachekit.compilers.neuron.neff.members import NeffLimits
from tests.compilers.neuron.neuron_files import (  # noqa: F401 - fixtures
    F32,
    INFO,
    KELF,
    RELAXED,
    entry,
    make_neff,
    pack_neff,
    reason_of,
    tar_of,
    tensors,
    with_tar,
    write,
)


def survived(path: Path) -> bool:
    """Whether a file is described in JSON, or refused in words; anything else raises."""
    try:
        described = msgspec.to_builtins(read(path))
    except NeffError as error:
        return error.reason.isprintable()
    return bool(json.loads(json.dumps(described)))


# Hostile files: the digest is right, so whoever made them meant it


BIG = NeffLimits(inflated=1 << 20, inflated_base=1 << 20)
BROKEN = {
    "an empty tar": (with_tar(), "empty"),
    "one without anything of a NEFF": (with_tar(entry("README", b"hello")), "nothing of a NEFF"),
    "a bomb": (with_tar(entry("a.bin", bytes(4 << 20)), INFO), "unpacks to more than"),
    "a bomb that is no tar": (pack_neff(gzip.compress(b"\1" * (4 << 20))), "its tar is broken after 0 members"),
    "a bomb in a document": (with_tar(entry("info.json", b" " * (2 << 20))), "unpacks to more than"),
    "a member longer than the tar": (with_tar(INFO, KELF, entry("PE.bin", size=1 << 40)), "ends within a member"),
    "a negative size": (with_tar(INFO, entry("PE.bin", size=-512)), "has a size of -512"),
    "a link with a body": (with_tar(INFO, entry("a", b"x", type=tarfile.SYMTYPE)), "has a size of 1"),
    "a broken header": (with_tar(INFO, b"\1" * 512), "broken after 1 members"),
    "sparse": (with_tar(INFO, entry("kelf-0.json", b"{}", type=tarfile.GNUTYPE_SPARSE)), "sparse"),
    "sparse in pax": (
        with_tar(INFO, entry("x", b"22 GNU.sparse.major=1\n", type=tarfile.XHDTYPE), KELF),
        "sparse",
    ),
    "a pax bomb": (with_tar(INFO, entry("x", bytes(1 << 17), type=tarfile.XHDTYPE)), "extended header of 131072 bytes"),
    "a long name bomb": (with_tar(entry("x", size=1 << 40, type=tarfile.GNUTYPE_LONGNAME)), "extended header of"),
    "a global pax bomb": (with_tar(entry("x", size=1 << 40, type=tarfile.XGLTYPE)), "extended header of"),
    "pax with a size of words": (with_tar(entry("x", b"11 size=-1\n", type=tarfile.XHDTYPE), INFO), "a size of -1"),
    "pax with a huge size": (
        with_tar(entry("x", b"30 size=" + b"9" * 21 + b"\n", type=tarfile.XHDTYPE), INFO),
        "ends within a member",
    ),
    "two targets": (
        with_tar(INFO, KELF, entry("kelf-1.json", b'{"target": "cayman"}')),
        "two targets: sunda and cayman",
    ),
    "two of one name": (with_tar(INFO, INFO, entry("info.json", b"{}"), KELF), "two different info.json"),
    "gzip that ends early": (pack_neff(gzip.compress(INFO + KELF + bytes(9000))[:-30]), "gzip stream ends early"),
    "gzip that is broken": (pack_neff(b"\x1f\x8b\x08\x00" + b"\xff" * 60), "gzip stream is broken"),
    "a checksum that is wrong": (
        pack_neff(gzip.compress(INFO + KELF)[:-8] + bytes(8)),
        "gzip stream is broken",
    ),
}


@pytest.mark.feature("S7")
def test_hostile_files_are_refused_in_words(write):
    for content, words in BROKEN.values():
        path = write(content)
        with pytest.raises(NeffError) as refused:
            read(path, limits=BIG)
        assert words in refused.value.reason
        assert refused.value.reason.isprintable()
        assert not refused.value.damaged  # its bytes are what its maker wrote


@pytest.mark.feature("S7")
@pytest.mark.parametrize("time", [b"inf", b"nan", b"9" * 40])
def test_a_time_that_never_comes_is_none(write, time):
    pax = entry("x", b"%d mtime=%s\n" % (len(time) + 10, time), type=tarfile.XHDTYPE)
    neff = read(write(with_tar(pax, INFO, KELF, compressed=False)))
    assert (neff.chip, neff.built) == ("trn1", "")


@pytest.mark.feature("S7")
def test_too_many_members(write):
    path = write(with_tar(*(entry(f"m{number}") for number in range(300)), INFO))
    assert "more than 200 members" in reason_of(path, limits=NeffLimits(members=200))
    path = write(with_tar(*(entry("x", b"9 a=bcde\n", type=tarfile.XGLTYPE) for _ in range(3000)), INFO))
    assert "its tar is broken" in reason_of(path)


@pytest.mark.feature("S7")
def test_a_large_file_is_described_as_far_as_it_is_followed(write):
    """A limit of ours is no fault of the file."""
    neff = read(write(with_tar(INFO, KELF, entry("PE.bin", bytes(4 << 20)))), limits=BIG)
    assert (neff.compiler, neff.chip) == ("2.26.1.0+abc", "trn1")
    assert not neff.leaks.complete
    assert any("not read to its end" in note for note in neff.notes)


@pytest.mark.feature("S7")
@pytest.mark.parametrize(
    "name", ["../info.json", "/info.json", "a/../../info.json", "/etc/passwd", "a\\..\\b", "", "./", "../kelf-9.json"]
)
def test_a_name_outside_is_passed_over(write, name):
    neff = read(write(with_tar(INFO, KELF, entry(name, b'{"tool_version": "6.6.6", "target": "cayman"}'))))
    assert (neff.compiler, neff.chip) == ("2.26.1.0+abc", "trn1")
    assert any("leave the folder" in note for note in neff.notes)


@pytest.mark.feature("S7")
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.BLKTYPE])
def test_links_and_devices_are_passed_over(write, kind):
    neff = read(write(with_tar(entry("info.json", type=kind, linkname="/etc/passwd"), INFO, KELF)))
    assert neff.compiler == "2.26.1.0+abc"
    assert neff.members == 3
    assert any("1 links or devices" in note for note in neff.notes)


@pytest.mark.feature("S7")
@pytest.mark.parametrize(
    ("body", "note"),
    [
        (b"", "is not understood"),
        (b"[" * 200_000, "is not understood"),
        (b'{"a":' * 200_000, "is not understood"),
        (b"\xff\xfe", "is not understood"),
        (b"[1, 2]", "is not understood"),
        (b'{"heads": [[-1, 0, 0]]}', "is not understood"),
        (b'{"x": "' + b"y" * (9 << 20) + b'"}', "is too large to be read"),
    ],
)
def test_documents_that_are_none_are_told(write, body, note):
    neff = read(write(with_tar(INFO, KELF, entry("neff.json", body))))
    assert neff.compiler == "2.26.1.0+abc"
    assert any(f"neff.json {note}" in found for found in neff.notes)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
WORDS = """
    tool_version name target revision graphs nodes arg_nodes heads attrs shape dltype node_row_ptr metadata var
    output_names inputs outputs neff_features #rank_world_size kind dtype tf_shape type size
"""
KEYS = st.sampled_from(WORDS.split())
ODD = st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=4), max_size=8)


@pytest.mark.feature("S7")
@RELAXED
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(["info.json", "kelf-0.json", "neff.json", "sg00/def.json", "sg00/tensor_map.json"], ODD),
    )
)
def test_any_json_is_survived(write, documents):
    content = pack_neff(tar_of({name: json.dumps(document).encode() for name, document in documents.items()}))
    assert survived(write(content))


@pytest.mark.feature("S7")
@RELAXED
@given(data=st.data(), compressed=st.booleans())
def test_any_change_of_the_tar_is_survived(write, data, compressed):
    """As above, for the container: bytes changed, tar cut, and the digest made anew."""
    tar = bytearray(make_neff(compressed=False)[1024:])
    for _ in range(data.draw(st.integers(1, 6))):
        block = data.draw(st.integers(0, len(tar) // 512 - 1)) * 512
        tar[block + data.draw(st.integers(0, 511))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):  # with a right checksum, the change reaches further
            header = bytes(tar[block : block + 148]) + b" " * 8 + bytes(tar[block + 156 : block + 512])
            tar[block + 148 : block + 156] = b"%06o\0 " % sum(header)
    cut = bytes(tar[: data.draw(st.integers(1, len(tar)))])
    path = write(pack_neff(gzip.compress(cut) if compressed else cut))
    assert survived(path)


@pytest.mark.feature("S7")
@RELAXED
@given(st.binary(max_size=3000))
def test_any_bytes_are_survived(write, content):
    assert reason_of(write(content))
    header = struct.pack("<3Q", 2, 1024, max(len(content) - 1024, 0))
    path = write(header + content[24:])
    assert reason_of(path)


@pytest.mark.feature("S7")
@pytest.mark.parametrize(
    "name", [b"a\x1b[2Jb", b"\xff\xfe.neff", "é\u202e\x9b31m".encode(), b"line\nline", b"\r\t\x7f"]
)
def test_nothing_from_a_file_reaches_a_terminal(write, name):
    shown = name.decode("utf-8", "replace")
    document = json.dumps({"tool_version": shown, "name": shown}).encode()
    attributes = {"shape": ["list_shape", [[1]]], "dltype": ["list_str", [shown]]}
    graph = {"nodes": [{"name": shown}], "arg_nodes": [0], "node_row_ptr": [0], "attrs": attributes}
    content = with_tar(
        entry("info.json", document),
        entry("kelf-0.json", json.dumps({"target": shown, "graphs": [{"name": shown}]}).encode()),
        entry("neff.json", json.dumps(graph).encode()),
        entry("sg00/def.json", json.dumps({"neff_features": [shown]}).encode()),
        entry("debug_info/" + shown, b"/home/ann/x.py", uname=shown[:20]),
        entry("kelf-2.json/" + shown, b"{"),
        name=name,
        build=name,
    )

    def texts(value):
        if isinstance(value, dict):
            return [text for pair in value.items() for part in pair for text in texts(part)]
        if isinstance(value, (list, tuple)):
            return [text for part in value for text in texts(part)]
        return [value] if isinstance(value, str) else []

    found = texts(msgspec.to_builtins(read(write(content))))
    assert len(found) > 30
    assert [text for text in found if not text.isprintable()] == []


def test_memory_does_not_grow_with_the_file(write):
    """24 MB that do not compress, and 32 that do, are read in a small part of that."""
    path = write(make_neff(size=24 << 20, extra={"sg00/zeros.bin": bytes(32 << 20)}))
    tracemalloc.start()
    try:
        neff = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tensors(neff.inputs) == {"x": (F32, (4, 8), 128)}
    assert peak < 9 << 20
