"""What a compiler loads lies where no other user of the host can change it, from its check until it is loaded.

The other users are real ones, in processes of their own.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.compilers.cachedir import cache_dir
from cachekit.errors import IntegrityError, StoreError
from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store.history import history, retire
from cachekit.store.layout import Layout
from cachekit.verbs.warm import warm
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.standins import WORKER, ProcessLauncher, StandIn, Watched, expected, make_record, publish, recipe
from tests.support.users import ANOTHER, ONE, as_user, known

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
TEAM = 65532
MADE = make_record()


@pytest.fixture
def temporary(public, monkeypatch):
    """A folder for everybody, as /tmp is."""
    folder = public / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def store_of(home, user, mode=0o755, group=None):
    """A store of a user, with a record; root makes it, and imports what others perhaps cannot reach."""
    before = os.umask(0o777 & ~mode)
    try:
        store = Store(home, Journal(None, "test"))
        publish(store, MADE)
        loaded(home)
        shutil.rmtree(store.layout.cache_dirs)
    finally:
        os.umask(before)
    for path in (home, *home.rglob("*")):
        os.chown(path, user, user if group is None else group)
    return home


def loaded(home, meanwhile=lambda _tree: None, compiler=StandIn):
    """What a compiler of this user finds in its cache dir, and where that is."""
    store = Store(home, Journal(None, "test"))
    base = home / "v1" / "cache_dirs"
    with cache_dir(store, compiler(), MADE[0], key=MADE[0].key, base=base) as made:
        meanwhile(made.tree)
        files = {path.name: path.read_bytes() for path in made.tree.glob("MODULE_1/*")}
        assert files == expected(MADE)
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in (made.tree, made.tree.parent, made.work)} == {0o700}
        return made.tree


def attacked(tree):
    """Another user tries to get at a compiler cache dir."""

    def attack():
        for attempt in (
            lambda: tree.rename(tree.with_name("other")),
            lambda: tree.parent.parent.rename(tree.parent.parent.with_name("other")),
            lambda: (tree / "MODULE_1" / "model-a.code").write_bytes(b"marker"),
            lambda: [*tree.iterdir()],
        ):
            with pytest.raises(PermissionError):
                attempt()

    as_user(ONE, attack)


@pytest.mark.feature("T8")
@ROOT_ONLY
def test_what_a_compiler_loads_nobody_else_can_exchange(public, temporary):
    tree = loaded(store_of(public / "home", ANOTHER), meanwhile=attacked)
    assert temporary in tree.parents, "whoever owns the store could exchange what lies there"


@pytest.mark.parametrize("splits", [True, False])
def test_a_compiler_that_splits_paths_is_given_none_with_a_space(public, temporary, splits):
    """Inductor's command line for a header has it unquoted: the C++ compiler takes it for two files."""
    home = public / "my home"
    publish(Store(home, Journal(None, "test")), MADE)
    compiler = type("Splitting", (StandIn,), {"splits_paths": splits})
    assert (temporary if splits else home) in loaded(home, compiler=compiler).parents


@pytest.mark.feature("T8")
@ROOT_ONLY
@pytest.mark.parametrize("variable", ["TMPDIR", "TEMP", "TMP"])
def test_a_temporary_folder_where_others_can_exchange_files_stops_the_run(public, temporary, monkeypatch, variable):
    """The C++ compiler runs what it writes there; a folder like /tmp has the sticky bit."""
    home = store_of(public / "home", 0)
    loaded(home)
    loose = public / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    monkeypatch.setenv(variable, str(loose))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(StoreError) as raised:
        loaded(home)
    assert f"the temporary folder {loose} is not used" in raised.value.message
    assert "every user of this machine can write to" in raised.value.cause
    assert raised.value.hint == f"chmod go-w {loose}"
    assert not [*loose.iterdir()]
    loose.chmod(0o1777)
    loaded(home)


@pytest.mark.feature("T8")
@pytest.mark.parametrize("variable", ["TMPDIR", "TEMP", "TMP"])
def test_a_recipes_temporary_folder_where_others_can_exchange_files_stops_the_run(tmp_path, variable):
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    me = Watched(tmp_path / "me")
    wanted = me.prepare(structs.replace(recipe(), environment={variable: str(loose)}))
    with pytest.raises(StoreError) as raised:
        warm(me.session, wanted)
    assert f"the temporary folder {loose} is not used" in raised.value.message
    loose.chmod(0o1777)
    assert warm(me.session, wanted).compiled


@pytest.mark.feature("T8")
@ROOT_ONLY
@pytest.mark.parametrize("taken", ["folder", "link", "below"])
def test_a_place_that_another_user_took_beforehand_stops_the_run_with_the_command_that_helps(public, temporary, taken):
    home = store_of(public / "home", ONE)
    theirs = temporary / f"cachekit-{ANOTHER}"

    def take():
        if taken == "link":
            (temporary / "elsewhere").mkdir(mode=0o777)
            theirs.symlink_to(temporary / "elsewhere")
        else:
            theirs.mkdir()
            theirs.chmod(0o777)
            if taken == "below":
                (theirs / "cache_dirs").mkdir()
                (theirs / "cache_dirs").chmod(0o777)

    as_user(ONE, take)

    def runs():
        with pytest.raises(StoreError) as caught:
            loaded(home)
        assert caught.value.cause
        return caught.value.hint

    hint = as_user(ANOTHER, runs)
    assert hint == 'export CACHEKIT_COMPILER_CACHE_DIR="$(mktemp -d)"'
    assert not [path for path in temporary.rglob("*") if path.is_file()], "nothing was put where they can reach it"

    def follows():
        line = f'{hint}; printf %s "$CACHEKIT_COMPILER_CACHE_DIR"'
        base = subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True).stdout
        store, copies = Store(home, Journal(None, "test")), tempfile.mkdtemp()
        tempfile.tempdir = copies  # of files of a store that is another's
        with cache_dir(store, StandIn(), MADE[0], key=MADE[0].key, base=Path(base)) as made:
            assert {path.name: path.read_bytes() for path in made.tree.glob("MODULE_1/*")} == expected(MADE)

    as_user(ANOTHER, follows)


@ROOT_ONLY
def test_a_store_that_a_group_shares_is_read_through_copies(public, temporary, monkeypatch):
    home = store_of(public / "home", ONE, 0o2775, group=TEAM)
    known(monkeypatch, {ONE: [TEAM]})

    def reads():
        store = Store(home, Journal(None, "test"))
        assert store.owners.standing.whose == "group"
        tree = loaded(home)
        assert temporary in tree.parents
        with store.reading(MADE[0].files[0]) as blob:
            return f"{blob.path} {stat.S_IMODE(blob.path.parent.stat().st_mode):o}"

    where, mode = as_user(ANOTHER, reads, groups=[TEAM]).split()
    assert (temporary in Path(where).parents, mode) == (True, "700")


@pytest.mark.feature("T8")
@ROOT_ONLY
def test_what_was_checked_is_what_is_loaded(public, temporary):
    home = store_of(public / "home", ONE)
    file = MADE[0].files[0]
    store = Store(home, Journal(None, "test"))
    blob = store.layout.blob(file.sha256)

    def exchange():
        blob.unlink()
        blob.write_bytes(b"marker" * 500)

    with store.reading(file) as checked:
        as_user(ONE, exchange)
        assert checked.path.read_bytes() == expected(MADE)[file.path]
    with pytest.raises(IntegrityError), store.reading(file):
        pytest.fail("what does not fit is not given out")


def test_folders_of_a_run_are_closed_and_its_files_too(tmp_path):
    seen = {}

    def look(paths):
        seen.update((path, stat.S_IMODE(path.stat().st_mode)) for path in paths)

    class Looks(ProcessLauncher):
        def run(self, job, *rest, **named):
            result = super().run(job, *rest, **named)
            work = Path(job.events).parent
            seen.update(
                {path: stat.S_IMODE(path.stat().st_mode) for path in (*work.parents[:2], work, work / "job.json")}
            )
            return result

    home = tmp_path / "home"
    before = os.umask(0)
    try:
        watched = Watched(home, journal=Journal(Layout(home).journal, "warm"))
        session = structs.replace(watched.session, launcher=lambda: Looks(WORKER))
        warm(session, watched.prepare())
        session.journal.close()
    finally:
        os.umask(before)
    root = home / "v1"
    for folder in (Layout(home).journal, root / "logs"):
        look([folder, *folder.rglob("*")])
    assert {"job.json", "logs", str(os.geteuid()), "cache_dirs"} <= {path.name for path in seen}
    assert {mode for path, mode in seen.items() if path.suffix in {".json", ".jsonl", ".log"}} == {0o600}
    assert {mode for path, mode in seen.items() if not path.suffix} == {0o700}


@ROOT_ONLY
def test_in_a_store_that_a_group_shares_each_member_has_journals_and_figures_of_their_own(public):
    home = store_of(public / "home", ONE, 0o775, group=TEAM)
    (home / "v1").chmod(0o2775)

    def run(verb):
        def act():
            os.umask(0o002)
            store = Store(home, Journal(Layout(home).journal, verb))
            store.journal.emit("plan", recipe="tiny", key=MADE[0].key, status="hit", remote="local")
            store.journal.close()
            before = history(store.layout)
            assert not store.journal.failure
            assert before.problems == ()
            assert retire(store.layout, 0, time.time() + 60) == 1
            assert history(store.layout).runs.keys() == before.runs.keys()
            Journal(store.layout.journal, verb).emit("plan")
            place = store.layout.journal
            modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}
            assert modes == {True: 0o700, False: 0o600}
            return " ".join(counted.verb for counted in before.runs.values())

        return act

    assert as_user(ONE, run("warm"), groups=[TEAM]) == "warm"
    assert as_user(ANOTHER, run("train"), groups=[TEAM]) == "train", "what another did is closed to this one"
    assert {path.name for path in (home / "v1" / "journal").iterdir()} == {str(ONE), str(ANOTHER)}


@ROOT_ONLY
@pytest.mark.parametrize("taken", ["folder", "link"])
def test_a_journal_goes_nowhere_where_another_member_took_its_place(public, taken):
    home = store_of(public / "home", ONE, 0o775, group=TEAM)
    place = home / "v1" / "journal" / str(ANOTHER)

    def take():
        os.umask(0)
        place.parent.mkdir()
        (place if taken == "folder" else place.parent / "elsewhere").mkdir(mode=0o777)
        if taken == "link":
            place.symlink_to("elsewhere")

    def run():
        journal = Journal(place, "warm")
        journal.emit("plan")
        return journal.failure

    as_user(ONE, take, groups=[TEAM])
    assert as_user(ANOTHER, run, groups=[TEAM])
    assert not [path for path in place.parent.rglob("*") if path.is_file()]
