"""A team's cache from the command line, over a test Hub: two members with a home each, in processes of their own."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from tests.cli.team_session import hub, join, repo, shared_hub  # noqa: F401 - fixtures
from tests.support.cli_session import RECIPE, golden, publish, publish_record, small_record, the_error

pytest_plugins = ["tests.support.cli_session"]


def steady(text: str, repo_name: str) -> str:
    text = text.replace(repo_name, "team/cache")
    text = re.sub(r"http://127\.0\.0\.1:\d+", "https://huggingface.co", text)
    text = re.sub(r"[\w./-]*/project/cachekit\.toml", "<project>/cachekit.toml", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "f" * 64, text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "f" * 16, text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "f" * 12, text)
    text = re.sub(r"(inductor-\S+?/)[\w-]+(/)", r"\1TARGET\2", text)
    text = re.sub(r"inductor-[\d.]+", "inductor-VERSION", text)
    text = re.sub(r"\d{4}-\d\d-\d\d  \w+ +", "2026-11-23  root  ", text)
    text = re.sub(r"\d+(\.\d)? s(?=; graphs)", "0.1 s", text)
    text = re.sub(r"^  (fetched (?!(.+) of \2$)|sent ).*\n", "", text, flags=re.MULTILINE)  # of what takes long
    text = re.sub(r"\b(took|in) \d+ s(?= in all|; \d+ B was)", r"\1 0.0 s", text)  # a busy machine's
    return re.sub(r"\b(in|took|compiling;.*took) \d+\.\d s", r"\1 0.0 s", text)


# One warms, the others find


@pytest.mark.feature("R1", "K3")
def test_a_team_compiles_once(join, repo, hub):
    ann, bob = join("ann"), join("bob")
    made = ann("hub", "use", repo.name)
    assert "cachekit.toml" in made.out
    (bob.work / "cachekit.toml").write_text((ann.work / "cachekit.toml").read_text())  # as a repository would bring it
    warmed = ann("warm", "tiny.yaml")
    assert "compiled 3 graphs" in warmed.out
    assert hub.count("POST */commit/*") == 2
    assert "README.md" in (files := repo.files())
    assert not [path for path in files if path.startswith("cachekit/v1/leases/")]
    hub.log.clear()
    ann("warm", "tiny.yaml")
    assert [entry.path.split("/")[-2] for entry in hub.log.entries()] == ["paths-info"]
    planned = bob("plan", "tiny.yaml", "--format", "json").json
    assert (planned["status"], planned["remote"]) == ("hit", f"hf://{repo.name}")
    assert planned["fetch_bytes"] == planned["bytes"] > 0
    trained = bob("train", "tiny.yaml", "--require-warm", "--format", "json").json
    assert trained["compiled"] == 0
    # And without the network from now on.
    hub.log.clear()
    assert bob("plan", "tiny.yaml", "--offline", "--format", "json").json["remote"] == "local"
    assert hub.log.entries() == []


def test_the_words_of_a_team(join, repo):
    ann, bob = join("ann"), join("bob")
    words = []
    for member, *arguments in (
        (ann, "hub", "use", repo.name),
        (ann, "warm", "tiny.yaml"),
        (ann, "push", "--dry-run"),
        (bob, "hub", "use", repo.name, "--read-only"),
        (bob, "hub", "ls"),
        (bob, "plan", "tiny.yaml"),
        (bob, "pull", "tiny.yaml", "--dry-run"),
        (bob, "pull", "tiny.yaml"),
        (bob, "pull", "tiny.yaml"),
    ):
        answer = member(*arguments)
        command = " ".join(["cachekit", *arguments])
        words.append(f"$ {command}\n{answer.out}--\n{answer.err}")
    golden("sharing", steady("\n".join(words), repo.name))


# What people get wrong


def test_a_token_that_may_not_see_the_repo(join, repo):
    bob = join("bob", "hf_outsider")
    code, message, _, hint = the_error(bob("hub", "use", repo.name, code=4))
    assert code == "auth"
    assert repo.name in message
    assert "hf auth login" in hint
    bob("pull", "tiny.yaml", "--cache", f"local:rw,hf://{repo.name}:r", code=4)


def test_a_repo_of_ones_own_that_is_not_there_is_no_matter_of_tokens(join):
    ann = join("ann")
    refused = ann("pull", "tiny.yaml", "--cache", "local:rw,hf://team/none:r", code=7)
    assert "error[no-remote]: hf://team/none does not exist" in refused.err
    assert "cachekit hub create" in refused.err


def test_a_public_repo_is_not_filled_by_mistake(join, hub):
    repo = hub.repo("team/open-to-all")
    repo.private = False
    ann = join("ann")
    used = ann("hub", "use", repo.name)
    assert "PUBLIC" in used.out
    warmed = ann("warm", "tiny.yaml")
    assert "anybody can read" in warmed.err
    shown = ann("push", "--dry-run")
    assert "reveals: who made them" in shown.out
    dry = ann("push", "--dry-run", "--format", "json").json["pushed"][0]
    refused = ann("push", code=2)
    the_error(refused)
    assert "would reveal: who made them" in refused.out
    assert len(list(repo.history(repo.head))) == 1  # no lease either, which would tell who compiles
    assert [path for path in repo.files() if path.startswith("cachekit/v1/records")] == []
    told = ann("push", "--public").err
    assert told.index("it reveals who made them") < told.index("pushed 1 file")
    # The dry run listed what went, and all of it.
    listed = {*dry["records"], *(file["path"] for file in dry["files"]), dry["card"], dry["index"]}
    assert listed == {path for path in repo.files() if path != ".gitattributes"}
    assert [path for path in repo.files() if path.startswith("cachekit/v1/records")]


@pytest.mark.parametrize(
    ("listed", "table", "told"),
    [
        ("local:rw,hf://ann:PASSWORD@team/cache:r", "", "must not contain a token"),
        ("local:rw,hub:r", 'url = "hf://ann:PASSWORD@team/cache"', "must not contain a token"),
        ("local:rw,hub:r", 'url = "below"', "project/below"),
    ],
)
def test_a_remote_starts_at_its_file_and_holds_no_token(command, monkeypatch, listed, table, told):
    folder = command.work.parent / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "cachekit.toml").write_text(f"[remotes.hub]\n{table}\n" if table else "")
    (folder / "sub" / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(folder / "sub")
    answer = command("pull", "tiny.yaml", "--cache", listed, code=7 if "below" in told else 2)
    assert told in answer.err
    assert "PASSWORD" not in answer.err
    monkeypatch.setenv("CACHEKIT_CACHE", listed)
    assert "PASSWORD" not in command("config").out
    assert not [path for path in folder.parent.rglob("*.jsonl") if "PASSWORD" in path.read_text()]


@pytest.mark.parametrize(
    ("address", "variable"), [("hf://team/cache", "HF_ENDPOINT"), ("s3://bucket/cache", "AWS_ENDPOINT_URL")]
)
def test_an_endpoint_that_is_no_address_is_said(command, monkeypatch, address, variable):
    if address.startswith("s3"):
        pytest.importorskip("obstore")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv(variable, "127.0.0.1:8080")
    *_, hint = the_error(command("pull", "tiny.yaml", "--cache", f"local:rw,{address}:r", code=2))
    assert variable in hint


def test_a_list_of_a_remote_stays_narrow_and_says_which_recipes_there_are(command, home, work):
    (work / "there").mkdir()
    cache = ("--cache", f"local:rw,{work / 'there'}:rw")
    for number, name in enumerate(("a" * 320, "tiny")):
        publish_record(home, small_record(name, number=number))
    command("push", *cache)
    answer = command("hub", "ls", *cache)
    assert max(map(len, answer.out.splitlines()[1:])) < 100
    assert f"{'a' * 29}…" in answer.out
    assert any(command("store", "ls", "-f", "quiet").out[:12] in line for line in answer.out.splitlines())
    said = " ".join(command("hub", "ls", *cache, "--recipe", "tinny").out.split())
    assert f"no record of a recipe named 'tinny'; there are records of tiny, {'a' * 29}…" in said
    (there,) = command("hub", "ls", *cache, "--recipe", "tinny", "--format", "json").json
    assert (there["records"], there["recipes"][0]) == ([], "tiny")
    (there,) = command("hub", "ls", *cache, "--recipe", "tiny", "--format", "json").json
    assert (len(there["records"]), there["recipes"]) == (1, [])


@pytest.mark.feature("R5")
@pytest.mark.parametrize("asked", ["--offline", "HF_HUB_OFFLINE"])
def test_offline_is_said_where_a_shared_cache_is_needed(command, monkeypatch, asked):
    words = ["push", "tiny.yaml", "--cache", "local:rw,hf://team/cache:rw"]
    if asked == "--offline":
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        words.append(asked)
    else:
        monkeypatch.setenv(asked, "1")
    *_, cause, hint = the_error(command(*words, code=2))
    assert "hf://team/cache needs the network" in cause
    assert asked in hint


def test_offline_a_pull_says_which_remote_it_did_not_ask(command, work):
    (work / "there").mkdir()
    cache = ("--cache", f"local:rw,{work / 'there'}:r,hf://team/cache:r")
    answer = command("pull", "tiny.yaml", *cache, "--offline", code=7)
    assert answer.out.startswith("tiny: not found, but not every remote answered")
    _, message, cause, hint = the_error(answer)
    assert message == "it is unknown whether a remote has tiny: no connection may be opened"
    assert cause == "not asked: hf://team/cache; no other remote has it"
    assert "--offline" in hint


@pytest.mark.feature("R5")
def test_offline_a_pull_that_may_ask_nobody_takes_what_the_store_has_and_names_the_rest(command, tmp_path):
    cache = ("--cache", "local:rw,hf://team/cache:r", "--offline")
    answer = command("pull", "tiny.yaml", *cache, code=7)
    assert answer.out.startswith("tiny: not found, but not every remote answered")
    _, message, cause, hint = the_error(answer)
    assert message == "it is unknown whether a remote has tiny: no connection may be opened"
    assert (cause, "--offline" in hint) == ("not asked: hf://team/cache", True)
    assert "unknown" in the_error(command("pull", "--all-of", "neuronxcc-2.26.6360.0+6f180f47", *cache, code=7))[1]
    publish(tmp_path / "store")
    assert "already in the store" in command("pull", "tiny.yaml", "--home", str(tmp_path / "store"), *cache).out


@pytest.mark.feature("R5")
def test_a_record_without_a_recipe_is_pulled_by_its_key(command, home, tmp_path):
    """As that of a command; its archive is no real one, and a fetch looks only at its bytes."""
    (there := tmp_path / "there").mkdir()
    record = publish_record(home, small_record("train.py"))
    key, cache = record.key[:8], ("--cache", f"local:rw,{there}:rw")
    assert "train.py: already in the store" in command("pull", key, *cache).out
    command("push", key, *cache)
    second = (*cache, "--home", str(tmp_path / "second"))
    assert f"to fetch from {there}" in command("pull", key, *second, "--dry-run").out
    (pulled,) = command("pull", key, *second, "--format", "json").json["pulled"]
    assert (pulled["name"], pulled["state"], pulled["key"]) == ("train.py", "fetched", record.key)
    assert command("store", "show", key, "--home", str(tmp_path / "second")).out
    assert "is a key, and --set and --tiny change a recipe" in command("pull", key, *second, "--tiny", code=2).err
    assert "no remote has beef0123" in the_error(command("pull", "beef0123", *second, code=3))[1]
    third = tmp_path / "third"
    publish_record(third, structs.replace(record, soft={"command.finished": False}))
    gone = ("--cache", f"local:rw,{tmp_path / 'gone'}:r", "--home", str(third))
    assert "gone" in the_error(command("pull", key, *gone, code=7))[1]  # it may have a whole one


@pytest.mark.feature("R5")
def test_offline_opens_no_connection(join, repo, hub):
    ann = join("ann")
    ann("hub", "use", repo.name)
    hub.log.clear()
    ann("plan", "tiny.yaml", "--offline")
    _, _, cause, _ = the_error(ann("warm", "tiny.yaml", "--offline", "--require-warm", code=3))
    assert cause.startswith("not asked, because no connection may be opened: hub")
    ann("warm", "tiny.yaml", "--offline")
    ann.variables["HF_HUB_OFFLINE"] = "1"
    ann("train", "tiny.yaml")
    assert hub.log.entries() == []
    # What was compiled meanwhile is offered when there is a network again.
    ann.variables["HF_HUB_OFFLINE"] = None
    (pushed,) = ann("push", "--pending", "--format", "json").json["pushed"]
    assert len(pushed["records"]) == 1
