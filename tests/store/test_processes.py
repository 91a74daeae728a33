"""Many processes at one store: all that is published is found, and nobody sweeps what is in use."""

import os

import pytest

from cachekit.store.durable import Scratch
from tests.store.store_cases import home  # noqa: F401 - fixtures
from tests.support.processes import side_by_side
from tests.support.standins import Watched, expected, find, garbage_of, make_record, publish, served

pytestmark = pytest.mark.versions


@pytest.mark.feature("S2")
def test_many_processes_may_publish_one_key_at_once(home):
    """Any number of writers are harmless: 16 write other bytes for one key, each several times."""

    def work(number):
        store = Watched(home).store
        made = [
            make_record(1, (f"a{number}", "shared"), created=f"2026-01-02T03:04:{number:02}+00:00") for _ in range(3)
        ]
        for pair in made:
            publish(store, pair)
            found = find(store, pair[0])
            assert served(store, found)
        return True

    assert side_by_side(16, work) == [True] * 16
    watched = Watched(home)
    (record,) = watched.store.records()
    number = int(record.provenance.created[17:19])
    made = make_record(1, (f"a{number}", "shared"), created=record.provenance.created)
    assert find(watched.store, record) == made[0]
    assert served(watched.store, record) == expected(made)
    assert watched.damage() == []
    assert garbage_of(home) == set()


def test_nobody_sweeps_a_folder_that_is_in_use(tmp_path):
    """Each entry sweeps, so that locks are found, held and removed in every order; old filelocks hold removed files."""

    def work(number):
        for _ in range(150):
            with Scratch(tmp_path / "base") as folder:
                (folder / "file").write_text(str(number))
                assert (folder / "file").read_text() == str(number)
                assert folder.with_name(f"{folder.name}.lock").exists(), "else nobody would sweep it after a kill"
        return True

    assert side_by_side(8, work) == [True] * 8
    assert list((tmp_path / "base").iterdir()) == []


def test_readers_beside_a_writer_see_the_old_record_or_the_new(home):
    states = [make_record(1, (f"state {number}",)) for number in range(2)]
    publish(Watched(home).store, states[0])

    def work(number):
        watched = Watched(home)
        if number == 0:
            for turn in range(30):
                publish(watched.store, states[turn % 2])
            return [True, []]
        seen = [find(watched.store, states[0][0]) for _ in range(60)]
        return [all(record in (states[0][0], states[1][0]) for record in seen), watched.damage()]

    assert side_by_side(5, work) == [[True, []]] * 5


def test_a_folder_lives_as_long_as_its_process(tmp_path):
    base = tmp_path / "tmp"
    with Scratch(base) as mine:
        (mine / "file").write_bytes(b"mine")

        def other(number):
            with Scratch(base) as theirs:  # sweeps on entry
                (theirs / "file").write_bytes(b"theirs")
            return (mine / "file").read_bytes().decode()

        assert side_by_side(4, other) == ["mine"] * 4

        def killed(number):
            Scratch(base, "killed").__enter__()
            os._exit(9)

        assert side_by_side(1, killed) == [None]
        assert len([path for path in base.iterdir() if path.name.startswith("killed")]) == 2
        with Scratch(base):
            assert not [path for path in base.iterdir() if path.name.startswith("killed")], "swept"
        assert (mine / "file").read_bytes() == b"mine"
    assert list(base.iterdir()) == []
