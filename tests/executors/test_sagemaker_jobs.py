"""Jobs on a stand-in for SageMaker that really runs them; the compiler is a stand-in, too."""

import json
import signal

import pytest

from tests.executors.fleet_session import until
from tests.executors.sagemaker_local import lacking, wrong
from tests.executors.sagemaker_session import KIND
from tests.support.processes import free_port

pytest_plugins = ["tests.executors.sagemaker_session"]
pytestmark = [pytest.mark.servers, pytest.mark.skipif(bool(lacking()), reason=lacking())]
FREE = ("--price", "0")
ON = ("--on", f"sagemaker:{KIND}", *FREE)


def show(user):
    return user("fleet", "show", "--format", "json")[0]


@pytest.mark.feature("F2")
def test_what_jobs_compile_is_found_from_here_and_by_a_training_there(user, tmp_path):
    done = user.warm(user.matrix([1, 2]), *ON, "--jobs", "2")
    assert done["counts"] == {"done": 2}
    assert [unit["status"] for unit in done["units"]] == ["compiled", "compiled"]
    assert done["compiled"] == 6
    assert {unit["machine"] for unit in done["units"]} == {KIND}
    assert all(unit["code"] == 0 and unit["seconds"] > 0 for unit in done["units"])
    user("pull", "toy.yaml", "--set", "training.per_device_train_batch_size=2")
    one = ("toy.yaml", "--set", "training.per_device_train_batch_size=2")
    trained = user("train", *one, *ON, "--require-warm", "--spot", "--format", "json")[0]
    (unit,) = trained["units"]
    assert (unit["state"], unit["status"], unit["compiled"]) == ("done", "hit", 0)
    job = user.job()
    assert job.request["EnableManagedSpotTraining"]
    model = user.service.model(job.name, tmp_path / "model")
    assert (model / "model.bin").read_bytes() == b"weights"
    assert json.loads((model / "cachekit-result.json").read_text())["compiled"] == 0


@pytest.mark.feature("F2")
def test_a_training_on_two_machines_is_one_job_that_runs_on_both(user):
    """Each is told its place; one of them compiles, and the other waits for the record."""
    where = ("--set", "parallel.nodes=2", "--master-port", str(free_port()))
    (unit,) = user("train", "toy.yaml", *where, *ON, "--format", "json")[0]["units"]
    assert (unit["state"], unit["compiled"]) == ("done", 0)
    job = user.job()
    assert job.request["ResourceConfig"]["InstanceCount"] == len(job.hosts) == 2
    compiling = [host for host in job.hosts if any(line.startswith("compiling: ") for line in job.lines(host))]
    assert len(compiling) == 1


def test_a_job_that_fails_says_why_in_its_own_words(user):
    user.service.image["STANDIN_FAIL"] = "compile"
    done = user.warm(user.matrix([1]), *ON, code=1)
    (unit,) = done["units"]
    assert (unit["state"], unit["code"]) == ("failed", 6)
    assert unit["reason"] or "the compiler" in unit["error"]
    shown, _ = user("fleet", "logs", done["id"], "0")
    assert "error[compile-failed]" in shown
    assert "AlgorithmError" in shown


def test_what_a_job_compiled_and_could_not_push_is_no_success(user):
    user.service.image["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"  # nobody answers there
    done = user("warm", "toy.yaml", *ON, "--format", "json", code=1)[0]
    (unit,) = done["units"]
    assert (unit["state"], unit["status"]) == ("done", "compiled")
    assert "not pushed (push-failed)" in done["error"]["cause"]


def test_cancel_is_a_stop_that_reaches_the_command_and_ctrl_c_stops_nothing(user):
    """The entry point is the container's first process: what did not handle SIGTERM would be killed after `grace`."""
    user.service.image["STANDIN_DELAY"] = "100"
    user.service.grace = 60.0
    run = user.begin("warm", "toy.yaml", *ON)
    job = user.job()
    until(lambda: job.containers and any("compiling" in line for line in job.lines("algo-1")))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "the commands go on" in err
    assert show(user)["counts"] == {"running": 1}
    assert "compiling" in user("fleet", "logs")[0]
    user("fleet", "cancel")
    done = user("fleet", "wait", "--format", "json", code=1)[0]
    assert done["counts"] == {"cancelled": 1}
    assert [one.returncode for one in job.containers] == [130], "it ended by itself"
    assert "error[interrupted]" in user("fleet", "logs")[0]


def test_a_job_that_uses_up_its_time_is_ended(user):
    user.service.image["STANDIN_DELAY"] = "100"
    dollars = ("--price", "3600", "--max-dollars", "3")  # a dollar a second
    done = user("warm", "toy.yaml", "--on", f"sagemaker:{KIND}", *dollars, "--format", "json", code=1)[0]
    assert user.job().request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3}
    assert done["counts"] == {"timed-out": 1}


def test_what_the_service_refuses_leaves_no_other_job_behind(user):
    refused = "ResourceLimitExceeded", "The account-level service limit is 1 Instances, with current utilization of 1"
    create, made = user.service._CreateTrainingJob, []
    user.service._CreateTrainingJob = lambda asked: (
        create(asked) if not made and not made.append(1) else (400, {"__type": refused[0], "message": refused[1]})
    )
    user.service.image["STANDIN_DELAY"] = "100"
    _, err = user("warm", "--matrix", user.matrix([1, 2]), *ON, "--jobs", "2", code=1)
    assert refused[1] in err
    assert "Service Quotas" in err
    job = user.job()
    until(lambda: job.ended)
    assert job.status == "Stopped"


def test_a_machine_that_is_taken_away_starts_again(user):
    user.service.image["STANDIN_DELAY"] = "3"
    user.environment["CACHEKIT_LEASE_SECONDS"] = (
        "5"  # the job has it, too: it waits for the lease of its own first start
    )
    run = user.begin("warm", "toy.yaml", *ON, "--spot", "--format", "json")
    job = user.job()
    until(lambda: job.containers and any("compiling" in line for line in job.lines("algo-1")))
    job.interrupt()
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert json.loads(out)["counts"] == {"done": 1}
    assert job.starts == 2


def test_a_dry_run_submits_nothing_and_prints_the_request(user):
    warm = user("warm", "toy.yaml", "--on", f"sagemaker:{KIND}", "--dry-run", "--format", "json")[0]
    assert "--max-dollars" in warm["lacks"][0]
    assert warm["price"] is None, "no dated source quotes one"
    shown, _ = user("warm", "toy.yaml", "--on", f"sagemaker:{KIND}", "--dry-run", "--price", "1.54")
    assert "costs an unknown amount for compiling, at $1.54 an hour" in " ".join(shown.split())
    request = json.loads(warm["request"])
    assert wrong(request) == []
    assert user.service.jobs == {}
    assert request["AlgorithmSpecification"]["ContainerArguments"][:3] == ["cachekit", "warm", "0-toy.yaml"]
    shown, _ = user("train", "toy.yaml", "--on", "sagemaker:ml.trn1.32xlarge", "--spot", "--dry-run")
    assert "1 will compile" in shown
    assert "AWS Machine Learning Blog" in " ".join(shown.split()), "who says the price"
    assert '"EnableManagedSpotTraining": true' in shown
    assert "would not be submitted as it is" in shown


@pytest.mark.feature("W4")
def test_a_job_without_a_device_is_told_what_it_compiles_for(user):
    on = ("--on", f"sagemaker:{KIND}", "--for", "ml.trn1.32xlarge", "--price", "2", "--max-dollars", "5", "--dry-run")
    warm = user("warm", "toy.yaml", *on, "--format", "json")[0]
    request = json.loads(warm["request"])
    assert wrong(request) == []
    assert request["ResourceConfig"]["InstanceType"] == KIND
    arguments = request["AlgorithmSpecification"]["ContainerArguments"]
    assert arguments[arguments.index("--for") + 1] == "ml.trn1.32xlarge"
    assert (warm["compile_for"], warm["price"]["per_hour"]) == ("ml.trn1.32xlarge", 2)
    assert warm["price_there"]["source"].endswith("2023-03")
    assert "aws-neuron-sdk#910" in warm["doubt"]


def test_a_job_without_a_network_has_the_records_as_a_channel(user):
    user.warm(user.matrix([1]), *ON)
    user.settings(isolated="true")
    _, err = user("train", "toy.yaml", *ON, code=2)
    assert "would download the data set" in err
    user.settings(isolated="true", environment='{HF_HUB_OFFLINE = "1"}')  # the image has it
    one = ("toy.yaml", "--set", "training.per_device_train_batch_size=1")
    trained = user("train", *one, *ON, "--require-warm", "--format", "json")[0]
    (unit,) = trained["units"]
    assert (unit["state"], unit["status"], unit["compiled"]) == ("done", "hit", 0)
    assert user.job().request["EnableNetworkIsolation"]
    _, err = user("warm", *one, *ON, code=2)
    assert "cannot push" in err


@pytest.mark.parametrize(
    ("old", "new", "options", "says"),
    [
        ('"team:rw"', '"team:r"', FREE, "no shared cache can be written"),
        ('trust = "owner"', 'trust = "signed"', FREE, "not signed"),
        ("/cache", "-nowhere/cache", FREE, "cannot be written"),
        ("role = ", "# role = ", FREE, "needs sagemaker.role"),
        ("", "", (), "--max-dollars"),
        ("", "", ("--price", "2", "--max-dollars", "nan"), "not an amount of money"),
        ("", "", ("--price", "2", "--max-dollars", "inf"), "not an amount of money"),
        ("", "", ("--max-dollars", "5"), "the hourly price of such a machine is unknown"),
        ("", "", (*FREE, "--output-dir", "out"), "leave out --output-dir"),
    ],
)
def test_nothing_is_submitted_that_could_not_be_used_or_paid(user, old, new, options, says):
    path = user.work / "cachekit.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    run = user.begin("train", "toy.yaml", "--on", f"sagemaker:{KIND}", *options)
    _, err = run.communicate(timeout=60)
    assert run.returncode in {1, 2, 4, 7}
    assert says in err
    assert user.service.jobs == {}
