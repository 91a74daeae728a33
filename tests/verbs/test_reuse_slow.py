"""On real compiles: the nearest record saves graphs, the new record stands alone, a rebuild finds a tampered one."""

from __future__ import annotations

import shutil

import pytest
from msgspec import structs

from cachekit.events import Journal
from cachekit.store import Store, archive
from cachekit.store.record import File
from tests.support.processes import run_cachekit
from tests.support.real_machine import Machine, assert_compiled_nothing

pytestmark = pytest.mark.slow
EVALUATION = ("--set", "training.per_device_eval_batch_size=4")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine on which the recipe was warmed, and then one with another evaluation batch."""
    made = Machine(tmp_path_factory.mktemp("near"))
    made.recipe()
    first = made("warm", "tiny.yaml")
    second = made("warm", "tiny.yaml", *EVALUATION)
    assert (first["compiled"], first["reused"]) == (3, None)
    assert (second["compiled"], second["graphs"]) == (1, 3)
    assert (second["reused"]["key"], second["reused"]["graphs"]) == (first["key"], 2)
    (made.home / "v1" / "records").joinpath(first["directory"], "bert", f"{first['key']}.json").unlink()
    made.log.unlink()
    return made


def as_a_user(machine, *arguments):
    """What a person is shown who has 80 columns."""
    return run_cachekit(
        *arguments, folder=machine.work, environment={**machine.environment, "COLUMNS": "80"}, code=None
    )


@pytest.mark.feature("F1")
def test_the_record_that_reused_another_stands_alone(machine):
    assert_compiled_nothing(machine, machine("train", "tiny.yaml", *EVALUATION, "--require-warm"))


@pytest.mark.feature("M4")
def test_a_rebuild_gives_the_same_and_finds_a_tampered_entry(machine, tmp_path):
    done = machine("warm", "tiny.yaml", *EVALUATION, "--check-build")
    assert (done["status"], done["compiled"], done["differ"]) == ("same", 3, [])
    assert done["same"] > 20

    store = Store(machine.home, Journal(None, "test"))
    (record,) = store.records()
    tree = tmp_path / "tree"
    tree.mkdir()
    with store.reading(record.files[0]) as blob:
        archive.unpack(blob.location, tree, blob.through)
    kernel = min(tree.rglob("*.main.so"))
    raw = bytearray(kernel.read_bytes())
    raw[0x1100] ^= 1  # in the code
    kernel.write_bytes(raw)
    names = [path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()]
    with store.workspace() as workspace:
        packed = workspace / "tampered"
        with packed.open("wb") as target:
            sha256, size = archive.pack(tree, names, target)
        folder = record.modules[0].name.rpartition("/")[0]
        module = structs.replace(
            record.modules[0], name=f"{folder}/{sha256}.tar", files=(File(f"{sha256}.tar", size, sha256),)
        )
        store.publish(structs.replace(record, modules=(module,)), {sha256: packed})
    shutil.rmtree(tree)
    told = as_a_user(machine, "warm", "tiny.yaml", *EVALUATION, "--check-build")
    assert told.returncode == 5
    changed = kernel.relative_to(tree).as_posix()
    assert [line for line in told.stdout.splitlines() if "differs  " in line][1:] == [f"    differs  {changed}"]
    assert max(map(len, told.stdout.splitlines())) <= 80
    error, cause, hint = told.stderr.splitlines()[-3:]
    assert error.startswith("error[damaged]: compiling tiny here does not reproduce its record")
    assert cause.startswith("  cause: 1 of ")
    assert f" parts differ: {changed}; the record was made by " in cause
    assert hint == (f"  hint: cachekit warm tiny.yaml {' '.join(EVALUATION)} --recache puts a new one in its place")
