"""What `neuron-ls` prints, of any version and chip, and what is no such thing."""

import json
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit import host
from cachekit.compilers.neuron.devices import (
    DeviceListError,
    Devices,
    host_instance_type,
    list_devices,
    parse_neuron_ls,
)
from tests.support.places import real_dir

TRN1 = {
    "instance_type": "trn1.2xlarge", "instance_id": "i-1", "neuron_device": 0, "bdf": "0000:00:1e.0",
    "cpu_affinity": "0-7", "numa_node": "-1", "connected_to": None, "nc_count": 2, "memory_size": 32 << 30,
    "neuroncore_ids": [0, 1], "neuron_processes": [],
}  # fmt: skip


def trn2(number):
    """As older tools print it: no instance type, a list of neighbours, busy."""
    return {
        "neuron_device": number, "bdf": "cc:00.0", "connected_to": [12, 3, 4, 1], "nc_count": 4,
        "logical_neuroncore_config": 2, "memory_size": 96 << 30,
        "neuron_processes": [{"pid": 113985, "command": "train", "neuron_runtime_version": "2.0.0"}],
    }  # fmt: skip


@pytest.mark.parametrize("indent", [None, 4])
def test_a_whole_trn2(indent):
    found = parse_neuron_ls(json.dumps([trn2(number) for number in range(16)], indent=indent))
    assert (found.count, found.cores, found.lnc) == (16, 64, 2)


def test_every_field_is_optional():
    for field in sorted(TRN1):
        found = parse_neuron_ls(json.dumps([{name: value for name, value in TRN1.items() if name != field}]))
        expected = Devices(1, 2, None, "trn1.2xlarge")
        if field == "instance_type":
            expected = Devices(1, 2, None, "")
        assert found == expected  # without nc_count the core's numbers are counted


def test_a_field_of_another_type_is_as_if_it_were_not_there():
    for field in sorted(TRN1):
        for value in (None, "x", [], {}, -1, True, 2.5, [[]], {"a": 1}, 10**30, ""):
            found = parse_neuron_ls(json.dumps([TRN1 | {field: value}]))
            assert found.count == 1
            assert found.cores in {None, 2, 0, 1}  # lists of core numbers are counted, whatever is in them
            assert found.instance_type in {"", "trn1.2xlarge", "x"}


@pytest.mark.parametrize("wrap", [lambda d: {"neuron_devices": d}, lambda d: {"instance_type": "trn3", "mlas": d}])
def test_a_list_inside_an_object(wrap):
    assert parse_neuron_ls(json.dumps(wrap([trn2(0), trn2(1)]))).cores == 8


TABLE = """\
instance-type: trn2n.48xlarge
instance-id: i-aabbccdd123456789
logical-neuroncore-config: 2
+--------+--------+----------+--------+---------------+--------------+---------------+------+
| NEURON | NEURON |  NEURON  | NEURON |   CONNECTED   |     PCI      |      CPU      | NUMA |
| DEVICE | CORES  | CORE IDS | MEMORY |    DEVICES    |     BDF      |   AFFINITY    | NODE |
+--------+--------+----------+--------+---------------+--------------+---------------+------+
| 0      | 4      | 0-3      | 96 GB  | 12, 3, 4, 1   | 0000:cc:00.0 | 48-95,144-191 | 1    |
|        |        |          |        |               |              |               |      |
| 1      | 4      | 4-7      | 96 GB  | 13, 0, 5, 2   | 0000:b5:00.0 | 48-95,144-191 | 1    |
+--------+--------+----------+--------+---------------+--------------+---------------+------+
"""


def test_the_table():
    assert parse_neuron_ls(TABLE) == Devices(2, 8, 2, "trn2n.48xlarge")


SEVERAL = """instance-type: trn1.2xlarge
+--------+--------+----------+--------+--------------+----------+------+---------+---------------+---------+
| NEURON | NEURON |  NEURON  | NEURON |     PCI      |   CPU    | NUMA |   PID   |    COMMAND    | RUNTIME |
| DEVICE | CORES  | CORE IDS | MEMORY |     BDF      | AFFINITY | NODE |         |               | VERSION |
+--------+--------+----------+--------+--------------+----------+------+---------+---------------+---------+
| 0      | 2      | 0-1      | 32 GB  | 0000:00:1e.0 | 0-7      | -1   | 4711    | python train  | 2.33.10 |
|        |        |          |        |              |          |      | 4712    | python train  | 2.33.10 |
|        |        |          |        |              |          |      | 4713    | neuron-top    | 2.33.10 |
+--------+--------+----------+--------+--------------+----------+------+---------+---------------+---------+
| 1      | 2      | 2-3      | 32 GB  | 0000:00:1f.0 | 0-7      | -1   |         |               |         |
+--------+--------+----------+--------+--------------+----------+------+---------+---------------+---------+
"""


def test_a_devices_further_processes_are_no_devices():
    """`--show-all-procs` gives each a row of its own, whose first cells are blank, and a line after each device."""
    assert parse_neuron_ls(SEVERAL) == Devices(2, 4, None, "trn1.2xlarge")


def test_no_device():
    assert parse_neuron_ls("neuron-ls: no neuron device found\n").count == 0
    assert parse_neuron_ls("[]") == Devices(0, 0)


def test_garbage_is_refused():
    """Also a damaged list of two devices: one of them would be taken for all there are."""
    for text in [
        "",
        "  \n",
        "hello",
        "[1, 2]",
        '{"a": 1}',
        '[{"a": 1}]',
        "null",
        "[" * 100_000,
        "{" * 100,
        "NaN",
        "\x00",
        json.dumps([TRN1, trn2(1)])[:-1],
        json.dumps([TRN1, trn2(1)], indent=4)[:-3],
        json.dumps([TRN1, trn2(1)], indent=4).replace("}", "}\n    ...", 1),
        json.dumps([TRN1, None]),
        "bash: neuron-ls: command not found",
    ]:
        with pytest.raises(DeviceListError, match="list of Neuron devices"):
            parse_neuron_ls(text)


@given(st.text(max_size=80))
@settings(max_examples=25)
def test_any_text_is_parsed_or_refused(text):
    for said in (text, text + json.dumps([TRN1]), TABLE[: 10 * len(text)] + text):
        with suppress(DeviceListError):
            assert parse_neuron_ls(said).count >= 0


# --- the tools ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tool(tmp_path):
    def make(body):
        path = tmp_path / "tool"
        path.write_text(f"#!{sys.executable}\nimport sys, time, json\n{body}\n")
        path.chmod(0o755)
        return [str(tmp_path / "absent"), str(path)]

    return make


def test_a_tool_that_is_not_there(tmp_path):
    absent = [str(tmp_path / "neuron-ls"), "no-such-tool-as-this"]
    assert list_devices(absent) is None


def test_the_tools_answer(tool):
    asked = tool(f"assert sys.argv[1:] == ['--json-output']; print({json.dumps([TRN1])!r})")
    assert list_devices(asked).cores == 2
    assert list_devices(tool("sys.stderr.write('no neuron device found'); sys.exit(1)")).count == 0


def test_a_tool_that_fails_says_why(tool):
    with pytest.raises(DeviceListError, match="ended with 3: driver is too old"):
        list_devices(tool("sys.stderr.write('driver is\\ntoo old'); sys.exit(3)"))
    with pytest.raises(DeviceListError, match="did not answer within"):
        list_devices(tool("time.sleep(60)"), timeout=0.5)


@pytest.mark.parametrize(
    ("text", "name"),
    [("trn1.2xlarge\n", "trn1.2xlarge"), ("u-6tb1.metal", "u-6tb1.metal"), ("Standard PC (Q35)\n", ""), ("", "")],
)
def test_the_instance_type_of_the_firmware(tmp_path, monkeypatch, text, name):
    monkeypatch.setattr(host, "PRODUCT", tmp_path / "product_name")
    assert host_instance_type() == ""
    (tmp_path / "product_name").write_text(text)
    assert host_instance_type() == name


# --- real output --------------------------------------------------------------------------------------------------


def test_every_real_listing():
    found = sorted(real_dir("device").glob("neuron-ls*"))
    assert found
    for path in found:
        listed = parse_neuron_ls(path.read_text())
        assert listed.count == len(json.loads(path.read_text())) > 0
        assert listed.cores is None or listed.cores >= listed.count


def test_a_real_report_of_a_machine_holds_table_and_json():
    text = (real_dir("device") / "trn1.2xlarge.specs.nolicence.txt").read_text()
    whole, table = parse_neuron_ls(text), parse_neuron_ls(text.partition("-- devices (json)")[0])
    assert whole == table == Devices(1, 2, None, "trn1.2xlarge")


TWO = [TRN1, trn2(1)]
LINES = "[\n" + ",\n".join(json.dumps(one) for one in TWO) + "\n]"
CUT_TABLE = """instance-type: trn2.48xlarge
+--------+--------+--------+---------+
| NEURON | NEURON | NEURON |   PCI   |
| DEVICE | CORES  | MEMORY |   BDF   |
+--------+--------+--------+---------+
| 0      | 4      | 96 GB  | cc:00.0 |
| 1      | 4      | 96 GB  | b5:00.0 |
+--------+--------+--------+---------+
"""


@pytest.mark.parametrize(
    "text",
    [LINES[:-40], json.dumps(TWO, indent=0)[:-30], "\n".join(json.dumps(one) for one in TWO)[:-10]],
    ids=["one-object-a-line", "no-indent", "no-list"],
)
def test_a_list_that_is_cut_off_is_refused_however_it_is_laid_out(text):
    """The devices in front of the cut would be taken for all there are."""
    with pytest.raises(DeviceListError, match="damaged"):
        parse_neuron_ls(text)


def test_a_table_that_is_cut_off_anywhere_after_its_names_is_refused():
    assert parse_neuron_ls(CUT_TABLE).count == 2
    lines = CUT_TABLE.splitlines(keepends=True)
    for cut in range(len("".join(lines[:5])), len(CUT_TABLE) - 2):
        with pytest.raises(DeviceListError):
            parse_neuron_ls(CUT_TABLE[:cut])
