"""`cachekit store neff`: the screen, the JSON and the exit codes, on made files.

Golden files as in test_cli.py: `UPDATE_GOLDEN=1 pytest tests/cli/test_neff.py` writes them anew.
"""

import json
from pathlib import Path

import jsonschema
import pytest

from tests.compilers.neuron.neuron_files import make_neff
from tests.support.cli_session import golden, the_error
from tests.support.places import real_dir

pytest_plugins = ["tests.support.cli_session"]


@pytest.fixture
def neff(command):
    """Runs `cachekit store neff`; gives stdout. Whatever is not 0 has its error, which may be asked for."""

    def run(*arguments: object, code: int = 0, error: str = "") -> str:
        answer = command("store", "neff", *map(str, arguments), code=code)
        assert answer.err == "" if not code else the_error(answer)
        assert error in answer.err
        return answer.out

    return run


def make_all() -> list[str]:
    """A folder of NEFFs of every state."""
    whole = make_neff(
        Path("whole.neff"),
        version="2.26.6360.0+6f180f47",
        name="/home/ann/run/neuronxcc-2.26.6360.0+6f180f47/MODULE_10918481393192567537+f7f529f3/model.neff",
        inputs={f"input{number}": ("bfloat16", (8, 128, 1024)) for number in range(11)} | {"step": ("int32", ())},
        outputs={"loss": ("float32", ()), "a_name_that_is_longer_than_half_of_the_screen": ("float32", (4096, 4096))},
        extra={"debug_info/x.dbg": b"\n\x17/home/ann/src/train.py /tmp/ip-10-0-0-7/a.py"},
    )
    make_neff(Path("small.neff"), target="sunda", version="2.9.4.0+aa", compressed=False, lnc=1, without=["neff.json"])
    damaged = bytearray(whole)
    damaged[2000] ^= 4
    Path("damaged.neff").write_bytes(damaged)
    Path("short.neff").write_bytes(whole[:1500])
    Path("words.neff").write_text("nothing of the kind\n" * 99)
    Path("folder.neff").mkdir()
    return ["whole.neff", "small.neff", "damaged.neff", "short.neff", "words.neff", "folder.neff", "missing.neff"]


@pytest.mark.feature("U2")
def test_what_people_see(neff):
    shown = neff(*make_all(), code=5)
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    golden("neff", shown)
    whole = neff("whole.neff", "-v")
    assert whole.count("bfloat16[8,128,1024]") == 11
    assert "more" not in whole


@pytest.mark.feature("U2")
def test_what_programs_read(neff):
    files = make_all()
    found = json.loads(neff(*files, "--format", "json", code=5))
    jsonschema.validate(found, json.loads(neff("--schema")))
    assert [one["file"] for one in found] == files
    states = ["verified", "verified", "damaged", "damaged", "unknown", "absent", "absent"]
    assert [one["state"] for one in found] == states
    assert all((one["reason"] == "") == (one["state"] == "verified") for one in found)
    assert {one["module"] for one in found[:3:2]} == {"MODULE_10918481393192567537+f7f529f3"}
    assert found[0]["graph"]["chip"] == "trn2"
    assert found[0]["graph"]["inputs"][11] == {"name": "step", "dtype": "int32", "shape": [], "bytes": 4}
    assert found[0]["graph"]["leaks"]["users"] == ["ann"]
    quiet = neff(*files, "--format", "quiet", code=5)
    assert quiet == "".join(f"{state} {file}\n" for state, file in zip(states, files, strict=True))


@pytest.mark.feature("U2")
@pytest.mark.parametrize(
    ("files", "code", "error"),
    [
        (["whole.neff"], 0, ""),
        (["whole.neff", "small.neff"], 0, ""),
        (["whole.neff", "missing.neff"], 2, "error[usage]: missing.neff cannot be read\n"),
        (["missing.neff", "folder.neff"], 2, "missing.neff cannot be read, and 1 more likewise\n"),
        (["/dev/null"], 2, "cause: it is not a regular file\n"),
        (["whole.neff", "damaged.neff"], 5, "damaged.neff is damaged\n"),
        (["missing.neff", "short.neff", "whole.neff"], 5, "short.neff is damaged\n"),
        (["words.neff"], 5, "words.neff is not a known kind of NEFF\n"),
    ],
)
def test_exit_codes(neff, files, code, error):
    """Whatever is not 0 has its error, beside the states of all files."""
    make_all()
    neff(*files, code=code, error=error)


def test_a_damaged_module_is_named_by_its_folder(neff):
    path = Path("neuronxcc-2.26/MODULE_42+00112233/model.neff")
    make_neff(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert json.loads(neff(path, "-f", "json", code=5))[0]["module"] == "MODULE_42+00112233"
    assert "delete neuronxcc-2.26/MODULE_42+00112233; the next run" in " ".join(neff(path, code=5).split())


def test_nobody_is_told_to_delete_the_folder_of_any_file(neff):
    Path("notes.txt").write_text("hello")
    make_neff(Path("copy.neff"))
    Path("copy.neff").write_bytes(Path("copy.neff").read_bytes()[:-1])
    assert "delete" not in neff("notes.txt", "copy.neff", code=5, error="hint: name a compiled graph")


@pytest.mark.feature("U2")
def test_real_files_fit_the_screen(neff):
    files = sorted(real_dir("neff").glob("*.neff"))
    shown = neff(*files)
    lines = [line for line in shown.splitlines() if not line.startswith("file ")]
    assert max(map(len, lines)) <= 80
    assert shown.count("verified by its md5") == len(files)
