"""What people are told of an attack, command by command; and those who are not attacked see nothing of all this."""

import os
import sys

import pytest

from cachekit.training import ProcessLauncher
from tests.trust.attack_cases import RUN, marker  # noqa: F401 - a fixture
from tests.trust.trust_cases import line, pem

pytest_plugins = ["tests.support.cli_session"]
pytestmark = pytest.mark.feature("T2")
ALICE, EVE = 0, 2
# A worker that runs what it is given, and makes what it is told to make.
LOADS = f"""
for one in root.rglob("*"):
    if one.is_file() and one.read_bytes().startswith({RUN!r}):
        Path(os.fsdecode(one.read_bytes().removeprefix({RUN!r}))).touch()
cold = not any(root.iterdir())
"""
MAKES = 'write_bytes(os.fsencode(os.environ.get("FAKE_CODE", "x")))'


@pytest.fixture
def worker(worker, tmp_path, monkeypatch):
    """The usual stand-in for the training worker, but that it runs what it is given."""
    text = worker.read_text().replace("cold = not any(root.iterdir())\n", LOADS)
    text = text.replace('write_bytes(b"x" * int(os.environ.get("FAKE_SIZE", "12")))', MAKES)
    assert text.count("FAKE_CODE") == 1
    assert RUN in text.encode()
    path = tmp_path / "worker.py"
    path.write_text(text)
    monkeypatch.setattr("cachekit.training.ProcessLauncher", lambda: ProcessLauncher([sys.executable, str(path)]))
    return path


@pytest.fixture
def member(command, work, machine, worker, monkeypatch):
    """Runs a command as somebody with an own store, a key, and names for others' keys."""
    (work / "place").mkdir()

    def run(name, *words, key=None, signers=(), code=0):
        said = "".join(f'[trust.signers.signer{seed}]\nkey = "{line(seed)}"\n' for seed in signers)
        (work / "cachekit.toml").write_text(
            f'cache = "local:rw,team:rw"\n[remotes.team]\nurl = "{work / "place"}"\n{said}'
        )
        if key is None:
            monkeypatch.delenv("CACHEKIT_TRUST_KEY", raising=False)
        else:
            monkeypatch.setenv("CACHEKIT_TRUST_KEY", pem(key))
        return command(*words, "--home", str(work / name), code=code)

    return run


@pytest.fixture
def attacked(member, work, marker, monkeypatch):
    """Eve has put what she made into a place that everybody can write to, and signed it."""
    (work / "place").chmod(0o777)
    monkeypatch.setenv("FAKE_CODE", os.fsdecode(RUN) + str(marker))
    member("eve", "warm", "tiny.yaml", key=EVE)
    monkeypatch.delenv("FAKE_CODE")
    assert not marker.exists()


@pytest.mark.feature("T6")
@pytest.mark.usefixtures("attacked")
def test_each_command_says_that_it_is_there_and_not_used(member, work, marker):
    why = "signed by nobody you trust"
    said = member("bob", "plan", "tiny.yaml", signers=[ALICE])
    assert why in " ".join(said.out.split())
    for words in (["plan", "tiny.yaml", "--require-warm"], ["train", "tiny.yaml", "--require-warm"]):
        answer = member("bob", *words, signers=[ALICE], code=5)
        assert why in answer.err
    answer = member("bob", "pull", "tiny.yaml", signers=[ALICE], code=5)
    assert "error[untrusted]" in answer.err
    assert why in answer.err
    warmed = member("bob", "warm", "tiny.yaml", "--format", "json", signers=[ALICE])
    assert warmed.json["compiled"] > 0
    assert why in warmed.err
    assert "is not used" in warmed.err
    trained = member("bob", "train", "tiny.yaml", "--output-dir", str(work / "out"), signers=[ALICE])
    assert not marker.exists()
    assert "Traceback" not in trained.err


@pytest.mark.usefixtures("attacked")
def test_it_would_have_run(member, work, marker):
    member("bob", "train", "tiny.yaml", "--trust-all", "--output-dir", str(work / "out"))
    assert marker.exists()
