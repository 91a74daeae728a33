"""NEFFs: real ones are verified and described, damage is found, and what is none is refused in words."""

import gzip
import hashlib
import json
import os
import random
from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.neuron.fit import check
from cachekit.compilers.neuron.neff import NeffError, read, read_header
from tests.compilers.neuron.neuron_files import F32, PLAIN, RELAXED, make_neff, pack_neff, reason_of, tensors, write  # noqa: F401 - fixtures
from tests.support.places import real_dir

# What is known of the real files, by a part of their names: compiler, chip, LNC, version, digest, feature bits, built,
# inputs, outputs, module.
REAL = {
    "moe_layer": (
        "2.24.5133.0+58f8de22", "trn3", 2, "2.0", "md5, words reversed", "0x1209c00", "2026-04-23T19:03:58+00:00",
        {"input0": ("bfloat16", (1, 1, 2048), 4096), "input1": ("bfloat16", (128, 16, 128), 524288),
         "input2": ("bfloat16", (128, 16), 4096), "input3": ("bfloat16", (128, 192, 2048), 100663296),
         "input4": ("bfloat16", (128, 2, 128, 16, 2, 96), 201326592)},
        {"output0": ("bfloat16", (1, 1, 2048), 4096)}, "MODULE_55513e7947a621aed127+6af34228",
    ),
    "nkipy_matmul_small": (
        "2.23.6484.0+3b612583", "trn2", 2, "2.0", "md5, words reversed", "0x209c00", "2026-06-22T22:16:42+00:00",
        {"x": ("float16", (128, 256), 65536), "y": ("float16", (256, 128), 65536)},
        {"output0": ("float16", (128, 128), 32768)}, "",
    ),
    "ncc2.0.99229": (
        "2.0.99229.0a0+1897edc9", "trn1", 1, "1.0", "md5", "0x0", "2024-12-01T05:09:09+00:00",
        {"a_vec": ("float32", (256000,), 1024000), "b_vec": ("float32", (256000,), 1024000)},
        {"out": ("float32", (2, 128, 1000), 1024000)}, "",
    ),
    "ncc2.18.121": (
        "2.18.121.0+9e31e41a", "trn1", 1, "1.0", "md5, words reversed", "0x0", "2025-06-18T16:03:20+00:00",
        {"a_vec": ("float32", (256000,), 1024000), "b_vec": ("float32", (256000,), 1024000)},
        {"out": ("float32", (256000,), 1024000)}, "",
    ),
}  # fmt: skip


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


# Real files


def real_neffs() -> list[Path]:
    found = sorted(real_dir("neff").glob("*.neff"))
    assert found
    return found


def test_every_real_neff_is_verified_and_described():
    for path in real_neffs():
        assert check(path) is None, path
        neff = read(path)
        assert neff.notes == (), path
        assert neff.compiler, path
        assert neff.chip.startswith(("trn", "inf")), path
        assert neff.built > "2022", path
        assert neff.inputs, path
        assert neff.outputs, path
        assert all(tensor.dtype and tensor.shape is not None for tensor in neff.inputs + neff.outputs), path
        assert len(neff.subgraphs) == neff.lnc, path
        assert json.loads(msgspec.json.encode(neff))["chip"] == neff.chip, path


@pytest.mark.feature("P2")
@pytest.mark.parametrize("part", REAL)
def test_facts_of_real_neffs(part):
    found = [path for path in real_neffs() if part in path.name]
    if not found:
        pytest.skip(f"no {part} among the real files (CACHEKIT_REAL_DIR)")
    compiler, chip, lnc, version, digest, bits, built, inputs, outputs, module = REAL[part]
    neff = read(found[0])
    assert (neff.compiler, neff.chip, neff.lnc, neff.neff_version) == (compiler, chip, lnc, version)
    assert (neff.digest, neff.feature_bits, neff.built, neff.module) == (digest, bits, built, module)
    assert (tensors(neff.inputs), tensors(neff.outputs)) == (inputs, outputs)
    assert neff.cores == 1
    assert neff.members in {32, 72, 81}


def test_what_real_neffs_leak():
    found = {part: read(path).leaks for part in REAL for path in real_neffs() if part in path.name}
    moe, small = found["moe_layer"], found["nkipy_matmul_small"]
    assert moe.users == small.users == ("ubuntu",)
    assert moe.paths[0].path.startswith("/home/ubuntu/nki-moe/artifacts/")
    assert moe.paths[0].where == "header"
    assert moe.paths[1].path == "/home/ubuntu/nki-moe/tests/test_v30c_vs_nxdi_trn3.py"
    assert moe.paths[1].where == "debug_info/debug_info_stack_frame_index.dbg"
    assert moe.count == 11
    assert all(leak.path.endswith((".py", ".neff")) for leak in moe.paths)  # and no names of operations
    assert [leak.path for leak in small.paths] == [
        "/home/ubuntu/workplace/spike-async/nkipy/spike/tests/test_spike_async.py"
    ]
    assert not found["ncc2.0.99229"]
    assert all(leaks.complete for leaks in found.values())


# Made files


def test_every_variant(write):
    for byte_order, package, compressed, target in product(
        ("plain", "reversed"), (1, 2), (True, False), ("sunda", "cayman", "mariana")
    ):
        path = write(
            make_neff(
                version="2.26.6360.0+6f180f47",
                target=target,
                byte_order=byte_order,
                package=package,
                compressed=compressed,
                inputs={"w": ("bfloat16", (2, 3)), "scalar": (F32, ()), "zero": ("int32", (0, 4))},
            )
        )
        assert check(path) is None
        neff = read(path)
        assert neff.compiler == "2.26.6360.0+6f180f47"
        assert neff.chip == {"sunda": "trn1", "cayman": "trn2", "mariana": "trn3"}[target]
        assert neff.compressed is compressed
        assert neff.digest == {1: "sha256", 2: "md5"}[package] + (
            ", words reversed" if byte_order == "reversed" else ""
        )
        assert neff.neff_version == ("1.0" if target == "sunda" else "2.0")
        assert neff.subgraphs == (("sg00",) if target == "sunda" else ("sg00", "sg01"))
        assert tensors(neff.inputs) == {
            "w": ("bfloat16", (2, 3), 12),
            "scalar": (F32, (), 4),
            "zero": ("int32", (0, 4), 0),
        }
        assert tensors(neff.outputs) == {"output0": (F32, (4, 4), 64)}
        assert neff.built == ("2026-01-01T00:00:00+00:00" if compressed else "")
        assert neff.notes == ()


@pytest.mark.feature("F6")
@RELAXED
@given(data=st.data(), target=PLAIN, package=st.sampled_from([1, 2]), compressed=st.booleans())
def test_a_flipped_bit_is_found(write, data, target, package, compressed):
    content = make_neff(target=target, package=package, compressed=compressed)
    checked = [range(24), range(172, 172 + (32 if package == 1 else 16)), range(1024, len(content))]
    at = data.draw(st.sampled_from(data.draw(st.sampled_from(checked))))
    path = write(flipped(content, at, data.draw(st.integers(0, 7))))
    assert check(path)


@pytest.mark.feature("F6")
@RELAXED
@given(data=st.data(), compressed=st.booleans())
def test_a_cut_is_found_wherever_it_is(write, data, compressed):
    content = make_neff(compressed=compressed)
    path = write(content[: data.draw(st.integers(0, len(content) - 1))])
    assert check(path)
    with pytest.raises(NeffError):
        read_header(path)


def test_what_a_digest_cannot_see_is_told_by_the_rest(write):
    content = make_neff(name="/home/a/MODULE_1+00000000/file.neff")
    path = write(flipped(content, 230, 1))  # within the header's name
    assert read_header(path).name != "/home/a/MODULE_1+00000000/file.neff"
    assert any("different names" in note for note in read(path).notes)


LIES = {
    "nothing at all": (b"", "empty"),
    "one byte": (b"\x02", "fewer than a NEFF's header"),
    "text": (b"hello " * 400, "does not begin with a NEFF's header"),
    "gzip without a header": (gzip.compress(bytes(random.Random(1).randbytes(4000))), "but with gzip"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "git lfs pull"),
    "a header alone": (make_neff()[:1024], "cut short"),
    "an empty payload": (pack_neff(b""), "nothing follows"),
    "a shorter size": (pack_neff(make_neff()[1024:], data_size=9999), "too long"),
    "a longer size": (pack_neff(make_neff()[1024:], data_size=1 << 63), "cut short"),
    "another header": (pack_neff(make_neff()[1024:], header_size=2048), "does not begin with"),
    "package 0": (pack_neff(make_neff()[1024:], package=0), "package version 0: only 1 and 2 are known"),
    "package 3": (pack_neff(make_neff()[1024:], package=3), "package version 3: only 1 and 2 are known"),
    "major 3": (pack_neff(make_neff()[1024:], major=3), "NEFF version 3.0: newer than 2.x"),
    "no digest": (pack_neff(make_neff()[1024:], digest=bytes(32)), "no MD5"),
    "SHA-256 as MD5": (pack_neff(make_neff()[1024:], digest=b"\1" * 32), "the MD5 of its contents is not"),
    "neither gzip nor tar": (pack_neff(b"just some words " * 90), "its tar is broken after 0 members"),
}


def test_no_neff_is_refused_with_a_reason(write):
    for content, words in LIES.values():
        path = write(content)
        assert words in reason_of(path)
        assert words in check(path)


def test_a_digest_with_other_bytes_after_it(write):
    """The field is as wide as SHA-256; some packagers fill the rest of an MD5 with the digit 0, others with zeros."""
    payload = make_neff()[1024:]
    assert check(write(pack_neff(payload, digest=hashlib.md5(payload).digest() + b"0" * 16))) is None


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "missing", "dangling", "link"])
def test_what_is_no_file_is_not_waited_for(tmp_path, kind):
    path = tmp_path / "model.neff"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "link":
        make_neff(tmp_path / "real.neff")
        path.symlink_to(tmp_path / "real.neff")
        assert check(path) is None
        assert read(path).compiler
        return
    assert check(path)
    for look in (read, read_header):
        with pytest.raises(OSError):
            look(path)
