"""The stand-in for SageMaker keeps the contract that it stands in for, whatever runs in it."""

import json

import pytest

from tests.executors.fleet_session import until
from tests.executors.sagemaker_local import ACCOUNT, KILLED, lacking, sagemaker

pytest_plugins = ["tests.executors.sagemaker_session"]
pytestmark = [pytest.mark.servers, pytest.mark.skipif(bool(lacking()), reason=lacking())]


@pytest.fixture
def service(tmp_path, s3):
    with sagemaker(tmp_path, s3, {"PATH": "/usr/bin:/bin"}, grace=1.0) as (found, _):
        yield found


def run(service, s3, script, *, name="job", hosts=1, **more):
    """Create a job whose entry point is a shell's script; returns it while it runs."""
    request = {
        "TrainingJobName": name,
        "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/training",
        "AlgorithmSpecification": {
            "TrainingImage": "image", "TrainingInputMode": "File", "ContainerEntrypoint": ["/bin/sh", "-c", script],
            "MetricDefinitions": [{"Name": "score", "Regex": "score=([0-9.]+)"}],
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{s3.bucket}/out"},
        "ResourceConfig": {"InstanceType": "ml.c6i.8xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        **more,
    }  # fmt: skip
    assert service.answer("CreateTrainingJob", request)[0] == 200
    return service.jobs[name]


def ended(job):
    until(lambda: job.ended and job.status not in {"InProgress", "Stopping"})
    return job


def test_hosts_know_each_other_by_name_and_what_they_are(service, s3, tmp_path):
    script = (
        "hostname; cat /opt/ml/input/config/resourceconfig.json; echo; getent hosts algo-2; echo pid=$$;"
        "echo score=0.5; echo score=0.75; env | grep -c ^SM_; echo $(hostname) > /opt/ml/model/$(hostname); true"
    )
    job = ended(run(service, s3, script, hosts=2))
    assert job.status == "Completed", job.reason
    for host in ("algo-1", "algo-2"):
        name, config, resolved, first, *_, variables = job.lines(host)
        assert name == json.loads(config)["current_host"] == host
        assert json.loads(config)["hosts"] == ["algo-1", "algo-2"]
        assert resolved.split() == ["127.0.0.11", "algo-2"]
        assert first == "pid=1"
        assert variables == "0", "a toolkit makes SM_*, and no job has them by itself"
    assert job.described["FinalMetricDataList"] == [{"MetricName": "score", "Value": 0.75}]
    assert sorted(path.name for path in service.model("job", tmp_path / "model").iterdir()) == ["algo-1", "algo-2"]


def test_success_is_exit_code_0_and_a_failure_has_its_own_words(service, s3):
    job = ended(run(service, s3, "echo it broke > /opt/ml/output/failure; exit 7"))
    assert (job.status, job.reason) == ("Failed", "AlgorithmError: it broke\n, exit code: 7")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo up; while :; do sleep 0.1; done", KILLED),  # a first process without a handler is deaf
        ("trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done", 9),
    ],
)
def test_a_stop_is_sigterm_and_then_sigkill(service, s3, script, code):
    job = run(service, s3, script)
    until(lambda: job.lines("algo-1"))
    assert service.answer("StopTrainingJob", {"TrainingJobName": "job"})[0] == 200
    assert ended(job).status == "Stopped"
    assert [one.returncode for one in job.containers] == [code]
    assert service.answer("StopTrainingJob", {"TrainingJobName": "job"})[0] == 400


def test_after_a_spot_stop_checkpoints_are_there_and_nothing_else(service, s3):
    script = (
        "echo $(ls /opt/ml/checkpoints /opt/ml/model; [ ! -e /tmp/left ] || echo left);"
        "[ -e /opt/ml/checkpoints/one ] && exit 0;"
        "touch /tmp/left /opt/ml/model/left /opt/ml/checkpoints/one; while :; do sleep 0.1; done"
    )
    spot = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
        "CheckpointConfig": {"S3Uri": f"s3://{s3.bucket}/spot", "LocalPath": "/opt/ml/checkpoints"},
    }
    job = run(service, s3, script, **spot)
    until(lambda: job.sent("one"))
    job.interrupt()
    assert ended(job).status == "Completed"
    before, after = job.lines("algo-1")
    assert (before.split(), after.split()) == (
        ["/opt/ml/checkpoints:", "/opt/ml/model:"],
        ["/opt/ml/checkpoints:", "one", "/opt/ml/model:"],
    )


def test_without_a_network_nothing_is_reached(service, s3):
    port = s3.endpoint.rpartition(":")[2]
    script = f"bash -c ': < /dev/tcp/127.0.0.1/{port}' && echo reached || echo nothing"
    for isolated, said in ((False, "reached"), (True, "nothing")):
        job = ended(run(service, s3, script, name=f"net-{isolated}", EnableNetworkIsolation=isolated))
        assert job.lines("algo-1")[-1] == said
