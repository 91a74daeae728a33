"""A store whose process is killed at its n-th call."""

from tests.support.standins import Watched, expected, find, make_record, served

OLDER = "2026-01-01T00:00:00+00:00"


def assert_whole(home, *made):
    """Every record that is listed is one of these and gives its bytes; nothing is reported as damaged."""
    watched = Watched(home)
    by_key = {}
    for pair in made:
        by_key.setdefault(pair[0].key, []).append(pair)
    for listed in watched.store.records():
        record, contents = next(pair for pair in by_key[listed.key] if pair[0] == listed)
        assert find(watched.store, listed) == record
        assert served(watched.store, record) == expected((record, contents))
    assert watched.damage() == []


OLD = make_record(1, ("old", "shared"), created=OLDER)
NEW = make_record(1, ("new", "shared"))
OTHER = make_record(2, ("other", "shared"))
