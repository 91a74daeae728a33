"""`cachekit store export` and `import` of a bundle, as a person or a script uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.cli_session import environment, publish, the_error
from tests.support.standins import tree

pytest_plugins = ["tests.support.cli_session"]


@pytest.mark.feature("F4")
def test_a_recipe_goes_to_an_empty_box(command, machine, home, work):
    publish(home)
    there = str(work.parent / "box")
    said = command("store", "export", "tiny.tar", "tiny.yaml")
    assert said.out.startswith("wrote tiny.tar: 1 record, 1 file, 4.7 MB, in ")
    digest = said.out.splitlines()[-2].split()[1]
    assert said.out.splitlines()[-1] == "  next, on the other machine: cachekit store import tiny.tar --trust-all"
    assert command("plan", "tiny.yaml", "--home", there).out.startswith("tiny: miss")
    looked = command("store", "import", "tiny.tar", "--home", there, "--dry-run", code=5).out
    assert "tiny: would be refused" in looked
    assert "nothing would be stored" in looked
    assert not (work.parent / "box" / "v1" / "blobs").exists()
    answer = command("store", "import", "tiny.tar", "--trust-all", "--home", there)
    assert "tiny: added" in answer.out
    assert answer.out.splitlines()[-1] == f"  sha256 {digest}"
    assert command("plan", "tiny.yaml", "--home", there, "--require-warm").out.startswith("tiny: hit")
    assert "tiny: already in the store" in command("store", "import", "tiny.tar", "--trust-all", "--home", there).out
    assert max(map(len, (said.out + looked + answer.out).splitlines())) <= 80


@pytest.mark.feature("F4")
def test_a_signed_bundle_needs_no_word_there(command, machine, home, work, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(work.parent / "config"))
    publish(home)
    command("trust", "init")
    assert command("store", "export", "tiny.tar", "tiny.yaml").out.endswith(" cachekit store import tiny.tar\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(work.parent / "another"))
    looked = command("store", "import", "tiny.tar", "--home", str(work.parent / "box"), "--dry-run", code=5).out
    assert "would be refused it is signed by nobody you trust (SHA256:" in " ".join(looked.split())
    assert max(map(len, looked.splitlines())) <= 80


@pytest.mark.feature("F4")
def test_programs_get_what_is_in_it(command, machine, home):
    record = publish(home)
    document = command("store", "export", "tiny.tar", record.key[:12], "--dry-run", "--format", "json").json
    assert (document["dry_run"], document["sha256"], document["records"][0]["key"]) == (True, "", record.key)
    assert [file["bytes"] for file in document["files"]][1:] == [record.size]
    assert command("store", "export", "tiny.tar", record.key[:12], "--format", "quiet").out.strip()
    document = command("store", "import", "tiny.tar", "--trust-all", "--format", "json").json
    assert document["records"] == [
        {
            "key": record.key,
            "recipe": "tiny",
            "directory": record.directory,
            "modules": [record.modules[0].name],
            "bytes": record.size,
            "state": "present",
            "untrusted": "",
            "helps": "",
        }
    ]
    assert command("store", "import", "tiny.tar", "--trust-all", "--format", "quiet").out == f"{record.key}\n"


def test_a_recipe_that_is_not_warm_is_a_miss(command, machine):
    code, message, _, hint = the_error(command("store", "export", "tiny.tar", "tiny.yaml", code=3))
    assert (code, hint) == ("not-warm", "cachekit pull tiny.yaml, or cachekit warm tiny.yaml")
    assert "tiny.yaml is not in the store" in message


def test_what_is_no_bundle_is_not_written_over(command, machine, home, work):
    publish(home)
    (work / "data.tar").write_bytes(b"years of work")
    assert "exists and is not a bundle" in command("store", "export", "data.tar", "tiny.yaml", code=2).err
    assert (work / "data.tar").read_bytes() == b"years of work"
    os.mkfifo(work / "pipe.tar")  # nor what is no file: a user who may do everything would lose a device
    assert "not a regular file" in command("store", "export", "pipe.tar", "tiny.yaml", code=2).err
    assert (work / "pipe.tar").is_fifo()
    (work / "pipe.tar").unlink()
    command("store", "export", "tiny.tar", "tiny.yaml")
    command("store", "export", "tiny.tar", "tiny.yaml")  # a bundle is
    _, message, _, hint = the_error(command("store", "export", "nowhere/tiny.tar", "tiny.yaml", code=2))
    assert ("cannot be written" in message, hint) == (True, "make the folder first, or name another")
    assert sorted(path.name for path in work.iterdir()) == ["data", "data.tar", "tiny.tar", "tiny.yaml"]


@pytest.mark.feature("S7")
def test_a_damaged_bundle_is_exit_5(command, machine, home, work):
    publish(home)
    command("store", "export", "tiny.tar", "tiny.yaml")
    raw = bytearray((work / "tiny.tar").read_bytes())
    raw[len(raw) // 2] ^= 1
    (work / "tiny.tar").write_bytes(raw)
    box = work.parent / "box"
    for words in (["--dry-run"], ["--trust-all"]):
        answer = command("store", "import", "tiny.tar", "--home", str(box), *words, code=5)
        code, message, cause, hint = the_error(answer, before=words.count("--trust-all"))
        assert (code, "digest does not match" in cause) == ("damaged", True)
        assert message == "tiny.tar is not a complete bundle"
        assert hint.startswith("nothing was imported")
    assert tree(box) == set()
    assert "no file" in command("store", "import", "other.tar", "--trust-all", code=2).err


def test_a_damaged_store_gives_no_bundle(command, machine, home, work):
    record = publish(home)
    blob = next((home / "v1" / "blobs").glob(f"*/{record.files[0].sha256}"))
    blob.chmod(0o644)
    blob.write_bytes(b"x" * record.size)
    assert "is incomplete" in command("store", "export", "tiny.tar", "tiny.yaml", code=5).err
    assert not (work / "tiny.tar").exists()


@pytest.mark.feature("F4")
def test_from_one_command_to_the_other(machine, home, work):
    record = publish(home)
    run = f"{sys.executable} -m cachekit store"
    line = f"{run} export - {record.key} | {run} import - --trust-all --home {work.parent / 'box'} --format json"
    done = subprocess.run(["sh", "-c", line], env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["records"][0]["state"] == "added"
    assert "1 record, 1 file" in done.stderr


def test_nobody_reads_on(machine, home):
    record = publish(home)
    line = (
        f"{sys.executable} -m cachekit store export - {record.key} | head -c 100 > /dev/null; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot write to standard output" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("name", ["tiny.tar.gz", "tiny.tgz", "tiny.TAR", "tiny.zip"])
def test_a_name_like_a_bundles_makes_no_folder(command, machine, home, work, name):
    record = publish(home)
    code, message, cause, _ = the_error(command("store", "export", name, record.key[:12], code=2))
    assert (code, message, cause) == ("usage", f"{name} would be a folder", "a bundle's name ends in .tar")
    assert not (work / name).exists()
