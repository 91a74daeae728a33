"""A machine with Neuron devices and without the packages for them: an error, and never Inductor in silence."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cachekit.compilers import select
from cachekit.compilers.neuron import devices, facts, host, install, installed, presence
from cachekit.errors import CompilerUnavailableError, UsageError
from cachekit.verbs.doctor import checks
from cachekit.verbs.session import load_config, open_session
from tests.compilers.neuron.unusable_cases import (  # noqa: F401 - fixtures
    MESSAGE,
    NATIVE,
    WHOLE,
    answer,
    machine,
    recipe,
    whole,
)
from tests.support.doctor_cases import findings, fine, the_problem

pytest_plugins = ["tests.support.cli_session"]


LISTED = '[{"neuron_device": 0, "nc_count": 2, "memory_size": 34359738368}]'


def tool(folder, monkeypatch, script):
    """A `neuron-ls` on PATH."""
    folder.mkdir()
    (folder / "neuron-ls").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "neuron-ls").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.feature("F6", "U3")
@pytest.mark.parametrize("verb", ["plan", "warm", "train"])
def test_what_compiles_is_an_error_that_says_what_to_install(machine, recipe, command, verb):
    (machine / "neuron0").touch()
    error = answer(command, verb, recipe, code=1)["error"]
    assert error["code"] == "compiler-unavailable"
    assert error["message"].startswith(f"{MESSAGE} ({machine}/neuron0)")
    assert "neuronx-cc, libneuronxla, torch-neuronx, torch-xla are not installed" in error["cause"]
    assert install.way("").run in error["hint"]
    assert "--compiler inductor" in error["hint"]


@pytest.mark.feature("U3")
def test_a_command_is_not_started(machine, recipe, command):
    (machine / "neuron0").touch()
    answer = command("run", "--", "touch", "started", code=1)
    assert f"error[compiler-unavailable]: {MESSAGE}" in answer.err.replace("\n", " ")
    assert not Path("started").exists()


def test_doctor_says_the_same(machine):
    (machine / "neuron0").touch()
    found = the_problem("neuron-packages")
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"
    assert found["run"] == install.way("").run
    (of_devices,) = findings("neuron-devices")
    assert (of_devices["state"], "no Neuron packages" in of_devices["said"]) == ("unknown", False)
    for check in ("neuron-packages", "neuron-devices"):
        assert fine(check, compiler="inductor")
    (of_packages,) = findings("neuron-packages", compiler="inductor")
    assert of_packages["said"].endswith(
        f"; this machine has Neuron devices ({machine}/neuron0), which inductor does not use"
    )


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("versions", [WHOLE, WHOLE | {"nki": "0.6.0"}, NATIVE, {"torch-neuronx": "2.9"}, {}])
def test_doctor_says_that_devices_stay_idle_whatever_packages_are_there(machine, tmp_path, monkeypatch, versions):
    (tmp_path / "product_name").write_text("trn2.48xlarge")
    monkeypatch.setattr(installed, "versions", lambda: versions)
    idle = f"; this machine has Neuron devices ({machine}/neuron0), which inductor does not use"
    assert [one["said"].count(idle) for one in findings("neuron-packages", compiler="inductor")] == [1]
    assert idle not in str(findings("neuron-packages"))


@pytest.mark.parametrize("how", ["flag", "recipe", "variable", "file"])
def test_inductor_is_taken_where_somebody_says_so_and_the_devices_are_told(machine, recipe, command, monkeypatch, how):
    (machine / "neuron0").touch()
    said = f"this machine has Neuron devices ({machine}/neuron0), which inductor does not use"
    words = {"flag": ("--compiler", "inductor"), "recipe": ("--set", "compiler.name=inductor")}.get(how, ())
    if how == "variable":
        monkeypatch.setenv("CACHEKIT_COMPILER", "inductor")
    if how == "file":
        Path("cachekit.toml").write_text('compiler = "inductor"\n')
    planned = answer(command, "plan", recipe, *words, code=0)
    assert (planned["compiler"], planned["lacks"]["accelerator"]) == ("inductor", said)
    assert said in " ".join(command("plan", recipe, *words).out.split())
    for verb in ("warm", "train"):
        told = command(verb, recipe, *words, "--require-warm", code=3).err
        assert f"warning: {said}" in " ".join(told.split())


@pytest.mark.parametrize("verb", ["gc", "push", "import"])
def test_what_compiles_nothing_works_as_ever(machine, verb):
    (machine / "neuron0").touch()
    with open_session(load_config(), verb) as session:
        assert not list(session.store.records())


@pytest.mark.feature("U3")
def test_devices_that_only_neuron_ls_tells_of(tmp_path, monkeypatch):
    tool(tmp_path / "bin", monkeypatch, f"echo '{LISTED}'")
    with pytest.raises(CompilerUnavailableError, match=rf"{MESSAGE} \(neuron-ls lists them\)"):
        select("auto")


@pytest.mark.feature("U3")
@pytest.mark.parametrize("script", ["exit 1", "echo driver trouble >&2; exit 1", "echo garbage", "kill -9 $$"])
def test_a_tool_that_fails_is_an_error_and_never_inductor_in_silence(tmp_path, monkeypatch, command, recipe, script):
    tool(tmp_path / "bin", monkeypatch, script)
    error = answer(command, "plan", recipe, code=1)["error"]
    assert error["message"] == "whether this machine has Neuron devices is not known"
    assert "neuron-ls" in error["cause"]
    found = the_problem("neuron-packages")
    assert (found["said"], found["run"]) == (f"{error['message']}; {error['cause']}", "")
    assert found["repair"].startswith("see what `neuron-ls` prints, or ")
    assert error["hint"].startswith("see what `neuron-ls` prints; or ")
    assert answer(command, "plan", recipe, "--compiler", "inductor", code=0)["compiler"] == "inductor"


@pytest.mark.parametrize("script", ["echo 'no neuron device found'", "echo '[]'"])
def test_the_tool_alone_makes_no_device(tmp_path, monkeypatch, script):
    tool(tmp_path / "bin", monkeypatch, script)
    assert select("auto").name == "inductor"


def test_a_host_without_devices_starts_no_process(monkeypatch):
    def never(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", never)
    monkeypatch.setattr(devices, "list_devices", never)
    monkeypatch.setattr(presence, "DEVICE_FOLDER", "/nowhere")
    assert select("auto").name == "inductor"


@pytest.mark.feature("F6", "U3")
@pytest.mark.parametrize("name", ["trn1.2xlarge", "trn2.48xlarge", "inf2.xlarge", "inf1.xlarge"])
def test_a_machine_of_aws_without_driver_and_packages_is_no_machine_for_inductor(tmp_path, recipe, command, name):
    (tmp_path / "product_name").write_text(f"{name}\n")
    error = answer(command, "plan", recipe, code=1)["error"]
    assert error["message"].startswith(f"{MESSAGE} (it is {'an' if name[0] == 'i' else 'a'} {name})")
    assert the_problem("neuron-packages")["said"] == f"{error['message']}; {error['cause']}"
    found = the_problem("neuron-devices")
    assert f" {name}, and Neuron's driver is not loaded" in found["said"]
    assert found["said"].endswith(facts.REPOSITORY)
    assert "aws-neuronx-dkms && sudo modprobe neuron" in found["run"]


@pytest.mark.parametrize("name", ["m5.large", "p4d.24xlarge", "Virtual Machine", ""])
def test_other_machines_see_nothing_of_neuron(tmp_path, name):
    (tmp_path / "product_name").write_text(f"{name}\n")
    assert select("auto").name == "inductor"
    assert not [check.name for check in checks() if "neuron" in check.name]


def test_a_container_that_was_given_no_devices_is_told_how_it_gets_them(tmp_path):
    (tmp_path / "product_name").write_text("trn1.2xlarge\n")
    (tmp_path / "class" / "neuron0").mkdir(parents=True)
    found = the_problem("neuron-devices")
    assert found["said"].startswith("this is a trn1.2xlarge, and there is no /dev/neuron* here; the driver has devices")
    assert found["run"] == "docker run $(printf -- '--device=%s ' /dev/neuron[0-9]*) IMAGE"
    (tmp_path / "product_name").write_text("")
    assert the_problem("neuron-devices")["said"].startswith("this is a machine with Neuron devices")


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", ["trn1.2xlarge", "m5.large"])
def test_a_driver_without_a_device_makes_none(machine, tmp_path, monkeypatch, name):
    """AWS's images load it on machines without a chip, too, which may compile."""
    for node in machine.iterdir():
        node.unlink()
    (tmp_path / "class").mkdir()
    (tmp_path / "product_name").write_text(f"{name}\n")
    if name == "m5.large":
        monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn1")
        assert fine("neuron-devices")
        assert findings("neuron-devices")[0]["said"].startswith("Neuron's driver is loaded, and has no device")
        monkeypatch.setattr(presence, "meant", lambda: False)
        monkeypatch.setattr(presence, "possible", lambda: False)
        assert select("auto").name == "inductor"
        return
    found = the_problem("neuron-devices")
    assert found["said"].startswith("this is a trn1.2xlarge, and Neuron's driver has found no device; it is loaded")
    assert found["run"] == "sudo modprobe -r neuron && sudo modprobe neuron"
    with pytest.raises(CompilerUnavailableError) as raised:
        assert select("auto").machine
    assert f"{raised.value.message}; {raised.value.cause}" == found["said"]


def test_devices_are_believed_where_only_the_driver_names_the_chip(whole, tmp_path, monkeypatch):
    folder = tmp_path / "sys" / "neuron0" / "info" / "architecture"
    folder.mkdir(parents=True)
    monkeypatch.setattr(facts, "CHIP_FILES", (str(tmp_path / "sys"), "neuron*/info/architecture/device_name"))
    with pytest.raises(CompilerUnavailableError, match="and their chip could not be identified") as raised:
        host.this_host()
    assert facts.TARGET_OVERRIDE in raised.value.hint
    (folder / "device_name").write_text("Trainium1\n")
    found = host.this_host()
    assert (found.target, found.cores) == ("trn1", 4)
    problem = the_problem("neuron-devices")
    assert problem["said"].startswith("there is no neuron-ls, and ")
    assert problem["said"].endswith(facts.REPOSITORY)
    assert "aws-neuronx-tools" in problem["run"]


def test_a_chip_that_the_driver_names_and_nobody_here_knows_gets_no_line(machine, tmp_path, monkeypatch):
    folder = tmp_path / "sys" / "neuron0" / "info" / "architecture"
    folder.mkdir(parents=True)
    (folder / "device_name").write_text("Trainium4\n")
    (machine / "neuron0").touch()
    monkeypatch.setattr(facts, "CHIP_FILES", (str(tmp_path / "sys"), "neuron*/info/architecture/device_name"))
    known = "no release in the table is for Trainium4: it has inf2, trn1, trn2, trn3"
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert known in raised.value.cause
    assert "pip install" not in raised.value.hint
    monkeypatch.setattr(installed, "versions", lambda: WHOLE)
    monkeypatch.setattr(installed, "fault", lambda required: None)
    with pytest.raises(CompilerUnavailableError, match="this machine's chip is Trainium4") as raised:
        host.this_host()
    assert (raised.value.cause, raised.value.hint) == (known, install.PAGE)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    "listed, cores, said",
    [
        (0, 4, "this machine shows 2 of the 16 devices of a trn1.32xlarge, as a container may"),
        (2, 4, "this machine shows 2 of the 16 devices of a trn1.32xlarge, as a container may"),
        (16, 4, "neuron-ls lists 16 devices, and {dev} has 2 nodes: 2 are taken"),
        (1, 2, "neuron-ls lists 1 device, and {dev} has 2 nodes: 1 is taken"),
    ],
)
def test_a_container_has_the_devices_that_it_was_given(listed, cores, said, tmp_path, monkeypatch):
    """The firmware names the whole machine, and a key of 32 workers is not what a container of two devices runs."""
    (tmp_path / "product_name").write_text("trn1.32xlarge\n")
    if listed:
        devices = [{"neuron_device": one, "nc_count": 2} for one in range(listed)]
        tool(tmp_path / "bin", monkeypatch, f"echo '{json.dumps(devices)}'")
    fingerprint = select("neuron").fingerprint()
    assert (host.this_host().cores, fingerprint.workers) == (cores, cores)
    said = said.format(dev=tmp_path / "dev")
    assert fingerprint.lacks["container"] == said
    found = findings("neuron-devices")[0]
    assert said in found["said"]
    assert found["state"] == ("ok" if listed == 2 else "problem")
    monkeypatch.setenv(facts.VISIBLE_CORES, "28-31")
    with pytest.raises(UsageError) as raised:
        select("neuron").fingerprint()
    assert raised.value.cause == f"this container has {cores}, numbered from 0"


@pytest.mark.usefixtures("whole")
def test_a_target_that_is_not_the_devices_own_is_told_and_not_trained_on(tmp_path, recipe, command, monkeypatch):
    """A variable that was left over: what is compiled for another chip is never run here."""
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn2")
    said = f"the devices here are trn1, and {facts.TARGET_OVERRIDE}=trn2: what is compiled for it does not run here"
    assert answer(command, "plan", recipe, code=0)["lacks"]["device"] == said
    assert said in " ".join(command("plan", recipe).out.split())
    error = answer(command, "train", recipe, code=1)["error"]
    assert (error["message"], error["cause"]) == ("there is no device here to train on", said)
    found = the_problem("neuron-devices")
    assert (found["said"], found["run"]) == (said, f"unset {facts.TARGET_OVERRIDE}")
    monkeypatch.setattr(installed, "versions", dict)
    error = answer(command, "plan", recipe, code=1)["error"]
    assert error["cause"].endswith(f"; {said}")
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "inf2")  # whose chip is the same
    assert host.astray() == ""


@pytest.mark.usefixtures("whole")
def test_a_target_that_is_not_the_devices_own_changes_no_package(tmp_path, recipe, command, monkeypatch):
    """The packages that are missing are those for the devices; those that fit the devices stay."""
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn3")
    monkeypatch.setattr(installed, "versions", dict)
    error = answer(command, "plan", recipe, code=1)["error"]
    assert "torch-neuronx==2.9.0.2.15.32035" in error["hint"]
    assert error["hint"].startswith(the_problem("neuron-packages")["run"])
    (tmp_path / "product_name").write_text("trn2.48xlarge")
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "inf2")
    monkeypatch.setattr(installed, "versions", lambda: NATIVE)
    for verb in ("plan", "warm", "train"):
        error = answer(command, verb, recipe, code=1)["error"]
        assert "TorchNeuron, which does not run on inf2" in error["cause"]
        assert error["hint"].startswith(f"unset {facts.TARGET_OVERRIDE}; or ")
    found = the_problem("neuron-packages")
    assert (found["said"], found["run"]) == (
        f"{error['message']}; {error['cause']}",
        f"unset {facts.TARGET_OVERRIDE}",
    )


@pytest.mark.usefixtures("whole")
def test_a_machine_whose_devices_cannot_be_reached_trains_nothing(machine, tmp_path, recipe, command, monkeypatch):
    """Else a trial begins, and ends after minutes in the runtime's own words."""
    for node in machine.iterdir():
        node.unlink()
    (tmp_path / "product_name").write_text("inf2.xlarge\n")
    found = the_problem("neuron-devices")
    assert found["said"].startswith("this is an inf2.xlarge, and Neuron's driver is not loaded; ")
    for verb in ("plan", "warm", "train"):
        for options in ((), ("--compiler", "neuron")):
            error = answer(command, verb, recipe, *options, code=1)["error"]
            assert f"{error['message']}; {error['cause']}" == found["said"]
            assert error["hint"].startswith(found["run"])
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "inf2")  # whoever says so compiles for another machine
    assert host.this_host().target == "inf2"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("said", ["", "trn9"])
def test_a_machine_without_a_device_to_compile_for_is_told_by_doctor_as_by_plan(
    machine, recipe, command, monkeypatch, said
):
    for node in machine.iterdir():
        node.unlink()
    monkeypatch.setenv(facts.TARGET_OVERRIDE, said)
    error = answer(command, "plan", recipe, code=2 if said else 1)["error"]
    found = the_problem("neuron-devices")
    assert found["said"] == "; ".join(filter(None, (error["message"], error.get("cause"))))
    assert found["repair"] == error["hint"]
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn1")
    assert fine("neuron-devices")


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(("said", "cores"), [("", 64), ("2", 64), ("1", 128)])
def test_smaller_cores_are_more_of_them(machine, tmp_path, recipe, command, *, monkeypatch, said, cores):
    """Where each has one physical core, and not two as by default, `auto` means twice as many workers."""
    (tmp_path / "product_name").write_text("trn2.48xlarge")
    for number in range(16):
        (machine / f"neuron{number}").touch()
    monkeypatch.setenv(facts.LNC, said)
    hard = answer(command, "plan", recipe, code=0)["ingredients"]["hard"]
    assert (hard["parallel.data_parallel_size"], hard["target.lnc"]) == (cores, 64 * 2 // cores)
    monkeypatch.setenv(facts.VISIBLE_CORES, f"0-{cores}")
    assert f"there is no core {cores}" in answer(command, "plan", recipe, code=2)["error"]["message"]


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("said", ["x", "0", "4"])
def test_cores_that_are_joined_in_no_known_way_are_refused_by_doctor_as_by_plan(recipe, command, monkeypatch, said):
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn2")
    monkeypatch.setenv(facts.LNC, said)
    error = answer(command, "plan", recipe, code=2)["error"]
    found = the_problem("neuron-devices")
    assert (found["said"], found["repair"]) == (error["message"], error["hint"])
    assert (error["message"], error["hint"]) == (f"{facts.LNC}={said} cannot be read", "set it to one of 1, 2")


@pytest.mark.usefixtures("whole")
def test_doctor_says_of_the_other_stack_what_plan_says(recipe, command, monkeypatch):
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn2")
    error = answer(command, "plan", recipe, "--compiler", "neuron-native", code=1)["error"]
    found = the_problem("neuron-packages", compiler="neuron-native")
    assert (found["said"], found["repair"]) == (f"{error['message']}; {error['cause']}", error["hint"])


@pytest.mark.parametrize(
    "maker, number, chip",
    [
        ("0x1d0f", "0x7164", "trn1"),
        ("0x1d0f", "0x7264", "inf2"),
        ("0x1d0f", "0x7364", "trn2"),
        ("0x1d0f", "0x7564", "trn3"),
        ("0x1d0f", "0x7064", "inf1"),
        ("0x1d0f", "0x8061", ""),
        ("0x10de", "0x7364", ""),
    ],
)
def test_devices_on_the_bus_are_seen_without_the_driver(machine, tmp_path, maker, number, chip):
    for name, text in (("0000:00:1d.0", "0x8061"), ("0000:00:1e.0", number)):
        (tmp_path / "pci" / name).mkdir(parents=True)
        (tmp_path / "pci" / name / "vendor").write_text(f"{maker}\n")
        (tmp_path / "pci" / name / "device").write_text(f"{text}\n")
    assert presence.pci_chip() == chip
    if not chip:
        assert select("auto").name == "inductor"
        return
    with pytest.raises(CompilerUnavailableError, match=rf"{MESSAGE} \(they are on its PCI bus\)") as raised:
        select("auto")
    assert install.way(chip).run in raised.value.hint
    assert "Neuron's driver is not loaded" in the_problem("neuron-devices")["said"]


def test_nothing_is_planned_with_a_release_that_nothing_trains_with(command, recipe):
    error = answer(command, "plan", recipe, "--toolchain", "neuron-2.32", "--instance", "trn1.2xlarge", code=2)["error"]
    assert error["message"] == "nothing trains with neuron-2.32"
    assert error["cause"].endswith("(NCC_ISMP902, 2026-09), and libneuronxla 3.x is JAX's"), (
        "as the table says of this chip"
    )
    assert error["hint"] == "--toolchain neuron-2.31"
    where = ("--toolchain", "neuron-2.32", "--instance", "trn1.2xlarge", "--compiler", "neuron-native")
    assert answer(command, "plan", recipe, *where, code=2)["error"] == error, "whatever compiler is named"


def test_hints_of_toolchains_lead_to_one_that_plans(command):
    """A model that is split trains on XLA only: of two refusals neither may lead to the other."""
    on = ("--instance", "trn2.48xlarge")
    error = answer(command, "plan", "llama3-8b-lora", "--toolchain", "neuron-2.32", *on, code=2)["error"]
    assert error["hint"] == "--toolchain neuron-2.33, or neuron-2.31"
    error = answer(command, "plan", "llama3-8b-lora", "--toolchain", "neuron-2.33", *on, code=2)["error"]
    assert error["hint"] == "--toolchain neuron-2.31"
    assert answer(command, "plan", "llama3-8b-lora", "--toolchain", "neuron-2.31", *on, code=0)["status"] == "miss"
    error = answer(command, "plan", "bert", "--toolchain", "neuron-2.33", "--instance", "inf2.xlarge", code=2)["error"]
    assert "inf2.xlarge is inf2: the packages of 2.31, with the compiler of 2.31" in error["cause"]
    assert error["hint"] == "--toolchain neuron-2.31"
    error = answer(command, "plan", "bert", "--instance", "trn3.48xlarge", code=2)["error"]
    assert error["message"] == "the registry has no machine of trn3", "and none of another chip is offered for it"
    error = answer(command, "plan", "llama3-8b-lora", "--toolchain", "neuron-2.33", "--target", "trn1", code=2)["error"]
    assert "--toolchain neuron-2.31" in error["cause"]
