"""NEFFs: real ones are verified and described, damage is found, hostile ones cost nothing and are refused in words."""

import gzip
import hashlib
import io
import json
import os
import random
import struct
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from conftest import real_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neuron_files import make_neff, pack_neff, tar_of

from cachekit.compilers.neuron.neff import NeffError, check, read, read_header, verify
from cachekit.compilers.neuron.neff.container import module_in
from cachekit.compilers.neuron.neff.leaks import SHOWN
from cachekit.compilers.neuron.neff.members import Limits

RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
PLAIN = st.sampled_from(["sunda", "cayman", "mariana"])
F32 = "float32"
# What is known of the real files, by a part of their names: compiler, chip, LNC, version, digest, feature bits, built,
# inputs, outputs, module.
REAL = {
    "moe_layer": (
        "2.24.5133.0+58f8de22",
        "trn3",
        2,
        "2.0",
        "md5, words reversed",
        "0x1209c00",
        "2026-04-23T19:03:58+00:00",
        {
            "input0": ("bfloat16", (1, 1, 2048), 4096),
            "input1": ("bfloat16", (128, 16, 128), 524_288),
            "input2": ("bfloat16", (128, 16), 4096),
            "input3": ("bfloat16", (128, 192, 2048), 100_663_296),
            "input4": ("bfloat16", (128, 2, 128, 16, 2, 96), 201_326_592),
        },
        {"output0": ("bfloat16", (1, 1, 2048), 4096)},
        "MODULE_55513e7947a621aed127+6af34228",
    ),
    "nkipy_matmul_small": (
        "2.23.6484.0+3b612583",
        "trn2",
        2,
        "2.0",
        "md5, words reversed",
        "0x209c00",
        "2026-06-22T22:16:42+00:00",
        {"x": ("float16", (128, 256), 65_536), "y": ("float16", (256, 128), 65_536)},
        {"output0": ("float16", (128, 128), 32_768)},
        "",
    ),
    "ncc2.0.99229": (
        "2.0.99229.0a0+1897edc9",
        "trn1",
        1,
        "1.0",
        "md5",
        "0x0",
        "2024-12-01T05:09:09+00:00",
        {"a_vec": (F32, (256_000,), 1_024_000), "b_vec": (F32, (256_000,), 1_024_000)},
        {"out": (F32, (2, 128, 1000), 1_024_000)},
        "",
    ),
    "ncc2.18.121": (
        "2.18.121.0+9e31e41a",
        "trn1",
        1,
        "1.0",
        "md5, words reversed",
        "0x0",
        "2025-06-18T16:03:20+00:00",
        {"a_vec": (F32, (256_000,), 1_024_000), "b_vec": (F32, (256_000,), 1_024_000)},
        {"out": (F32, (256_000,), 1_024_000)},
        "",
    ),
}


@pytest.fixture
def write(tmp_path):
    """Puts bytes into a file."""

    def _write(content: bytes) -> Path:
        path = tmp_path / "model.neff"
        path.write_bytes(content)
        return path

    return _write


def reason_of(path: Path, **options) -> str:
    """Why a file is refused; it is, by the whole reader."""
    with pytest.raises(NeffError) as refused:
        read(path, **options)
    assert refused.value.reason.isprintable()
    assert str(refused.value) == refused.value.reason
    return refused.value.reason


def survived(path: Path) -> bool:
    """Whether a file is described in JSON, or refused in words; anything else raises."""
    try:
        described = read(path).as_dict()
    except NeffError as error:
        return error.reason.isprintable()
    return json.loads(json.dumps(described)) == described


def tensors(found) -> dict:
    return {tensor.name: (tensor.dtype, tensor.shape, tensor.bytes) for tensor in found}


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def entry(name: str, body: bytes = b"", **fields) -> bytes:
    """One member of a tar, whatever its header says."""
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)


def with_tar(*parts: bytes, compressed: bool = True, **header) -> bytes:
    """A NEFF of these parts of a tar, with the right digest."""
    tar = b"".join(parts) + bytes(1024)
    return pack_neff(gzip.compress(tar, 1, mtime=1) if compressed else tar, **header)


INFO = entry("info.json", b'{"tool_version": "2.26.1.0+abc", "name": "file.neff"}')
KELF = entry("kelf-0.json", b'{"graphs": [{"name": "sg00"}], "target": "sunda"}')


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
        assert len(neff.subgraphs) == neff.header.lnc, path
        assert json.loads(json.dumps(neff.as_dict())) == neff.as_dict(), path


@pytest.mark.feature("P2")
@pytest.mark.parametrize("part", REAL)
def test_facts_of_real_neffs(part):
    found = [path for path in real_neffs() if part in path.name]
    if not found:
        pytest.skip(f"no {part} among the real files (CACHEKIT_REAL_DIR)")
    compiler, chip, lnc, version, digest, bits, built, inputs, outputs, module = REAL[part]
    neff = read(found[0])
    assert (neff.compiler, neff.chip, neff.header.lnc, neff.header.version) == (compiler, chip, lnc, version)
    assert (neff.digest, neff.as_dict()["feature_bits"], neff.built, neff.module) == (digest, bits, built, module)
    assert (tensors(neff.inputs), tensors(neff.outputs)) == (inputs, outputs)
    assert neff.header.cores == 1
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


@pytest.mark.feature("F6")
@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_in_a_real_neff_is_found(seed, write):
    draw = random.Random(seed)
    for path in real_neffs():
        content = path.read_bytes()
        for _ in range(25):
            at = draw.choice([draw.randrange(24), draw.randrange(172, 188), draw.randrange(1024, len(content))])
            assert check(write(flipped(content, at, draw.randrange(8)))), (path.name, at)


@pytest.mark.feature("F6")
@pytest.mark.parametrize("seed", range(4))
def test_a_real_neff_cut_or_lengthened_anywhere_is_found(seed, write):
    draw = random.Random(seed)
    for path in real_neffs():
        content = path.read_bytes()
        for length in [0, 1, 1023, 1024, 1025, len(content) - 1, *draw.sample(range(len(content)), 20)]:
            assert check(write(content[:length])), (path.name, length)
        assert "too long" in check(write(content + bytes(draw.randrange(1, 20_000))))


# Made files


@pytest.mark.parametrize("byte_order", ["plain", "reversed"])
@pytest.mark.parametrize("package", [1, 2])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("target", ["sunda", "cayman", "mariana"])
def test_every_variant(write, byte_order, package, compressed, target):
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
    assert neff.digest == {1: "sha256", 2: "md5"}[package] + (", words reversed" if byte_order == "reversed" else "")
    assert neff.header.version == ("1.0" if target == "sunda" else "2.0")
    assert neff.subgraphs == (("sg00",) if target == "sunda" else ("sg00", "sg01"))
    assert tensors(neff.inputs) == {"w": ("bfloat16", (2, 3), 12), "scalar": (F32, (), 4), "zero": ("int32", (0, 4), 0)}
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
    assert reason_of(path) == check(path)


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
    assert verify(path).name != "/home/a/MODULE_1+00000000/file.neff"
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
    "neither gzip nor tar": (pack_neff(b"just some words " * 90), "neither gzip nor tar"),
}


@pytest.mark.parametrize("lie", LIES)
def test_no_neff_is_refused_with_a_reason(write, lie):
    content, words = LIES[lie]
    path = write(content)
    assert words in check(path)
    assert reason_of(path)


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
    with pytest.raises(OSError if kind in {"missing", "dangling"} else NeffError):
        read(path)
    with pytest.raises(OSError if kind in {"missing", "dangling"} else NeffError):
        read_header(path)


# Variation that is no damage


def test_old_samples_have_other_names_and_owners(write):
    """As the runtime's own sample: kelf-a.json, "*", folders, "./", GNU owners, no info.json, a build version."""
    path = write(
        with_tar(
            entry("./kelf-a.json", b'{"graphs": [{"name": "sg00"}], "version": "0.5", "target": "*"}', uname="alice"),
            entry("sg00", type=tarfile.DIRTYPE, uid=626_188_407, gname="staff"),
            entry("sg00/pe.json", b"{}", uname="alice", gname="domain^users"),
            build=b"2.0.21884.0%tools/develop@6c66f4b",
            name="x",
        )
    )
    neff = read(path)
    assert (neff.target, neff.chip, neff.compiler) == ("*", "any", "")
    assert neff.header.build == "2.0.21884.0%tools/develop@6c66f4b"
    assert neff.subgraphs == ("sg00",)
    assert neff.leaks.users == ("alice", "domain^users")
    assert (neff.inputs, neff.outputs, neff.notes) == ((), (), ())


@pytest.mark.parametrize(
    ("target", "chip"), [("v3", "trn2"), ("", "trn1"), ("maverick", "maverick"), ("x\x1b[31m", "x\\x1b[31m")]
)
def test_targets_that_nobody_knows_pass_through(write, target, chip):
    assert read(write(make_neff(target=target))).chip == chip


@pytest.mark.parametrize(
    ("without", "inputs", "outputs"),
    [
        ((), {"x": (F32, (4, 8), 128)}, {"output0": (F32, (4, 4), 64)}),
        (("neff.json",), {"x": (F32, (4, 8), 128)}, {"output0": (F32, (4, 4), 64)}),
        (
            ("neff.json", "sg00/tensor_map.json", "sg01/tensor_map.json"),
            {"x": ("", None, 128)},
            {"output0": ("", None, 64)},
        ),
        (("sg00/def.json", "sg01/def.json"), {"x": (F32, (4, 8), None)}, {"output0": (F32, (4, 4), None)}),
    ],
)
def test_inputs_and_outputs_come_from_what_there_is(write, without, inputs, outputs):
    neff = read(write(make_neff(without=without)))
    assert (tensors(neff.inputs), tensors(neff.outputs)) == (inputs, outputs)


def test_a_graph_without_signatures(write):
    document = {
        "nodes": [
            {"op": "null", "name": "a", "output_names": ["a"]},
            {"op": "tvm_op", "name": "sg", "output_names": ["p", "q"]},
        ],
        "arg_nodes": [0],
        "heads": [[1, 0, 0], [1, 1, 0]],
        "attrs": {"shape": ["list_shape", [[1], [2], [3, 4]]], "dltype": ["list_str", ["int32", "float16", F32]]},
        "node_row_ptr": [0, 1, 3],
    }
    neff = read(write(make_neff(extra={"neff.json": json.dumps(document).encode()}, without=["sg00/def.json"])))
    assert tensors(neff.inputs) == {"a": ("int32", (1,), None)}
    assert tensors(neff.outputs) == {"p": ("float16", (2,), None), "q": (F32, (3, 4), None)}


def test_ranks_and_features_of_all_subgraphs(write):
    one = {"#rank_world_size": 2, "neff_features": ["neff_feature_vnc"]}
    two = {"#rank_world_size": 32, "neff_features": ["collective_has_offset", 7]}
    neff = read(
        write(make_neff(extra={"sg00/def.json": json.dumps(one).encode(), "sg01/def.json": json.dumps(two).encode()}))
    )
    assert (neff.ranks, neff.features) == (32, ("collective_has_offset", "vnc"))


def test_several_gzip_streams_and_padding_of_any_kind(write):
    tar = INFO + KELF + bytes(1024)
    payload = gzip.compress(tar[:700], mtime=5) + gzip.compress(tar[700:], mtime=9) + b"not zeros"
    neff = read(write(pack_neff(payload)))
    assert (neff.chip, neff.built) == ("trn1", "1970-01-01T00:00:05+00:00")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_kind_of_tar(write, form):
    buffer = io.BytesIO()
    folder = "d" * 60
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, body in (
            (f"{folder}/{folder}/PE.bin", b"x" * 1000),
            ("info.json", b'{"tool_version": "2.9"}'),
            ("kelf-0.json", b'{"target": "sunda"}'),
            (f"nc0/{folder}/sg07/def.json", b'{"var": {"i": {"type": "input", "size": 5}}}'),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            member.mtime = 1_700_000_000.5 if form == tarfile.PAX_FORMAT else 1_700_000_000
            tar.addfile(member, io.BytesIO(body))
    for payload in (buffer.getvalue(), gzip.compress(buffer.getvalue(), mtime=0)):
        neff = read(write(pack_neff(payload)))
        assert (neff.compiler, neff.chip, neff.members, neff.subgraphs) == ("2.9", "trn1", 4, ("sg07",))
        assert tensors(neff.inputs) == {"i": ("", None, 5)}
        assert neff.built == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/h/model.MODULE_55513e7947a621aed127+6af34228.neff", "MODULE_55513e7947a621aed127+6af34228"),
        ("/r/neuronxcc-2.26/MODULE_10918481393192567537+f7f529f3/model.neff", "MODULE_10918481393192567537+f7f529f3"),
        ("/r/MODULE_6151d82caf2d3b2f7a6f/model.neff", "MODULE_6151d82caf2d3b2f7a6f"),
        ("c/USER_neuroncc-2.4/MODULE_165/MODULE_0_SyncTensorsGraph.305_165_ip-172-31-55-249-6c/x", "MODULE_165"),
        ("/a/MODULE_12/b/MODULE_34+00112233.neff", "MODULE_34+00112233"),
        ("file.neff", ""),
        ("/a/MODULE_xyz/model.neff", ""),
        ("/a/MODULE_12+0011/model.neff", ""),
    ],
)
def test_the_module_is_recovered_from_the_name(write, name, module):
    assert module_in(name) == module
    assert read(write(make_neff(name=name))).module == module


def test_a_name_that_fills_its_field_is_taken_from_the_inside(write):
    """255 bytes hold the beginning of a long path: a module at its end would be another one."""
    name = "/home/ann/" + "d" * 225 + "/MODULE_10918481393192567537+f7f529f3/model.neff"
    path = write(make_neff(name=name))
    assert verify(path).name == name[:255]
    assert verify(path).name_is_cut
    neff = read(path)
    assert (neff.name, neff.module) == (name, "MODULE_10918481393192567537+f7f529f3")
    bare = read(write(make_neff(name=name, without=["info.json"])))
    assert (bare.name, bare.module) == (name[:255], "")


# Leaks


def leaks_of(write, body: bytes, member: str = "debug_info/debug_info_hlo.dbg", **options):
    return read(write(make_neff(extra={member: body}, **options))).leaks


@pytest.mark.parametrize("before", [b"", b"\x12M", b"\ng", b"x", b'"', b"/local"])
def test_a_path_is_found_whatever_stands_before_it(write, before):
    """In protobuf that is its length, which is a letter for lengths from 65 on."""
    leaks = leaks_of(write, b"\0\1" + before + b"/home/ann.b/src/train.py:12\0")
    assert leaks.users == ("ann.b",)
    assert leaks.paths[0].path.endswith("/home/ann.b/src/train.py")


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (b"at /data7/jo/net.py.", ["/data7/jo/net.py"]),
        (b"layer.3/aten.add.Tensor/xla__select_slice.148 /_activation/aten.t.default", []),
        (b"neuronxcc/starfish/penguin/x.py and http://example.org/a/b.py", []),
        (b"/x.py", []),
        (b"/opt/venv/lib/python3.12/site-packages/torch/nn.py", ["/opt/venv/lib/python3.12/site-packages/torch/nn.py"]),
    ],
)
def test_what_counts_as_a_path(write, text, paths):
    assert [leak.path for leak in leaks_of(write, text).paths] == paths


@settings(RELAXED, max_examples=50)
@given(at=st.integers((1 << 18) - 1100, (1 << 18) + 200), length=st.integers(1, 900))
def test_a_path_is_found_across_the_pieces_that_are_read(write, at, length):
    path = b"/home/ann/" + b"d" * min(length, 200) + b"/folders-name" * (max(length - 200, 0) // 13) + b"/train.py"
    leaks = leaks_of(write, b" " * at + path + b" " * 2000, without=["neff.json"])
    assert [leak.path for leak in leaks.paths if leak.where.startswith("debug")] == [path.decode()]


def test_hosts_names_and_order(write):
    body = b"".join(b"/opt/x/site-packages/m%d.py " % number for number in range(40))
    body += b"/tmp/job/a.py /Users/zoe/b.py MODULE_0_Sync_ip-172-31-55-249-6c54106d"
    leaks = leaks_of(write, body, name="cache/MODULE_1+00000000/x_ip-10-0-0-7.neff")
    assert leaks.hosts == ("ip-10-0-0-7", "ip-172-31-55-249")
    assert leaks.users == ("zoe",)
    assert [leak.path for leak in leaks.paths[:2]] == ["/Users/zoe/b.py", "/tmp/job/a.py"]
    assert leaks.paths[2].path == "cache/MODULE_1+00000000/x_ip-10-0-0-7.neff"
    assert (len(leaks.paths), leaks.count) == (SHOWN, 43)


def test_leaks_can_be_left_out(write):
    neff = read(write(make_neff(name="/home/ann/model.neff")), leaks=False)
    assert not neff.leaks
    assert not neff.leaks.complete
    assert tensors(neff.inputs) == {"x": (F32, (4, 8), 128)}


# Hostile files: the digest is right, so whoever made them meant it


BIG = Limits(inflated=1 << 20, inflated_base=1 << 20)
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
    "pax without records": (with_tar(entry("x", b"hello", type=tarfile.XHDTYPE), INFO), "broken extended header"),
    "pax with a lie": (with_tar(entry("x", b"99 size=1\n", type=tarfile.XHDTYPE), INFO), "broken extended header"),
    "pax going back": (with_tar(entry("x", b"0 a=1\n", type=tarfile.XHDTYPE), INFO), "broken extended header"),
    "pax with a size of words": (with_tar(entry("x", b"11 size=-1\n", type=tarfile.XHDTYPE), INFO), "a size of -1"),
    "pax with a huge size": (
        with_tar(entry("x", b"30 size=" + b"9" * 21 + b"\n", type=tarfile.XHDTYPE), INFO),
        "a size of 999",
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
@pytest.mark.parametrize("trick", BROKEN)
def test_hostile_files_are_refused_in_words(write, trick):
    content, words = BROKEN[trick]
    path = write(content)
    assert check(path) is None  # its bytes are what its maker wrote
    assert words in reason_of(path, limits=BIG)


@pytest.mark.feature("S7")
def test_too_many_members(write):
    path = write(with_tar(*(entry(f"m{number}") for number in range(300)), INFO))
    assert "more than 200 members" in reason_of(path, limits=Limits(members=200))
    path = write(with_tar(*(entry("x", b"9 a=bcde\n", type=tarfile.XGLTYPE) for _ in range(300)), INFO))
    assert "more than 200 members" in reason_of(path, limits=Limits(members=200))


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
        (b"", "is no JSON"),
        (b"[" * 200_000, "is no JSON"),
        (b'{"a":' * 200_000, "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[1, 2]", "is not an object"),
        (b'{"x": 1e999}', "is no JSON"),
        (b'{"x": "' + b"y" * (9 << 20) + b'"}', "is too large to be read"),
    ],
)
def test_documents_that_are_none_are_told(write, body, note):
    neff = read(write(with_tar(INFO, KELF, entry("neff.json", body))))
    assert neff.compiler == "2.26.1.0+abc"
    assert any(f"neff.json {note}" in found for found in neff.notes)


@pytest.mark.feature("S7")
def test_documents_have_a_bound_together(write):
    many = [entry(f"sg{number:02d}/def.json", b"{}" + b" " * 1000) for number in range(20)]
    neff = read(write(with_tar(INFO, KELF, *many)), limits=Limits(documents=10_000))
    assert sum("too large" in note for note in neff.notes) == 11


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
    signatures default inputs outputs neff_features #rank_world_size kind dtype tf_shape type size
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
    assert check(path) is None or not compressed


@pytest.mark.feature("S7")
@RELAXED
@given(data=st.data())
def test_any_change_of_the_gzip_stream_is_survived(write, data):
    payload = bytearray(make_neff()[1024:])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(2, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert survived(write(pack_neff(bytes(payload))))


@pytest.mark.feature("S7")
@RELAXED
@given(st.binary(max_size=3000))
def test_any_bytes_are_survived(write, content):
    assert check(write(content))
    header = struct.pack("<3Q", 2, 1024, max(len(content) - 1024, 0))
    path = write(header + content[24:])
    assert check(path)
    with pytest.raises(NeffError):
        read(path)


@pytest.mark.feature("S7")
@pytest.mark.parametrize(
    "name", [b"a\x1b[2Jb", b"\xff\xfe.neff", "é\u202e\x9b31m".encode(), b"line\nline", b"\r\t\x7f"]
)
def test_nothing_from_a_file_reaches_a_terminal(write, name):
    shown = name.decode("utf-8", "replace")
    document = json.dumps({"tool_version": shown, "name": shown}).encode()
    graph = {"metadata": {"signatures": {"default": {"inputs": {shown: {"dtype": shown, "shape": [1]}}}}}}
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

    found = texts(read(write(content)).as_dict())
    assert len(found) > 30
    assert [text for text in found if not text.isprintable()] == []


def test_memory_does_not_grow_with_the_file(write):
    """24 MB that do not compress, and 32 that do, are read in a small part of that."""
    path = write(make_neff(size=24 << 20, extra={"sg00/zeros.bin": bytes(32 << 20)}))
    tracemalloc.start()
    try:
        assert check(path) is None
        neff = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tensors(neff.inputs) == {"x": (F32, (4, 8), 128)}
    assert peak < 9 << 20
