"""`cachekit hub use` of one's own repo and of somebody else's: whose records would be used."""

from __future__ import annotations

import pytest

from cachekit import config_files
from tests.cli.team_session import hub, join, repo, shared_hub  # noqa: F401 - fixtures
from tests.support.hubserver.accounts import OTHER_TOKEN

pytest_plugins = ["tests.support.cli_session"]


def may(member) -> list[str]:
    return config_files.read_toml(member.work / "cachekit.toml")["cache"].split(",")


@pytest.mark.feature("T2")
def test_a_first_time_user_of_an_own_private_repo_sees_nothing_of_trust(join, hub, repo):
    own = hub.repo(repo.name.replace("team/", "admin/"))
    ann = join("ann")
    used = ann("hub", "use", own.name)
    assert "code" not in used.out
    assert "trust" not in used.out + used.err
    assert may(ann) == ["local:rw", "hub:rw"]
    assert "trust" not in (warmed := ann("warm", "tiny.yaml")).out + warmed.err


@pytest.mark.feature("T2")
def test_a_private_repo_of_an_organisation_says_once_whose_code_runs(join, repo):
    ann = join("ann")
    used = ann("hub", "use", repo.name)
    assert "a compiler cache is code: what members of team put there runs as you" in used.out
    made = join("bob")("hub", "create", repo.name.replace("team/", "admin/"))
    assert "code" not in made.out


@pytest.mark.feature("T2")
def test_a_repo_of_somebody_else_is_only_read_and_its_owner_is_named(join, hub, repo):
    public = hub.repo(f"{repo.name}-public", private=False)
    eve = join("eve", OTHER_TOKEN)
    used = eve("hub", "use", public.name)
    assert "a compiler cache is code" in used.out
    assert "belongs to team" in used.out
    assert may(eve) == ["local:rw", "hub:r"]
    answer = eve("hub", "use", public.name, "--format", "json").json
    assert (answer["owned"], answer["private"]) == (False, False)


@pytest.mark.feature("T2")
def test_a_record_of_the_store_that_is_not_used_is_told_once_and_is_a_miss(join, repo):
    ann, bob = join("ann"), join("bob")
    for member in (ann, bob):
        member("hub", "use", repo.name)
    ann("warm", "tiny.yaml")
    bob("pull", "tiny.yaml")
    strictly = ("tiny.yaml", "--cache", "local:rw", "--trust", "signed")
    planned = bob("plan", *strictly)
    assert "local: a record of this key is there, but it is from hf://team/" in planned.out
    assert planned.err == "", "it is told once"
    assert "it is from hf://team/" in bob("train", *strictly, "--require-warm", code=5).err
