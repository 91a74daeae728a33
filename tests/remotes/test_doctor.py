"""`cachekit doctor` about remotes and the project's files: each thing that is broken is found, with its repair."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Thread

import pytest

from cachekit.store.layout import Layout
from cachekit.verbs.doctor import checks
from tests.support.cli_session import publish as publish_recipe
from tests.support.doctor_cases import findings, fine, the_problem

pytest_plugins = ["tests.support.cli_session", "tests.support.doctor_cases"]


# Remotes


@pytest.mark.feature("U1")
def test_a_shared_folder_that_is_not_there(tmp_path):
    remotes = f"local:rw,{tmp_path}/team:rw"
    found = the_problem("remotes", cache=remotes)
    subprocess.run(shlex.split(found["run"]), check=True)
    assert fine("remotes", cache=remotes)


@pytest.mark.feature("U1")
def test_a_shared_folder_that_everybody_may_write(tmp_path):
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o777)
    found = the_problem("remotes", cache=f"local:rw,{shared}:r")
    assert "nothing there is used, as the settings name no signer: every user of this machine" in found["said"]
    assert fine("remotes", cache="local:rw,t:r", remotes={"t": {"url": str(shared), "trust": "all"}})


@pytest.mark.feature("U1")
def test_a_shared_folder_that_only_others_may_write(public):
    found = the_problem("remotes", cache=f"local:rw,{public}:rw", nobody=True)
    assert fine("remotes", cache=f"local:rw,{public}:r", nobody=True)
    assert "cannot be written by this user" in found["said"]


@pytest.mark.feature("U1")
def test_a_chain_that_means_nothing():
    found = the_problem("remotes", cache="local:rw,nobody:rw")
    assert "there is no remote named 'nobody'" in found["said"]


@pytest.mark.feature("U1")
def test_a_hub_that_is_never_asked(monkeypatch):
    assert fine("offline")
    found = the_problem("offline", cache="local:rw,hf://team/cache:rw")
    assert found["run"] == "unset HF_HUB_OFFLINE"
    assert [one["state"] for one in findings("remotes", cache="local:rw,hf://team/cache:rw")] == ["unknown"]
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert fine("offline", cache="local:rw,hf://team/cache:rw")


@pytest.mark.feature("U1")
def test_a_token_that_is_missing_or_none(tmp_path, monkeypatch):
    remotes = {"cache": "local:rw,hf://team/cache:rw"}
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert fine("token")
    assert the_problem("token", **remotes)["run"] == "hf auth login"
    secret = "hf_" + "a1B2" * 9
    for text in (f'"{secret}"', "changeme", f"Bearer {secret}"):
        monkeypatch.setenv("HF_TOKEN", text)
        found = the_problem("token", **remotes)
        assert "HF_TOKEN does not hold a token" in found["said"]
        assert secret not in json.dumps(found)
    monkeypatch.setenv("HF_TOKEN", secret)
    assert fine("token", **remotes)
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "token").write_text(secret + "\n")
    (tmp_path / "token").chmod(0o644)
    found = the_problem("token", **remotes)
    assert "others can read the token" in found["said"]
    subprocess.run(shlex.split(found["run"]), check=True)
    assert fine("token", **remotes)


@pytest.fixture
def late_server():
    """A server whose clock is an hour behind ours, so that ours is ahead."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            if self.server.begins:
                self.drip()
                return
            self.send_response_only(404)
            self.send_header("Date", formatdate(time.time() - self.server.late, usegmt=True))
            self.end_headers()

        def drip(self):
            """A header whose first line takes 10 s, a byte after another, and that then tells the time."""
            with suppress(OSError):
                self.wfile.write(self.server.begins)
                for _ in range(200):
                    if self.server.over.wait(0.05):
                        return
                    self.wfile.write(b"x")
                self.wfile.write(f"\r\nDate: {formatdate(usegmt=True)}\r\n\r\n".encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.late, server.begins, server.over = 3600, b"", Event()
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    ("variable", "remote"),
    [
        ("HF_ENDPOINT", "hf://team/cache"),
        ("AWS_ENDPOINT_URL", "s3://bucket/team"),
        ("AZURE_STORAGE_ENDPOINT", "az://bucket/team"),
    ],
)
def test_a_clock_that_is_not_the_caches(late_server, monkeypatch, variable, remote):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    address = f"http://127.0.0.1:{late_server.server_port}"
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv(variable, address)
    remotes = {"cache": f"local:rw,{remote}:r"}
    found = the_problem("remote-clocks", **remotes)
    assert f"is 1 hour ahead of that of {address}" in found["said"].replace("60 minutes", "1 hour")
    late_server.late = 0
    assert fine("remote-clocks", **remotes)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert unknown("remote-clocks", **remotes) == f"{address}: not asked, HF_HUB_OFFLINE is set"


def unknown(name: str, **flags) -> str:
    (found,) = findings(name, **flags)
    assert found["state"] == "unknown"
    return found["said"]


@pytest.mark.feature("U1")
def test_records_that_could_not_be_pushed(home, tmp_path, monkeypatch):
    note = Layout(home).remotes / "0a1b" / "pending" / ("0" * 64)
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    found = the_problem("pending-pushes")
    assert found["run"] == "cachekit push --pending --cache local:rw,NAME:rw", "the settings name no remote"
    monkeypatch.setenv("CACHEKIT_CACHE", f"local:rw,{tmp_path}:rw")
    assert the_problem("pending-pushes")["run"] == "cachekit push --pending"
    assert "1 record was compiled here and could not be pushed" in found["said"]


# Files of the project


@pytest.mark.feature("U1")
def test_a_lock_file_after_a_merge(command, machine, home, work):
    publish_recipe(home)
    command("store", "lock", "tiny.yaml")
    assert fine("lock-file")
    text = (work / "cachekit.lock").read_text()
    (work / "cachekit.lock").write_text(f"<<<<<<< HEAD\n{text}")
    found = the_problem("lock-file")
    assert "cachekit.lock is not a lock file" in found["said"]
    assert "store lock` again" in found["repair"]


@pytest.mark.feature("U1")
@pytest.mark.parametrize("text", ["cache = [", 'chache = "x"', "keep_logs = 'soon'"])
def test_a_settings_file_that_is_broken(command, work, text):
    """The other checks are made all the same."""
    (work / "cachekit.toml").write_text(text)
    document = command("doctor", "--format", "json", code=1).json
    (found,) = (one for one in document["findings"] if one["check"] == "settings")
    assert (found["state"], "cachekit.toml" in found["said"]) == ("problem", True)
    assert found["repair"]
    assert {one["check"] for one in document["findings"]} == {"settings", *(check.name for check in checks())}
