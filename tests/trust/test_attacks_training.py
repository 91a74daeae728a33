"""Attacks by where a training writes, and by checkpoints, which are unpickled."""

import os
from pathlib import Path

import pytest

from cachekit.api import Cache
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.training import checkpoints
from cachekit.training.checkpoints import checkpoint
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.users import ANOTHER, ONE, as_user, known
from tests.training.made_checkpoints import make
from tests.trust.attack_cases import (
    tmp,  # noqa: F401 - a fixture
)

pytestmark = [
    pytest.mark.feature("T2"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
]


@pytest.mark.parametrize("resume", ["auto", "runs/bert/checkpoint-4"])
def test_another_users_checkpoint_in_a_folder_of_everybody_is_not_gone_on_from(tmp, resume):
    make(tmp / "runs" / "bert" / "checkpoint-4")
    assert checkpoint(resume, Path("runs/bert"), Journal(None, "test")).endswith("runs/bert/checkpoint-4")
    for path in (tmp / "runs", *(tmp / "runs").rglob("*")):
        os.chown(path, ONE, ONE)
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled"):
        checkpoint(resume, Path("runs/bert"), Journal(None, "test"))


@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("way", ["folder", "link", "dangling link", "link in a folder"])
def test_no_training_writes_where_another_users_link_or_folder_leads(tmp, tmp_path, mode, way):
    """It would rotate checkpoints away there. What this user made is written to where nobody else can rename it."""
    tmp.chmod(mode)
    cache, runs, precious = Cache(home=tmp_path / "home"), tmp / "runs", tmp_path / "precious"
    if way != "dangling link":
        (precious / "checkpoint-1").mkdir(parents=True)
    planted = runs
    if way in {"folder", "link in a folder"}:
        runs.mkdir()
        if way != "folder":
            (runs / "mine").symlink_to(precious)
    else:
        planted = runs / "mine"
        runs.mkdir()
        runs.chmod(mode)
        planted.symlink_to(precious)
    if mode == 0o777:
        with pytest.raises(UsageError, match="is not written to") as raised:
            cache.plan_train("bert", output_dir="runs/mine")
        assert raised.value.hint.endswith(f"chmod go-w {tmp}")
    elif way != "dangling link":
        cache.plan_train("bert", output_dir="runs/mine")
    os.chown(planted, ONE, ONE, follow_symlinks=False)
    with pytest.raises(UsageError, match="is not written to") as raised:
        cache.plan_train("bert", output_dir="runs/mine")
    assert str(planted) in raised.value.cause
    assert "another user" in raised.value.cause
    cache.plan_train("bert", output_dir=tmp_path / "own" / "mine")
    assert [path.name for path in precious.rglob("*")] == ["checkpoint-1"] * (way != "dangling link")


@pytest.mark.parametrize("name", ["config.json", "checkpoint-5", "checkpoint-5/global_step5/optimizer.pt"])
def test_no_training_writes_through_what_another_user_made_in_its_output_folder(tmp, tmp_path, name):
    """Transformers opens `config.json` by its name, and `optimizer.pt` in a checkpoint's folder, which may be links.

    The folder may have been open to others before.
    """
    cache, output, precious = Cache(home=tmp_path / "home"), tmp / "out", tmp_path / "precious"
    (output / name).parent.mkdir(parents=True)
    precious.write_text("thesis")
    if name == "checkpoint-5":
        (output / name).mkdir()
        (output / name / "optimizer.pt").symlink_to(precious)
    else:
        (output / name).symlink_to(precious)
    cache.plan_train("bert", output_dir=output)
    os.chown(output / name, ONE, ONE, follow_symlinks=False)
    with pytest.raises(UsageError, match="is not written to") as raised:
        cache.plan_train("bert", output_dir=output)
    assert str(output / name) in raised.value.cause
    assert "another user" in raised.value.cause


@pytest.mark.parametrize("which", [".", "checkpoint-5", "checkpoint-5/global_step5"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o1775])
def test_no_training_writes_to_a_folder_in_which_others_could_make_a_link_meanwhile(tmp, tmp_path, which, mode):
    """A link of this user's own they can move there, too. In mode 775 the members of another group are the others."""
    cache, output = Cache(home=tmp_path / "home"), tmp / "out"
    (output / "checkpoint-5" / "global_step5").mkdir(parents=True)
    cache.plan_train("bert", output_dir=output)
    os.chown(output / which, 0, ONE)
    (output / which).chmod(mode)
    with pytest.raises(UsageError, match="is not written to") as raised:
        cache.plan_train("bert", output_dir=output)
    assert f"can write to {output / which} (mode {mode:o})" in raised.value.cause
    if not (which == "." and mode & 0o1000):  # as `/tmp`, which stays everybody's
        assert raised.value.hint.endswith(f"chmod go-w {output / which}")
    (output / which).chmod(0o755)
    cache.plan_train("bert", output_dir=output)


@pytest.mark.parametrize("there", [True, False])
def test_what_a_training_would_make_for_another_group_is_refused_before_it_compiles(tmp, tmp_path, monkeypatch, there):
    """A folder of the owner of the working directory passes its group on to folders, and the umask lets that write."""
    cache, work, team = Cache(home=tmp_path / "home"), tmp_path / "work", 64321
    output = work if there else work / "runs" / "out"
    work.mkdir()
    os.chown(work, ONE, team)
    work.chmod(0o2775)
    monkeypatch.chdir(work)
    before = os.umask(0o002)
    try:
        with pytest.raises(UsageError, match="is not written to") as raised:
            cache.plan_train("bert", output_dir=output)
        assert f"the group {team} can write to {output}" in raised.value.cause
        assert raised.value.hint.endswith("umask 022")
        os.umask(0o022)
        cache.plan_train("bert", output_dir=output)
    finally:
        os.umask(before)
    assert not any(work.iterdir())


@pytest.mark.parametrize("way", ["output", "checkpoint", "link", "link inside", "dangling link inside"])
def test_no_training_writes_to_another_users_own_folder(tmp, tmp_path, way):
    """Its owner may put a link there at any time. Neither may a link of this user's own lead there."""
    cache, theirs, output = Cache(home=tmp_path / "home"), tmp_path / "theirs", tmp_path / "out"
    theirs.mkdir()
    if way == "link":
        output.symlink_to(theirs)
    elif "inside" in way:
        output.mkdir()
        (output / "checkpoint-60").symlink_to(theirs / "new" if "dangling" in way else theirs)
    else:
        output = theirs
    folders = {"output_dir": output}
    if way == "checkpoint":
        folders = {"output_dir": tmp_path / "own", "checkpoint_dir": output}
    cache.plan_train("bert", **folders)
    os.chown(theirs, ONE, ONE)
    with pytest.raises(UsageError, match="is not written to") as raised:
        cache.plan_train("bert", **folders)
    assert f"{theirs} belongs to another user" in raised.value.cause


def test_those_with_whom_one_works_may_have_made_what_lies_in_an_output_folder(tmp, tmp_path, monkeypatch):
    """A runner of the uid 1001 whose checkout is mounted into a container, and a group that shares the folder."""
    cache, output, team = Cache(home=tmp_path / "home"), tmp_path / "checkout" / "out", 64321
    made = make(output / "checkpoint-4")
    for path in (output.parent, output, made, *made.iterdir()):
        os.chown(path, ONE, ONE)
    monkeypatch.chdir(output.parent)
    cache.plan_train("bert", output_dir=output)
    os.chown(output.parent, 0, team)
    known(monkeypatch, {ONE: [team]})
    monkeypatch.setattr(os, "getgroups", lambda: [team])
    for path, mode in ((output.parent, 0o2775), (output, 0o2775)):
        os.chown(path, 0, team)
        path.chmod(mode)
    cache.plan_train("bert", output_dir=output)
    os.chown(made, ANOTHER, ANOTHER)
    with pytest.raises(UsageError, match="is not written to"):
        cache.plan_train("bert", output_dir=output)


@pytest.mark.parametrize("resume", ["auto", "runs/bert/checkpoint-4"])
@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("which", ["checkpoint-4", "."])
def test_a_checkpoint_in_a_folder_that_others_can_write_to_is_not_gone_on_from(tmp, resume, mode, which):
    """They can add a pickle, or put another file or folder of this user's in the place of one."""
    make(tmp / "runs" / "bert" / "checkpoint-4")
    opened = tmp / "runs" / "bert" / which
    opened.chmod(mode)
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled") as raised:
        checkpoint(resume, Path("runs/bert"), Journal(None, "test"))
    assert f"every user of this machine can write to {opened}" in raised.value.cause
    opened.chmod(0o755)
    assert checkpoint(resume, Path("runs/bert"), Journal(None, "test")).endswith("runs/bert/checkpoint-4")


@pytest.mark.parametrize("way", ["a file", "another user's file", "an empty folder", "a linked folder"])
def test_all_that_a_checkpoint_leads_to_is_asked(tmp, tmp_path, way):
    made = make(tmp / "runs" / "checkpoint-4")
    (made / "shards").mkdir()
    (made / "again").symlink_to(".")
    (tmp_path / "elsewhere").mkdir()
    (made / "linked").symlink_to(tmp_path / "elsewhere")
    assert checkpoint("auto", tmp / "runs", Journal(None, "test")) == str(made)
    opened = {"a linked folder": tmp_path / "elsewhere", "an empty folder": made / "shards"}.get(
        way, made / "optimizer.pt"
    )
    os.chown(opened, ONE if way == "another user's file" else 0, ONE)
    opened.chmod(0o775)
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled") as raised:
        checkpoint("auto", tmp / "runs", Journal(None, "test"))
    assert ("belongs to another user" if way == "another user's file" else "can write to") in raised.value.cause


def test_a_checkpoint_that_this_user_may_not_read_is_not_passed_over(public):
    for number in (4, 8):
        make(public / "runs" / f"checkpoint-{number}")
    (public / "runs" / "checkpoint-8" / "optimizer.pt").chmod(0o600)
    with pytest.raises(AssertionError, match=r"optimizer\.pt cannot be read"):
        as_user(ONE, lambda: checkpoint("auto", public / "runs", Journal(None, "test")))


@pytest.mark.parametrize("resume", ["auto", "runs/bert/checkpoint-4"])
@pytest.mark.parametrize("works", ["there", "below", "elsewhere"])
def test_no_checkpoint_is_gone_on_from_that_another_user_puts_in_place_with_a_folder_above(
    public, monkeypatch, resume, works
):
    """A clone of their repository, say: all of it is this user's."""
    scratch, runs = public / "scratch" / "work", Path("runs/bert")
    make(scratch / "runs" / "bert" / "checkpoint-4")
    make(scratch / "clone" / "bert" / "checkpoint-4")
    monkeypatch.chdir({"there": scratch, "below": scratch / "runs"}.get(works, public))
    runs = Path(os.path.relpath(scratch / runs))
    resume = resume if resume == "auto" else str(runs / "checkpoint-4")
    scratch.parent.chmod(0o755)
    assert Path(checkpoint(resume, runs, Journal(None, "test"))).samefile(runs / "checkpoint-4")
    scratch.chmod(0o777)
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled"):
        checkpoint(resume, runs, Journal(None, "test"))
    as_user(ONE, lambda: (scratch / "runs").rename(scratch / "old"))
    as_user(ONE, lambda: (scratch / "clone").rename(scratch / "runs"))
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled") as raised:
        checkpoint(resume, runs, Journal(None, "test"))
    assert raised.value.hint.endswith(f"chmod go-w {scratch}")
    assert f"every user of this machine can write to {scratch} (mode 777)" in raised.value.cause
    (scratch / "runs").rename(scratch / "clone")
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled"):
        checkpoint("auto", scratch / "runs" / "bert", Journal(None, "test"))  # at the first start, before there is one


def test_a_checkpoint_lies_below_folders_of_ones_own_or_of_a_volume(tmp, tmp_path, monkeypatch):
    """A volume's owner is a number of its own where the server says so (EFS access points), and mounted by choice."""
    volume, state = tmp_path / "volume", os.fstat
    made = make(volume / "runs" / "checkpoint-4")
    for path in (volume, made.parent, made, *made.iterdir()):
        os.chown(path, ONE, ONE)
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled") as raised:
        checkpoint(str(made), made.parent, Journal(None, "test"))
    assert raised.value.cause.startswith(f"{volume} belongs to another user")
    monkeypatch.chdir(volume)
    assert checkpoint("auto", Path("runs"), Journal(None, "test")) == "runs/checkpoint-4"
    monkeypatch.chdir(tmp)

    def mounted(handle):
        found = state(handle)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]]) if found.st_uid in {ONE, ANOTHER} else found

    monkeypatch.setattr(os, "fstat", mounted)
    monkeypatch.setattr(os.path, "samestat", lambda one, other: one.st_ino == other.st_ino)
    assert checkpoint(str(made), made.parent, Journal(None, "test")) == str(made)
    os.chown(made, ANOTHER, ANOTHER)
    with pytest.raises(UsageError, match="is not read: a checkpoint is unpickled"):
        checkpoint(str(made), made.parent, Journal(None, "test"))


def test_sagemaker_may_copy_checkpoints_into_a_jobs_container_with_any_mode(tmp, tmp_path, monkeypatch):
    made = make(tmp_path / "ml" / "checkpoints" / "checkpoint-4")
    for folder in (made, made.parent):
        folder.chmod(0o777)
    told = tmp_path / "ml" / "input" / "config" / "resourceconfig.json"
    monkeypatch.setattr(checkpoints, "SAGEMAKER", told)
    with pytest.raises(UsageError, match="is not read"):
        checkpoint("auto", made.parent, Journal(None, "test"))
    told.parent.mkdir(parents=True)
    told.write_text("{}")
    assert checkpoint("auto", made.parent, Journal(None, "test")) == str(made)
    Cache(home=tmp_path / "home").plan_train("bert", output_dir=made.parent)
