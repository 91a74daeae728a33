"""NEFFs of every form that is no damage: older layouts, other tars, what is missing; and what each would leak."""

import gzip
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.neuron.neff import read, read_header
from cachekit.compilers.neuron.neff.container import module_in
from cachekit.store.leaks import SHOWN
from tests.compilers.neuron.neuron_files import (  # noqa: F401 - fixtures
    F32,
    INFO,
    KELF,
    RELAXED,
    entry,
    make_neff,
    pack_neff,
    tensors,
    with_tar,
    write,
)


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
    assert neff.build == "2.0.21884.0%tools/develop@6c66f4b"
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
        (("neff.json",), {"x": ("", None, 128)}, {"output0": ("", None, 64)}),
        (("sg00/def.json", "sg01/def.json"), {"x": (F32, (4, 8), None)}, {"output0": (F32, (4, 4), None)}),
    ],
)
def test_inputs_and_outputs_come_from_what_there_is(write, without, inputs, outputs):
    neff = read(write(make_neff(without=without)))
    assert (tensors(neff.inputs), tensors(neff.outputs)) == (inputs, outputs)


def test_several_gzip_streams_and_padding_of_any_kind(write):
    tar = INFO + KELF + bytes(1024)
    payload = gzip.compress(tar[:700], mtime=5) + gzip.compress(tar[700:], mtime=9) + b"not zeros"
    neff = read(write(pack_neff(payload)))
    assert (neff.chip, neff.built) == ("trn1", "1970-01-01T00:00:05+00:00")


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
    assert read_header(path).name == name[:255]
    assert read_header(path).name_is_cut
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


@RELAXED
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
