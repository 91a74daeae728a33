"""Modules out of a compiler cache dir: only what is finished and whole, beside strangers' processes."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.neuron.entries import STATES, scan
from cachekit.compilers.neuron.modules import collect, restore
from tests.compilers.neuron.neuron_trees import (  # noqa: F401 - fixtures
    COMPILER,
    FILES,
    OTHER,
    check,
    clean,
    entry_of,
    files_of,
    make,
    make_real,
    module_name,
    neff,
    root,
    taken,
    tree,
    workspace,
)


@pytest.mark.feature("F6")
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), lambda _: b""])
def test_a_damaged_neff_is_never_taken(root, workspace, damage):
    folder = make(root, seed=1)
    make(root, seed=2)
    (folder / "model.neff").write_bytes(damage((folder / "model.neff").read_bytes()))
    found = taken(root, workspace)
    assert [module.name for module in found.harvest.modules] == [f"{COMPILER}/{module_name(2)}"]
    assert "its digest does not match" in found.left[0].reason
    # Nor does anything of it stay in the workspace.
    assert {path for path in workspace.rglob("*") if path.is_file()} == set(found.harvest.files.values())


def test_equal_files_are_copied_once(root, workspace):
    make(root, seed=1)
    make(root, seed=2)
    harvest = taken(root, workspace).harvest
    # Two NEFFs, two graphs; one list of flags, one empty marker.
    assert len(harvest.files) == 6
    assert sum(path.is_file() for path in workspace.rglob("*")) == 6


@pytest.mark.parametrize("change", ["lock", "gone", "graph", "replaced"])
def test_a_module_that_somebody_works_on_is_left(root, workspace, change):
    folder = make(root)

    def judge(path, _):
        if change == "lock":
            (folder / "model.hlo_module.pb.lock").touch()
        elif change == "gone":
            (folder / "model.done").unlink()
        elif change == "graph":
            (folder / "model.hlo.pb").touch()
        else:
            (folder / "new").write_bytes(neff(5))
            (folder / "new").replace(folder / "model.neff")
        return check(path)

    found = taken(root, workspace, judge)
    assert found.harvest is None
    assert "changed" in found.left[0].reason


def test_a_pipe_does_not_stop_us(root, workspace):
    folder = make(root)
    entry = entry_of(folder)
    (folder / "model.hlo_module.pb").unlink()
    os.mkfifo(folder / "model.hlo_module.pb")
    found = collect([entry], workspace, check)
    # A pipe is no regular file: it is none of the module's files any more.
    assert {file.path for file in found.harvest.modules[0].files} == set(FILES["success"]) - {"model.hlo_module.pb"}


def test_a_full_workspace_is_an_error_and_no_skip(root, workspace):
    make(root)
    entries = scan(root).entries
    workspace.rmdir()
    with pytest.raises(OSError):
        collect(entries, workspace, check)


@pytest.mark.feature("S4")
@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([*STATES, "damaged", "locked-success"]), st.booleans()), max_size=10))
def test_out_and_back_is_the_same_and_only_what_is_whole(tmp_path_factory, made):
    base = tmp_path_factory.mktemp("case")
    root, workspace, back = base / "root", base / "work", base / "back"
    root.mkdir()
    workspace.mkdir()
    expected = {}
    for seed, (state, other) in enumerate(made):
        compiler = OTHER if other else COMPILER
        kind = "success" if state in {"damaged", "locked-success"} else state
        folder = make(root, kind, seed, compiler)
        if state == "damaged":
            (folder / "model.neff").write_bytes(neff(seed)[:-7])
        elif state == "locked-success":
            (folder / "model.hlo_module.pb.lock").touch()
        elif state == "success":
            expected |= {f"{compiler}/{folder.name}/{name}": raw for name, raw in tree(folder).items()}
    found = taken(root, workspace)
    for module in found.harvest.modules if found.harvest else ():
        assert restore(module, files_of(module, found.harvest), back, check=check).outcome == "restored"
    assert (tree(back) if back.exists() else {}) == expected
    assert clean(root)
    names = {path.split("/")[1] for path in expected}
    assert len(names) + len(found.left) == len(made)


# Links, and what is none of a module's files


@pytest.mark.feature("S7")
@pytest.mark.parametrize("file", ["model.hlo_module.pb", "compile_flags.json", "model.done", "wrapped_neff.hlo"])
def test_a_link_out_of_the_module_is_never_followed(root, workspace, tmp_path, file):
    """Whoever can write to a remote would have others publish what only they may read."""
    secret = tmp_path / "secret"
    secret.write_text("password")
    folder = make(root)
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to(secret)
    found = taken(root, workspace)
    assert found.harvest is None
    assert file in found.left[0].reason
    assert not any(path.is_file() for path in workspace.rglob("*"))


def test_a_linked_neff_that_is_none_is_not_taken(root, workspace, tmp_path):
    (tmp_path / "secret").write_text("password")
    folder = make(root)
    (folder / "model.neff").unlink()
    (folder / "model.neff").symlink_to(tmp_path / "secret")
    assert taken(root, workspace).harvest is None


def test_links_within_the_module_are_taken_as_bytes(root, workspace):
    folder = make(root)
    (folder / "model.hlo_module.pb").rename(folder / "model.hlo.pb")
    (folder / "model.hlo_module.pb").symlink_to("./model.hlo.pb")
    harvest = taken(root, workspace).harvest
    raw = {file.path: harvest.files[file.sha256].read_bytes() for file in harvest.modules[0].files}
    assert raw["model.hlo_module.pb"] == raw["model.hlo.pb"] == b"graph 0"


def test_links_as_optimum_neuron_makes_them_are_taken_as_bytes(root, workspace, tmp_path):
    """It fetches the NEFF and the mark from its Hub cache, and links them into the module."""
    folder = make(root)
    for name in ("model.neff", "model.done"):
        (folder / name).rename(tmp_path / name)
        (tmp_path / f"snapshot-{name}").symlink_to(tmp_path / name)
        (folder / name).symlink_to(tmp_path / f"snapshot-{name}")
    harvest = taken(root, workspace).harvest
    assert {file.path for file in harvest.modules[0].files} == set(FILES["success"])


def test_what_is_none_of_a_modules_files_is_left_and_told(root, workspace):
    folder = make(root)
    (folder / "core.dump").touch()
    os.truncate(folder / "core.dump", 3 << 30)
    (folder / "notes").mkdir()
    found = taken(root, workspace)
    assert {file.path for file in found.harvest.modules[0].files} == set(FILES["success"])
    assert found.beside == (folder / "core.dump", folder / "notes")
