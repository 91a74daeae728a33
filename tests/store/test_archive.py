"""Archives: the same bytes for the same tree, and the same tree out of them."""

import hashlib
import os
import stat
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.store.archive import unpack
from tests.store.archive_trees import TREE, grow, member, packed, put, tar, tree_of, yard  # noqa: F401 - fixtures

pytestmark = pytest.mark.versions

# The same bytes for the same tree


def test_order_and_times_and_permissions_of_others_do_not_matter(tmp_path):
    one = grow(tmp_path / "one")
    two = grow(tmp_path / "two", order=list(reversed(TREE)))
    for number, path in enumerate(sorted(two.rglob("*"))):
        os.utime(path, (number, 1_000_000_000 + number * 86_400))
        if path.is_file():
            path.chmod(0o600)
    names = list(TREE)
    raw = packed(one, names)
    assert packed(one, reversed(names)) == raw
    assert packed(two, names) == raw
    assert packed(two, iter(names)) == raw


@pytest.mark.parametrize("change", ["content", "name", "executable", "missing", "more"])
def test_another_tree_gives_other_bytes(tmp_path, change):
    before = packed(grow(tmp_path / "t"))
    names = list(TREE)
    if change == "content":
        (tmp_path / "t/a.txt").write_bytes(b"hellp")
    elif change == "name":
        (tmp_path / "t/a.txt").rename(tmp_path / "t/b.txt")
        names[0] = "b.txt"
    elif change == "executable":
        (tmp_path / "t/a.txt").chmod(0o755)
    elif change == "missing":
        names.pop()
    else:
        (tmp_path / "t/more").touch()
        names.append("more")
    assert packed(tmp_path / "t", names) != before


def test_a_tree_of_this_kind_has_always_had_these_bytes(tmp_path):
    """Modules are known by the digest of their archive: other bytes would be other modules."""
    root = grow(tmp_path, {"a": b"1", "b/c": b"22"})
    assert (
        hashlib.sha256(packed(root, ["b/c", "a"])).hexdigest()
        == "91e5b2a4400455e44ee2dae8bd87eaa91399626674b10e0b023fd9e1cf612b0f"
    )


# There and back


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o777, 0o666, 0o000])
def test_no_more_than_the_executable_bit_is_taken_over(yard, mode):
    unpack(put(yard, tar(member("f", mode=mode))), yard / "in")
    found = stat.S_IMODE((yard / "in" / "f").stat().st_mode)
    assert found & 0o7022 == 0
    assert found & 0o600 == 0o600


NAMES = st.lists(st.text("ab.é -", min_size=1, max_size=4).filter(lambda s: s.strip(".")), min_size=1, max_size=3).map(
    "/".join
)


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.binary(max_size=1200), max_size=4))
def test_any_tree_is_packed_and_unpacked(tmp_path_factory, tree):
    folders = {name[:end] for name in tree for end, char in enumerate(name) if char == "/"}
    tree = {name: data for name, data in tree.items() if name not in folders}
    root = tmp_path_factory.mktemp("any")
    (root / "t").mkdir()
    raw = packed(grow(root / "s", tree), tree)
    (root / "a.tar").write_bytes(raw)
    assert unpack(root / "a.tar", root / "t") == sum(map(len, tree.values()))
    assert tree_of(root / "t") == tree
    assert packed(root / "t", tree) == raw


def test_archives_of_others_are_read(yard):
    """With folders as members of their own, and in tar's older formats."""
    for number, layout in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        target = yard / "in" / str(number)
        target.mkdir()
        folder = member("d", b"", type=tarfile.DIRTYPE, mode=0o755)
        assert unpack(put(yard, tar(folder, member("d/f", b"abc"), layout=layout)), target) == 3
        assert tree_of(target) == {"d/f": b"abc"}
