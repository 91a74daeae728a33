"""Slurm as an engine: one array job a fleet, a whole machine a command, or several.

Nothing of accounting is needed, which many clusters have switched off: `squeue` tells of jobs until a few minutes
after they ended (`MinJobAge`), and the notes of the commands tell of them afterwards. What else a cluster asks for
(account, quality of service) is said in the variables that sbatch reads: SBATCH_ACCOUNT, SBATCH_QOS [sbatch(1)].
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from cachekit import redact
from cachekit.config import Config
from cachekit.errors import EngineError, MachineGoneError, SecretError, UnknownNameError
from cachekit.executors import unit
from cachekit.executors.port import Fleet, Places, Seen, State

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
PATIENCE = 60  # seconds for an answer of the controller
MINUTE = 60  # seconds: in whole ones Slurm limits a job's time [sbatch(1), "--time"]
RESTARTS = 5  # how often a job goes on after one of its nodes died
# [squeue(1), "JOB STATE CODES"] A requeued job is PENDING again, and so waits.
STATES: dict[str, State] = {
    "PENDING": "waiting",
    "REQUEUED": "waiting",
    "REQUEUE_HOLD": "waiting",
    "SPECIAL_EXIT": "waiting",
    "PREEMPTED": "lost",
    "CONFIGURING": "running",
    "RUNNING": "running",
    "COMPLETING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "RESIZING": "running",
    "COMPLETED": "done",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "lost",
    "NODE_FAIL": "lost",
    "REVOKED": "lost",
    "CANCELLED": "cancelled",
    "TIMEOUT": "timed-out",
    "DEADLINE": "timed-out",
}
# The others end within seconds of a node's death, and Slurm, which notices it in minutes (SlurmdTimeout), would take
# the job for failed. The job asks for its requeue itself, so that a cluster needs no RequeueExit= [slurm.conf(5)].
_TOGETHER = f"""\
{{run}} "$SLURM_ARRAY_TASK_ID"
code=$?
if [ $code -eq {MachineGoneError.exit_code} ] && [ "${{{{SLURM_RESTART_COUNT:-0}}}}" -lt {RESTARTS} ]; then
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
fi
exit $code"""
UNTOLD = {"None", "", "(null)"}  # what squeue says where there is no reason


def _asked(*command: str, script: str = "") -> str:
    """What a program of Slurm's answers.

    Raises:
        EngineError: It is not here, failed, or did not answer in time.
    """
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=True
        )
    except FileNotFoundError as error:
        raise EngineError(
            f"Slurm was not found: `{command[0]}` is not on PATH", hint="run this where `sinfo` works, or --on local"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"Slurm does not answer: {command[0]} took more than {PATIENCE} s") from error
    except subprocess.CalledProcessError as error:
        said = " ".join(str(error.stderr or error.stdout).split())
        hint = "run this on a machine of the cluster, where `sinfo` works"
        if "Invalid job array" in said:
            hint = "submit a shorter list: `scontrol show config` shows the cluster's MaxArraySize"
        elif command[0] == "sbatch":  # the others have answered
            hint = (
                "what the cluster asks for besides a partition goes into sbatch's variables: SBATCH_ACCOUNT, SBATCH_QOS"
            )
        raise EngineError(f"{command[0]} failed", cause=said[-500:], hint=hint) from error
    return done.stdout


class _Slurm:
    rents, spot = True, False  # whether a partition's machines are Spot instances, the cluster says
    places: Places | None = None

    def check(self, queue: str, config: Config, verb: str) -> Mapping[str, Any]:
        if redact.holds(config.slurm_setup):  # on several nodes it stands in the arguments of srun and of a shell
            raise SecretError(
                "slurm_setup would carry a secret to Slurm's machines, whose users see it in the list of processes",
                hint='read it there, from a file that only you can read: export NAME="$(cat FILE)"',
            )
        for program in PROGRAMS:
            if shutil.which(program) is None:
                raise EngineError(
                    f"Slurm was not found: `{program}` is not on PATH",
                    hint="run this where `sinfo` works, or --on local",
                )
        shown = [line.partition("|") for line in _asked("sinfo", "--noheader", "--format=%P|%l").split()]
        partitions = {name.rstrip("*"): limit for name, _, limit in shown}
        if queue and queue not in partitions:
            raise UnknownNameError(
                f"Slurm has no partition {queue!r}", hint=f"there are: {', '.join(sorted(partitions)) or 'none'}"
            )
        own = queue or next((name.rstrip("*") for name, _, _ in shown if name.endswith("*")), "")
        return {"setup": config.slurm_setup, "longest": _seconds(partitions.get(own, "")), "shortest": MINUTE}

    def together(self, nodes: int, options: Mapping[str, Any]) -> tuple[str, ...]:
        """One command on each node, with all of its processors; what the first one answers is the answer."""
        step = ("srun", f"--nodes={nodes}", "--ntasks-per-node=1", "--whole", "--cpu-bind=none")
        script = f'{options["setup"]}\nexec "$@"'  # what the setup says may be another thing on each node
        return (*step, "--output=0", "--error=all", "/bin/sh", "-c", script, "sh")

    def machine(self, queue: str) -> str:
        return ""

    def request(self, fleet: Fleet) -> str:
        """The script that sbatch gets. A machine's death requeues the command, which then finds what was pushed."""
        if "\\" in fleet.folder:  # [sbatch(1), "filename pattern"]
            raise EngineError(
                f"Slurm cannot write into {fleet.folder}",
                cause="it allows no backslash in the name of a job's output file",
                hint="name a store without one: --home DIR, or CACHEKIT_HOME",
            )
        options = {
            "job-name": _name(fleet),
            "partition": fleet.queue,
            "array": f"0-{len(fleet.units) - 1}%{fleet.jobs}",
            "chdir": fleet.cwd,
            "output": f"{fleet.folder.replace('%', '%%')}/%a.engine",  # [sbatch(1), "filename pattern"]
            "time": str(max(1, int(fleet.seconds // MINUTE))) if fleet.seconds is not None else "",
        }
        lines = [f"#SBATCH --{name}={shlex.quote(value)}" for name, value in options.items() if value]
        run = shlex.join([sys.executable, unit.__file__, fleet.folder])
        nodes = fleet.options.get("nodes", 1)
        job = (f"nodes={nodes}", f"ntasks={nodes}", "ntasks-per-node=1", "exclusive", "requeue", "open-mode=append")
        return "\n".join([
            "#!/bin/sh",
            *lines,
            *(f"#SBATCH --{flag}" for flag in job),
            *filter(None, [str(fleet.options.get("setup", ""))]),
            f'exec {run} "$SLURM_ARRAY_TASK_ID"' if nodes == 1 else _TOGETHER.format(run=run),
            "",
        ])  # fmt: skip

    def submit(self, fleet: Fleet) -> None:
        _asked("sbatch", "--parsable", script=self.request(fleet))

    def look(self, fleet: Fleet) -> Mapping[int, Seen]:
        shown = ("--states=all", "--array", "--noheader", "--format=%K|%T|%N|%r")
        seen, rest = {}, None
        for line in _asked("squeue", f"--name={_name(fleet)}", *shown).splitlines():
            number, state, machine, reason = (line.strip().split("|", 3) + [""] * 3)[:4]
            untold = reason in UNTOLD or state == "CANCELLED"  # why it waited, until then
            one = Seen(STATES.get(state, "unknown"), machine, "" if untold else reason)
            if number.isdecimal():
                seen[int(number)] = one
            else:  # N/A: what had not begun of an array that was cancelled is one job without numbers
                rest = one
        if rest is not None:
            seen |= {number: rest for number in range(len(fleet.units)) if number not in seen}
        return seen

    def fetch(self, fleet: Fleet, number: int) -> None:
        """Nothing: the commands write there."""

    def cancel(self, fleet: Fleet) -> None:
        _asked("scancel", f"--name={_name(fleet)}")


def _seconds(limit: str) -> int | None:
    """The longest that a partition lets a job run; one that asks for more would wait for ever. None for no limit.

    `[DAYS-]HOURS:MINUTES:SECONDS`, of which only the last ones may be there [sinfo(1), "%l"].
    """
    days, _, rest = limit.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")):
        return None  # infinite, n/a
    hours, minutes, seconds = map(int, ["0", "0", *parts][-3:])
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _name(fleet: Fleet) -> str:
    """What the job is called: by it the fleet is found again, also where the submission's answer was lost."""
    return f"cachekit-{fleet.id}"


ENGINE = _Slurm()
