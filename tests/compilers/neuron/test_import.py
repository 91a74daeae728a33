"""Import: an existing Neuron cache is taken in, and the command line of import and export."""

import re
import threading

import pytest

from cachekit.compilers import registry
from cachekit.compilers.imported import known_modules
from cachekit.compilers.neuron.entries import STATES, scan
from cachekit.errors import UsageError
from cachekit.verbs.export import export_cache
from cachekit.verbs.imports import import_cache
from cachekit.verbs.records import show
from tests.compilers.neuron.neuron_import_cases import WHOLE, added, cache, judge, store  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_trees import COMPILER, OTHER, check, make, module_name, neff, tree
from tests.support.cli_session import golden
from tests.support.standins import overwrite

pytest_plugins = ["tests.support.cli_session"]


@pytest.mark.feature("K5")
def test_an_import_takes_what_is_finished_and_tells_of_the_rest(store, cache):
    before = tree(cache)
    imported = import_cache(store, cache)
    assert added(imported) == WHOLE
    assert tree(cache) == before
    assert {(item.module.rpartition("_")[2][:19], item.state) for item in imported.left} == {
        (str(10**18 + seed), state)
        for seed, state in [*enumerate(STATES), (12, "refused"), (13, "locked")]
        if state != "success"
    }
    assert all(item.reason for item in imported.left)
    assert [one.path.name for one in imported.unknown] == ["notes.txt"]
    rows = store.listed()
    assert sorted((row.recipe, row.directory, row.modules) for row in rows) == [
        ("import", OTHER, 1),
        ("import", COMPILER, 2),
    ]
    for group in imported.records:
        shown = show(store, group.key)
        assert shown.whole
        assert shown.key_of_ingredients == group.key
        assert shown.hard["import.compiler"] == group.compiler


def test_a_second_import_adds_nothing(store, cache, monkeypatch):
    first = import_cache(store, cache)
    before = tree(store.layout.home)
    # What the store has is not even read again.
    judged = []
    monkeypatch.setattr("cachekit.compilers.neuron.fit.check", lambda path, said: judged.append(path) or check(path))
    again = import_cache(store, cache)
    assert added(again) == []
    assert sorted(name for group in again.records for name in group.known) == WHOLE
    assert again.left == first.left
    assert len(judged) == 1  # the damaged one
    assert {name: raw for name, raw in tree(store.layout.home).items() if "verified" not in name} == {
        name: raw for name, raw in before.items() if "verified" not in name
    }


def test_a_damaged_record_is_imported_anew(store, cache):
    first = import_cache(store, cache)
    blob = max((path for path in store.layout.blobs.glob("*/*")), key=lambda path: path.stat().st_size)
    overwrite(blob, b"damaged")
    again = import_cache(store, cache)
    assert added(again)
    assert set(added(again)) <= set(WHOLE)
    assert {group.key for group in again.records} - {""} <= {group.key for group in first.records}
    assert set(known_modules(store, registry.adapter("neuron"))) == set(WHOLE)


def test_a_dry_run_says_the_same_and_writes_nothing(store, cache):
    planned = import_cache(store, cache, dry_run=True)
    assert not store.layout.home.exists()
    assert planned.as_dict() | {"dry_run": False} == import_cache(store, cache).as_dict()


@pytest.mark.feature("S7")
def test_what_is_none_of_a_modules_files_and_links_out_of_it_are_left(tmp_path, store):
    (tmp_path / "secret").write_text("password")
    beside = make(tmp_path / "cache", seed=1)
    (beside / "secret.txt").symlink_to(tmp_path / "secret")
    linked = make(tmp_path / "cache", seed=2)
    (linked / "model.hlo_module.pb").unlink()
    (linked / "model.hlo_module.pb").symlink_to(tmp_path / "secret")
    planned = import_cache(store, tmp_path / "cache", dry_run=True)
    imported = import_cache(store, tmp_path / "cache")
    assert planned.as_dict() | {"dry_run": False} == imported.as_dict()
    assert added(imported) == [f"{COMPILER}/{module_name(1)}"]
    assert [(one.path, one.reason) for one in imported.unknown] == [
        (beside / "secret.txt", "in a module's folder, and not one of its files")
    ]
    assert [item.path for item in imported.left] == [linked]
    assert not any(path.read_bytes() == b"password" for path in store.layout.blobs.glob("*/*"))


def test_one_compilers_folder_can_be_imported(store, cache):
    assert added(import_cache(store, cache / OTHER)) == [f"{OTHER}/{module_name(11)}"]


@pytest.mark.parametrize("what", ["missing", "empty", "file", "other"])
def test_a_folder_that_is_no_cache(tmp_path, store, what):
    folder = tmp_path / "cache"
    if what == "file":
        folder.write_text("x")
    elif what != "missing":
        folder.mkdir()
    if what == "other":
        (folder / "model.pt").touch()
    with pytest.raises(UsageError) as caught:
        import_cache(store, folder)
    assert caught.value.hint
    assert not store.layout.home.exists()


@pytest.mark.feature("S2")
def test_an_import_beside_a_live_compile_takes_only_whole_modules(tmp_path, store):
    """A process that knows nothing of us compiles, fails and locks while we import, over and over."""
    root, stop = tmp_path / "cache", threading.Event()
    make(root, seed=0)

    def compile_all():
        seed = 1
        while not stop.is_set() and seed < 120:
            folder = make(root, "locked", seed)
            raw = neff(seed)
            with (folder / "model.neff").open("wb") as out:
                for start in range(0, len(raw), 4096):
                    out.write(raw[start : start + 4096])
                    out.flush()
            if seed % 3:
                (folder / "model.done").touch()
            else:
                (folder / "model.neff").unlink()
                (folder / "model.log").write_text("failed")
            (folder / "model.hlo_module.pb.lock").unlink()
            seed += 1

    thread = threading.Thread(target=compile_all)
    thread.start()
    try:
        for _ in range(3):
            import_cache(store, root)
    finally:
        stop.set()
        thread.join()
    import_cache(store, root)
    whole = {entry.module for entry in scan(root).entries if entry.finished}
    assert set(known_modules(store, registry.adapter("neuron"))) == whole
    export_cache(store, tmp_path / "out")
    assert tree(tmp_path / "out") == {name: raw for name, raw in tree(root).items() if name.rpartition("/")[0] in whole}


# The command line


@pytest.fixture
def stored(command, tmp_path):
    """Runs `cachekit store`; gives stdout, with another name for the folder, and stderr."""

    def run(*arguments, code=0):
        answer = command("store", *map(str, arguments), code=code)
        return answer.out.replace(str(tmp_path), "TMP"), answer.err

    return run


@pytest.mark.feature("U2")
def test_the_command_line_imports_and_exports(stored, cache, tmp_path):
    golden("import-dry-run", stored("import", cache, "--dry-run")[0])
    golden("import", stored("import", cache)[0])
    golden("import-again", stored("import", cache)[0])
    make(tmp_path / "out", "locked", 10)
    golden("export-dry-run", stored("export", tmp_path / "out", "--all", "--dry-run")[0])
    golden("export", stored("export", tmp_path / "out", "--all")[0])
    shown = stored("ls")[0]
    assert re.search(rf"import +{re.escape(COMPILER)} +2 ", shown)
