"""`cachekit run`: a command of one's own, with what it compiled before; its streams, signals and exit code are its own.

The fast tests run a script that "compiles" by writing what Inductor would into its cache folder; the slow ones a real
`torch.compile`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pytest

from tests.cli.cli_cases import Terminal
from tests.support.cli_session import the_error
from tests.verbs.run_user import COMPILES, LIMIT, SECRETS, User


@pytest.fixture
def user(tmp_path):
    return User(tmp_path / "one")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)


TRAIN = ("python", "train.py", "--lr", "0.1")
READS = (
    COMPILES.replace("from parts import GRAPHS", 'GRAPHS = Path("graphs").read_text().split()')
    + """
if os.path.exists("fails"):
    sys.exit(7)
"""
)  # what a script reads is in no key


@pytest.mark.feature("S1")
def test_a_second_run_finds_what_the_first_compiled(user):
    first = user.run(*TRAIN)
    assert user.said == ["forward compiled", "backward compiled"]
    assert (first["status"], first["compiled"], first["kept"], first["exit_code"]) == ("miss", 2, True, 0)
    second = user.run(*TRAIN)
    assert user.said == ["forward found", "backward found"]
    assert (second["status"], second["compiled"], second["built"]) == ("hit", 0, 0)
    assert second["key"] == first["key"]
    assert not list((user.home / "v1").glob("cache_dirs/*/*")), "no compiler cache dir stays behind"


@pytest.mark.feature("S1", "P1")
def test_two_runs_of_one_command_at_once_leave_a_record_that_serves_the_next(user):
    hold = user.work / "hold"
    hold.touch()
    script = COMPILES + "\nimport os, time\nwhile os.path.exists('hold'):\n    time.sleep(0.05)\n"
    (user.work / "train.py").write_text(script)
    runs = [user.start("run", "-q", "--", *TRAIN) for _ in range(2)]
    for process in runs:
        assert [process.stdout.readline().split()[1] for _ in range(2)] == ["compiled"] * 2
    hold.unlink()
    for process in runs:
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0
    (kept,) = json.loads(user("store", "ls", "-f", "json").stdout)
    for _ in range(2):
        done = user.run(*TRAIN, options=("--require-warm",))
        assert user.said == ["forward found", "backward found"]
        assert (done["compiled"], done["bytes"]) == (0, kept["bytes"])


@pytest.mark.feature("S1", "R1")
def test_what_a_run_that_failed_left_here_hides_no_whole_record_of_the_team(user, tmp_path):
    (shared := tmp_path / "shared").mkdir()
    script = COMPILES + "\nimport os, sys\nsys.exit(7 if os.path.exists('fails') else 0)\n"
    (user.work / "train.py").write_text(script)
    user.run(*TRAIN)
    user("push", "--cache", f"local:rw,{shared}:rw")
    other = User(tmp_path / "other")
    (other.work / "train.py").write_text(script)
    (other.work / "fails").touch()
    other.run(*TRAIN, code=7)
    (other.work / "fails").unlink()
    cache = ("--cache", f"local:rw,{shared}:rw")
    assert "may lack graphs" not in other("run", "--dry-run", *cache, "--", *TRAIN).stdout
    assert other.run(*TRAIN, options=("--require-warm", *cache))["compiled"] == 0
    assert other.run(*TRAIN, options=("--require-warm",))["compiled"] == 0, "it is here now"


@pytest.mark.parametrize("fetches", ["run", "pull"])
def test_what_a_run_that_failed_compiled_here_stays_beside_the_teams_record(user, tmp_path, fetches):
    """Of a setting that the team has not compiled."""
    (tmp_path / "shared").mkdir()
    cache = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    other = User(tmp_path / "other")
    for one, graphs in ((user, "forward backward"), (other, "eval forward")):
        (one.work / "train.py").write_text(READS)
        (one.work / "graphs").write_text(graphs)
    key = user.run(*TRAIN, options=cache)["key"]
    (other.work / "fails").touch()
    other.run(*TRAIN, code=7)
    (other.work / "fails").unlink()
    (other.work / "graphs").write_text("eval forward backward")
    if fetches == "pull":
        other("pull", key, *cache)
    assert other.run(*TRAIN, options=("--require-warm", *cache))["compiled"] == 0
    assert other.said == ["eval found", "forward found", "backward found"]


@pytest.mark.feature("S5")
def test_a_secret_in_what_a_failed_run_left_here_keeps_the_record_from_the_team(user, tmp_path):
    (tmp_path / "shared").mkdir()
    cache = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    secret = "hunter2-very-secret-9x8y7z"
    script = READS.replace('b"graph "', 'os.environ.get("MY_API_TOKEN", "").encode() + b" graph "')
    other = User(tmp_path / "other")
    for one, graphs in ((user, "forward"), (other, "backward")):
        (one.work / "train.py").write_text(script)
        (one.work / "graphs").write_text(graphs)
    user.run(*TRAIN, options=cache)
    (other.work / "fails").touch()
    other.run(*TRAIN, code=7, MY_API_TOKEN=secret)
    (other.work / "fails").unlink()
    (other.work / "graphs").write_text("forward backward eval")
    assert other.run(*TRAIN, options=cache)["compiled"] == 1
    assert any(secret.encode() in blob.read_bytes() for blob in other.home.rglob("blobs/*/*"))
    assert not any(secret.encode() in path.read_bytes() for path in (tmp_path / "shared").rglob("*") if path.is_file())


@pytest.mark.feature("R3")
def test_what_members_compiled_of_one_command_with_other_settings_all_find(user, tmp_path):
    (tmp_path / "shared").mkdir()
    cache = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    members = [user, User(tmp_path / "two"), User(tmp_path / "three")]
    for one, graphs in zip(members, ("forward", "backward", "forward backward eval"), strict=True):
        (one.work / "train.py").write_text(READS)
        (one.work / "graphs").write_text(graphs)
    (user.work / "fails").touch()
    user.run(*TRAIN, options=cache, code=7)
    members[1].run(*TRAIN)  # without the team's remote
    pushed = members[1]("push", *cache)
    assert "1 record" in pushed.stdout
    assert "built twice" not in pushed.stderr
    done = members[2].run(*TRAIN, options=cache)
    assert members[2].said == ["forward found", "backward found", "eval compiled"]
    assert done["compiled"] == 1


@pytest.mark.feature("R3")
def test_a_run_with_recache_that_fails_takes_nobodys_graphs_away(user, tmp_path):
    (tmp_path / "shared").mkdir()
    cache = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    (user.work / "train.py").write_text(READS)
    (user.work / "graphs").write_text("forward backward")
    user.run(*TRAIN, options=cache)
    (user.work / "graphs").write_text("forward")
    (user.work / "fails").touch()
    done = user.run(*TRAIN, options=("--recache", *cache), code=7)
    assert (done["compiled"], done["kept"], done["problem"]) == (
        1,
        False,
        "a run with --recache replaces nothing before it has come to its end",
    )
    (user.work / "fails").unlink()
    (user.work / "graphs").write_text("forward backward")
    other = User(tmp_path / "other")
    (other.work / "train.py").write_text(READS)
    (other.work / "graphs").write_text("forward backward")
    for one in (user, other):
        assert one.run(*TRAIN, options=("--require-warm", *cache))["compiled"] == 0


def test_what_a_run_that_failed_left_here_serves_where_the_teams_record_cannot_be_fetched(user, tmp_path):
    (shared := tmp_path / "shared").mkdir()
    script = COMPILES.replace('b"graph "', 'Path("salt").read_bytes()')  # two machines build other bytes
    script += "\nimport os, sys\nsys.exit(7 if os.path.exists('fails') else 0)\n"
    (user.work / "train.py").write_text(script)
    (user.work / "salt").write_text("one")
    user.run(*TRAIN)
    user("push", "--cache", f"local:rw,{shared}:rw")
    for path in shared.rglob("*.tar"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[::-1])
    other = User(tmp_path / "other")
    (other.work / "train.py").write_text(script)
    (other.work / "salt").write_text("two")
    (other.work / "fails").touch()
    other.run(*TRAIN, code=7)
    (other.work / "fails").unlink()
    assert other.run(*TRAIN, options=("--cache", f"local:rw,{shared}:r"))["compiled"] == 0


def test_stdout_is_the_commands_and_what_cachekit_says_goes_to_stderr(user):
    done = user("run", "--format", "json", "--", *TRAIN)
    assert done.stdout.splitlines() == ["forward compiled", "backward compiled"]
    assert json.loads(done.stderr.splitlines()[-1])["compiled"] == 2
    done = user("run", "--", "env", *TRAIN)
    assert "cachekit: train.py: exit 0, key " in done.stderr, "the script's name, not its launcher's"
    done = user("run", *TRAIN, "-q")  # from the command's first word on, everything is the command's
    assert json.loads(user("store", "ls", "-f", "json").stdout)[0]["recipe"] == "train.py"
    done = user("run", "--require-warm", "--format", "json", "--", "python", "train.py", "--other", code=3)
    assert done.stdout == ""


def test_dry_run_runs_nothing_and_its_plan_goes_to_stdout(user):
    planned = json.loads(user("run", "--dry-run", "-f", "json", "--", *TRAIN).stdout)
    assert (planned["status"], planned["recipe"]) == ("miss", "train.py")
    user("run", "--dry-run", "--require-warm", "--", *TRAIN, code=3)
    user.run(*TRAIN)
    planned = json.loads(user("run", "--dry-run", "--require-warm", "-f", "json", "--", *TRAIN).stdout)
    assert planned["status"] == "hit"
    hard = json.loads(user("store", "show", planned["key"], "-f", "json").stdout)["hard"]
    assert hard["command.arguments"] == ["--lr", "0.1"]


def test_a_failed_command_loses_nothing_and_its_exit_code_is_the_answer(user):
    done = user.run(*TRAIN, "--fail", "--half", code=7)
    assert (done["exit_code"], done["compiled"], done["kept"]) == (7, 2, True)
    user("run", "--require-warm", "--", *TRAIN, "--fail", "--half", code=3)  # what failed may lack graphs
    planned = json.loads(user("run", "--dry-run", "-f", "json", "--", *TRAIN, "--fail", "--half").stdout)
    assert (planned["status"], planned["expected_seconds"]) == ("hit", None)
    told = user("run", "--dry-run", "--", *TRAIN, "--fail", "--half").stdout
    assert "may lack graphs" in told
    assert "nothing will compile" not in told
    user.run(*TRAIN, "--fail", "--half", code=7)
    assert user.said == ["forward found", "backward found"]


def test_machine_code_of_a_linker_that_was_killed_is_not_kept(user):
    user.run(*TRAIN, "--half")
    (user.work / "train.py").write_text("import os; print(sorted(os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR'])))")
    user.run(*TRAIN, "--half")  # begun with the other's
    assert "forward.so" in user.said[0]
    assert "half.so" not in user.said[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command_once_and_what_compiled_is_kept_and_pushed(user, tmp_path, number):
    (shared := tmp_path / "shared").mkdir()
    process = user.start("run", "-q", "--cache", f"local:rw,{shared}:rw", "--", *TRAIN, "--wait")
    for line in process.stdout:
        if line.strip() == "waiting":
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out.splitlines()) == (5, [f"asked by {number.name}"]), err
    (kept,) = json.loads(user("store", "ls", "-f", "json").stdout)
    assert kept["graphs"] == 2
    assert list((shared / "cachekit/v1/records").rglob(f"{kept['key']}*.json"))
    hurried = '"push.last"' in "".join(path.read_text() for path in user.home.rglob("journal/**/*.jsonl"))
    assert hurried == (number != signal.SIGUSR1), "who asks for the end kills soon"


def test_ctrl_c_at_a_terminal_reaches_the_command_once(user):
    command = ("-m", "cachekit", "run", "-q", "--", *TRAIN, "--wait")
    terminal = Terminal(*command, whole=True, cwd=user.work, **user.environment)
    terminal.until("waiting")
    terminal.type("\x03")
    terminal.end()
    assert terminal.process.returncode == 5
    assert terminal.text.count("asked by SIGINT") == 1
    assert json.loads(user("store", "ls", "-f", "json").stdout)[0]["graphs"] == 2


def test_a_command_that_is_heard_is_at_a_terminal_still(user):
    driver = """
import sys
from cachekit.training.passthrough import Passthrough
heard = []
inner = "import os, sys; print('tty', *(os.isatty(n) for n in range(3))); print('read', input()); sys.exit(9)"
code = Passthrough(hear=heard.append).run([sys.executable, "-c", inner], {})
print("code", code, b"tty True True True" in b"".join(heard), b"read hello" in b"".join(heard))
"""
    terminal = Terminal("-c", driver, whole=True, cwd=user.work, **user.environment)
    terminal.until("tty True True True")
    terminal.type("hello\n")
    terminal.end()
    assert "code 9 True True" in terminal.text


def test_a_strict_run_stops_as_a_compile_begins(user):
    user.run(*TRAIN)
    # The graphs change, and nothing that can be known of the command does.
    (user.work / "train.py").write_text(COMPILES.replace("from parts", "import os\nfrom parts"))
    user.run(*TRAIN)
    done = user("run", "--require-warm", "--", *TRAIN)
    assert done.stdout.splitlines() == ["forward found", "backward found"]
    (user.work / "train.py").write_text(
        COMPILES.replace("in GRAPHS", "in [*GRAPHS, *os.environ.get('MORE', '').split()]")
    )
    user.run(*TRAIN)
    done = user("run", "--require-warm", "--", *TRAIN, code=3, MORE="another", SLOW="30")
    assert "not warm" in done.stderr
    assert user.run(*TRAIN, MORE="another")["compiled"] == 1
    assert user.run(*TRAIN, MORE="another", options=("--require-warm",))["compiled"] == 0


def test_an_edited_script_begins_with_its_old_graphs(user):
    user.run(*TRAIN)
    user.graphs("forward", "backward", "evaluation")
    second = user.run(*TRAIN)
    assert user.said == ["forward found", "backward found", "evaluation compiled"]
    assert (second["status"], bool(second["nearest"])) == ("miss", True)
    third = user.run(*TRAIN)
    assert (third["status"], third["compiled"], user.said[-1]) == ("hit", 0, "evaluation found")
    assert user.run(*TRAIN, options=("--recache",))["compiled"] == 3


def test_a_run_that_ends_before_it_looks_for_a_graph_keeps_nothing(user):
    user.run(*TRAIN)
    (user.work / "train.py").write_text("raise SystemExit(9)\n")
    user("run", "--", *TRAIN, code=9)
    assert len(json.loads(user("store", "ls", "-f", "json").stdout)) == 1


def test_graphs_are_carried_along_for_eight_edits_however_many_runs_added_some(user):
    graphs = [f"graph-{number}" for number in range(10)]
    (user.work / "train.py").write_text(READS)
    for number in range(1, 11):
        (user.work / "graphs").write_text(" ".join(graphs[:number]))
        before = user.run(*TRAIN)
        assert before["compiled"] == 1
    compiled = []
    for number in range(9):
        (user.work / "train.py").write_text(f"{READS}# edit {number}\n")
        done = user.run(*TRAIN)
        user("store", "rm", before["key"])  # another record would do as well
        before = done
        compiled.append(done["compiled"])
    assert compiled == [*[0] * 8, 10]


@pytest.mark.feature("F2")
def test_what_one_machine_compiled_another_finds_in_the_shared_cache(user, tmp_path):
    (tmp_path / "shared").mkdir()
    shared = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    user.run(*TRAIN, options=shared)
    other = User(tmp_path / "another place")
    planned = json.loads(other("run", *shared, "--dry-run", "-f", "json", "--", *TRAIN).stdout)
    assert (planned["status"], planned["remote"]) == ("hit", str(tmp_path / "shared"))
    other.run(*TRAIN, options=shared)
    assert other.said == ["forward found", "backward found"]
    shutil.rmtree(tmp_path / "shared")
    other.run(*TRAIN)
    assert other.said == ["forward found", "backward found"]


def test_a_damaged_blob_is_a_miss_and_no_failure(user):
    user.run(*TRAIN)
    for blob in (user.home / "v1").rglob("*"):
        if blob.is_file() and blob.stat().st_size > 20_000:
            blob.chmod(0o644)
            blob.write_bytes(b"x" * blob.stat().st_size)
    user.run(*TRAIN)
    assert user.said == ["forward compiled", "backward compiled"]
    user.run(*TRAIN)
    assert user.said == ["forward found", "backward found"]


def test_a_run_that_compiled_nothing_misses_nothing_on_a_read_only_store(tmp_path, small_disk):
    user = User(tmp_path / "one", small_disk / "store")
    user.run(*TRAIN)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for words, compiled in ((TRAIN, 0), (("true",), 0), ((*TRAIN, "again"), 0)):
        done = user("run", "-f", "json", "--", *words)
        answer = json.loads(done.stderr.splitlines()[-1])
        assert (answer["compiled"], answer["problem"]) == (compiled, "")
        assert "could not be kept" not in done.stderr
    user.graphs("forward", "backward", "another")
    done = user("run", "-f", "json", "--", *TRAIN)
    assert json.loads(done.stderr.splitlines()[-1])["compiled"] == 1
    assert "could not be kept" in done.stderr


def test_on_a_full_disk_the_command_runs_with_its_graphs_in_the_temporary_folder(tmp_path, small_disk):
    user = User(tmp_path / "one", small_disk / "store")
    user.run(*TRAIN)
    status = os.statvfs(small_disk)
    for spare in (0, 4):  # pages: the folder cannot be made, or not filled
        (small_disk / "filler").write_bytes(bytes((status.f_bfree - spare) * status.f_frsize))
        done = user("run", "--", *TRAIN)
        assert done.stdout.splitlines() == ["forward found", "backward found"]
        assert done.stderr.count("the compiler cache dir was in the temporary folder") == 1
        assert "could not be kept" not in done.stderr
    user.graphs("forward", "backward", "another")
    done = user("run", "--", *TRAIN)
    assert "another compiled" in done.stdout
    assert "could not be kept" in done.stderr
    assert f"the store at {user.home} cannot be written: No space left on device; free some space" in done.stderr
    assert not list((user.home / "v1").glob("cache_dirs/*/*"))
    done = user("run", "--", *TRAIN, TMPDIR=str(small_disk), code=1)
    assert "free some space" in the_error_of(done)[3]


def test_on_a_full_disk_the_command_runs_though_the_teams_record_cannot_be_fetched(user, tmp_path, small_disk):
    (tmp_path / "shared").mkdir()
    cache = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    user.run(*TRAIN, options=cache)
    other = User(tmp_path / "other", small_disk / "store")
    other("store", "ls")
    status = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(status.f_bfree * status.f_frsize))
    assert other("run", *cache, "--", *TRAIN).stdout.splitlines() == ["forward compiled", "backward compiled"]
    other("run", "--require-warm", *cache, "--", *TRAIN, code=1)


def test_a_token_is_in_no_key(user):
    words = ("env", f"WANDB_API_KEY={SECRETS[2]}", *TRAIN, "--password", SECRETS[3], "--hub_token")
    first, second = user.run(*words, SECRETS[0]), user.run(*words, SECRETS[0][:-1] + "X")
    assert (first["compiled"], second["key"]) == (2, first["key"]), "who does it reaches no graph"
    done = user("run", "--ingredient", f"HF_TOKEN={SECRETS[2]}", "--", *TRAIN, code=2)
    assert the_error_of(done)[0] == "usage"


def test_a_script_whose_name_is_no_text_runs(user):
    name = os.fsdecode(b"s \xff.py")
    (user.work / "train.py").rename(user.work / name)
    first = user.run("python", name)
    assert (first["name"], first["command"], first["compiled"]) == (r"s \xff.py", ["python", r"s \xff.py"], 2)
    assert user.run("python", name)["compiled"] == 0


def the_error_of(done):
    return the_error(type("Answer", (), {"err": done.stderr}))


def test_what_cannot_run_is_told_before_anything_happens(user, tmp_path):
    assert the_error_of(user("run", code=2))[1] == "no command was given"
    assert "nowhere.py does not exist" in the_error_of(user("run", "--", "python", "nowhere.py", code=2))[1]
    assert "no-such-program was not found" in user("run", "--", "no-such-program", code=2).stderr
    assert "cachekit run -- python train.py" in user("run", "--", "train.py", code=2).stderr
    assert "has no runs" in user("stats").stdout, "and nothing was missed"
    assert "NAME=VALUE" in the_error_of(user("run", "--ingredient", "x", "--", *TRAIN, code=2))[1]
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho /opt/another\n")
    other.chmod(0o755)
    message, cause = the_error_of(user("run", "--", str(other), "train.py", code=2))[1:3]
    assert "/opt/another" in message
    assert "versions" in cause
