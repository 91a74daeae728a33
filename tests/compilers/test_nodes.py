"""What an engine tells a machine of its place among several. With a real Slurm: `tests/executors/test_slurm.py`."""

from __future__ import annotations

import json

import pytest

from cachekit.compilers import nodes
from cachekit.compilers.port import Node
from cachekit.errors import UsageError

STEP = {"SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1"}


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """A step of srun's, and an scontrol that writes out the list."""
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    tool = tmp_path / "scontrol"
    tool.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[2-3]" ] && printf "n2\\nn3\\n"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.fixture
def sagemaker(monkeypatch, tmp_path):
    file = tmp_path / "resourceconfig.json"
    file.write_text(json.dumps({"current_host": "algo-2", "hosts": ["algo-2", "algo-1"]}))
    monkeypatch.setattr(nodes, "SAGEMAKER", file)
    monkeypatch.setenv("TRAINING_JOB_NAME", "bert")


@pytest.mark.usefixtures("slurm")
def test_slurm_tells_each_machine_of_a_step():
    assert nodes.place(2, 41000) == Node(1, "n2", 41000)


@pytest.mark.usefixtures("sagemaker")
def test_sagemaker_tells_each_host_of_a_job():
    assert nodes.place(2, 41000) == Node(1, "algo-1", 41000)


def test_where_no_engine_tells_nothing_is_known(monkeypatch):
    monkeypatch.delenv("SLURM_STEP_NODELIST", raising=False)
    assert nodes.place(2, 41000) is None


@pytest.mark.usefixtures("slurm")
def test_another_number_of_machines_or_commands_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="started this on 2 machines, but the training is for 3"):
        nodes.place(3, 41000)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "64")
    with pytest.raises(UsageError, match="64 commands on 2 machines") as raised:
        nodes.place(2, 41000)
    assert raised.value.hint == "srun -N2 --ntasks-per-node=1"


@pytest.mark.usefixtures("slurm")
def test_without_scontrol_the_user_must_say(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="cannot tell which machine") as raised:
        nodes.place(2, 41000)
    assert "--master-addr" in raised.value.hint


@pytest.mark.usefixtures("sagemaker")
def test_a_job_of_another_size_is_refused():
    with pytest.raises(UsageError, match="SageMaker started this on 2 machines"):
        nodes.place(4, 41000)
