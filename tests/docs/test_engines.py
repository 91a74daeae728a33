"""The files of the pages about engines that cachekit does not drive, against what their makers publish of them."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cachekit import config_trust
from cachekit.config import PREFIX, SETTINGS
from cachekit.recipe import zoo
from tests.docs.engine_schemas import github, kubernetes, skypilot

PAGES = Path(__file__).parents[2] / "docs" / "howto"
SCREEN = 80  # lines


def files(page: str) -> list[Any]:
    """The YAML of a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [yaml.safe_load(code) for code in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def changed(document: Any, place: str, value: Any) -> Any:
    """A copy with a value at a place; with a new name, beside the one that was there."""
    copy = deepcopy(document)
    *path, last = (int(word) if word.isdigit() else word for word in place.split("/"))
    inner = copy
    for word in path:
        inner = inner[word]
    inner[last] = value
    return copy


@pytest.mark.parametrize("page", ["skypilot.md", "kubernetes.md", "github-actions.md"])
def test_a_page_is_short(page):
    assert len((PAGES / page).read_text(encoding="utf-8").splitlines()) <= SCREEN


# SkyPilot


def test_skypilot_takes_the_tasks():
    tasks = files("skypilot.md")
    assert [task["name"] for task in tasks] == ["warm", "train"]
    for task in tasks:
        assert skypilot(task) == []


def test_skypilot_would_refuse_a_wrong_task():
    for place, value in [
        ("num_node", 2),
        ("num_nodes", "two"),
        ("resources/instance-type", "trn1.2xlarge"),
        ("resources/use_spot", "yes please"),
        ("resources/infra", "asw/us-east-1/x/y/z"),
        ("resources/job_recovery/max_restart_on_errors", 0),
        ("resources/job_recovery/recover_on_exit_codes", [300]),
        ("file_mounts/\u2215checkpoints/mode", "MOUNTED"),
        ("run", ["cachekit"]),
    ]:
        task = files("skypilot.md")[1]
        task["file_mounts"] = {name.replace("/", "\u2215"): mount for name, mount in task["file_mounts"].items()}
        assert skypilot(task) == []
        assert skypilot(changed(task, place, value)) != []


# Kubernetes


@pytest.mark.parametrize("version", ["1.33", "1.34", "1.35", "1.36", "1.37"])
def test_kubernetes_takes_the_objects(version):
    objects = files("kubernetes.md")
    assert [one["kind"] for one in objects] == ["Job", "Service"]
    for one in objects:
        assert kubernetes(one, version) == []


POD = "spec/template/spec"
WRONG = [
    ("spec/completion", 2),
    ("spec/completions", "two"),
    ("spec/completionMode", "Indexd"),
    ("spec/podFailurePolicy/rules/0/action", "Ignored"),
    ("spec/podFailurePolicy/rules/1/onExitCodes/operator", "Within"),
    ("spec/podFailurePolicy/rules/1/onExitCodes/values", ["3"]),
    (f"{POD}/restartPolicy", "Sometimes"),
    (f"{POD}/nodeSelectors", {}),
    (f"{POD}/containers/0/resources/limit", {"aws.amazon.com/neuron": 16}),
    (f"{POD}/containers/0/command", "cachekit"),
    (f"{POD}/containers/0/volumeMounts/0/mount_path", "/dev/shm"),
    (f"{POD}/volumes/0/emptyDir/medium", "Memmory"),
    (f"{POD}/terminationGracePeriodSeconds", "1m"),
]


def test_kubernetes_would_refuse_a_wrong_job():
    for place, value in WRONG:
        job = files("kubernetes.md")[0]
        assert kubernetes(changed(job, place, value), "1.37") != []


def test_the_pods_find_each_other():
    """By names that Kubernetes makes of the job's, the index and the service's."""
    job, service = files("kubernetes.md")
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    first = f"--master-addr {job['metadata']['name']}-0.{pod['subdomain']}"
    count = f"--nnodes {job['spec']['completions']}"
    for container in (*pod["initContainers"], *pod["containers"]):
        assert first in container["args"][0]
        assert count in container["args"][0]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    rule = job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]
    assert rule["containerName"] in {container["name"] for container in pod["containers"]}


def test_names_that_no_schema_has_are_those_of_neurons_plugin_and_of_the_registry():
    """Kubernetes takes any name there, and no node would ever fit: [Neuron's and EFA's device plugins; Kubernetes'
    well-known labels]."""
    pod = files("kubernetes.md")[0]["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["resources"]["limits"].keys() == {"aws.amazon.com/neuron", "vpc.amazonaws.com/efa"}
    assert pod["nodeSelector"].keys() == {"node.kubernetes.io/instance-type"}
    machine = zoo.instance(pod["nodeSelector"]["node.kubernetes.io/instance-type"])
    assert {one["resources"]["limits"]["aws.amazon.com/neuron"] for one in pod["containers"]} == {machine.chips}
    for task in files("skypilot.md"):
        assert zoo.instance(task["resources"]["instance_type"])


def test_words_that_no_schema_has_are_those_of_who_reads_them():
    """A variable, a place or a condition with another name would do nothing, without a word.

    [Kubernetes: "Pod conditions", "Pod failure policy"; SkyPilot: "Task YAML"]
    """
    job = files("kubernetes.md")[0]
    pod = job["spec"]["template"]["spec"]
    ignored = job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"]
    assert ignored == [{"type": "DisruptionTarget", "status": "True"}]
    for container in (*pod["initContainers"], *pod["containers"]):
        variables = {one["name"]: one["value"] for one in container["env"]}
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert variables.keys() <= {"CACHEKIT_HOME", "CCOM_SOCKET_IFNAME"}
        assert variables["CACHEKIT_HOME"] == mounts["cache"]
        assert mounts["shm"] == "/dev/shm"
    assert f"--checkpoint-dir {mounts['checkpoints']} " in pod["containers"][0]["args"][0]
    (mount,) = files("skypilot.md")[1]["file_mounts"]
    assert f'--checkpoint-dir "{mount}/$' in files("skypilot.md")[1]["run"]


# GitHub Actions


def workflows() -> list[Any]:
    """YAML 1.1 reads the key `on` as true."""
    return [
        {"on" if name is True else name: value for name, value in one.items()} for one in files("github-actions.md")
    ]


def test_github_takes_the_workflows():
    assert [one["name"] for one in workflows()] == ["cache", "test"]
    for one in workflows():
        assert github(one) == []


def test_our_own_action_has_the_inputs_that_the_page_gives_it():
    action = yaml.safe_load((PAGES.parents[1] / "action.yml").read_text(encoding="utf-8"))
    given = [step["with"] for step in workflows()[1]["jobs"]["test"]["steps"] if step.get("uses") == "./cachekit"]
    assert given
    assert all(one.keys() <= action["inputs"].keys() for one in given)


def test_jobs_steps_and_variables_have_the_names_of_who_reads_them():
    """No schema knows the inputs of other people's actions [actions/checkout, actions/setup-python: action.yml]."""
    inputs = {"actions/checkout@v4": {"repository", "path"}, "actions/setup-python@v5": {"python-version"}}
    known = {f"{PREFIX}{name.upper()}" for name in SETTINGS} | {config_trust.KEY, "HF_TOKEN"}
    for one in workflows():
        for job in one["jobs"].values():
            assert job.get("needs", next(iter(one["jobs"]))) in one["jobs"]
            assert set(re.findall(r"needs\.([\w-]+)\.", job.get("if", ""))) <= {job.get("needs")}
            for step in job["steps"]:
                assert step.get("with", {}).keys() <= inputs.get(step.get("uses"), {"recipes", "options"})
                assert step.get("env", {}).keys() <= known
                for name, value in step.get("env", {}).items():
                    assert re.findall(r"secrets\.(\w+)", value) in ([], [name])


def test_github_would_refuse_a_wrong_workflow():
    for place, value in [
        ("jobs/warm/run-on", "ubuntu-latest"),
        ("jobs/warm/timeout-minutes", "an hour"),
        ("jobs/warm/steps/1/runs", "cachekit warm bert"),
        ("jobs/warm/steps/1/env", ["HF_TOKEN"]),
        ("permissions/content", "read"),
        ("permissions/contents", "all"),
        ("on/pull_requests", {}),
        ("concurrency/cancel-in-progres", False),
    ]:
        assert github(changed(workflows()[0], place, value)) != []
