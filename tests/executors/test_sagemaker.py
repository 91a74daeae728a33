"""The request for a training job, against AWS's own description of the service; and what is refused before one."""

import json
from functools import cache

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed (the extra `aws`)")

from cachekit import config
from cachekit.errors import EngineError, SecretError, UnknownNameError, UsageError
from cachekit.executors import sagemaker
from cachekit.executors.fleet import every
from cachekit.executors.port import Fleet, FleetUnit
from cachekit.executors.sagemaker import ENGINE
from cachekit.executors.sagemaker_job import training_job
from cachekit.store.layout import Layout
from cachekit.verbs.fleet import submit
from tests.executors.sagemaker_local import ACCOUNT, REGION, wrong
from tests.executors.sagemaker_session import KIND
from tests.remotes.s3_server import use

TABLE = {
    "role": f"arn:aws:iam::{ACCOUNT}:role/training",
    "image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/training:neuron",
    "output": "s3://here/jobs",
}


def fleet(verb="train", *, units=1, jobs=1, seconds=None, spot=False, words=(), **table):
    commands = tuple(FleetUnit("toy", ("cachekit", verb, "0-toy.yaml", *words)) for _ in range(units))
    options = {"region": REGION, "verb": verb, "table": {**TABLE, **table}, "spot": spot}
    return Fleet(
        id="261126-101500-ab12", engine="sagemaker", queue="ml.trn1.2xlarge", created="", folder="/x", cwd="/",
        jobs=jobs, seconds=seconds, options=options, units=commands,
    )  # fmt: skip


# The request


@pytest.mark.feature("F2")
def test_a_request_keeps_every_limit_of_the_service():
    for made, has in [
        (fleet(), {"CheckpointConfig.S3Uri": "s3://here/jobs/261126-101500-ab12/checkpoints/0"}),
        (fleet("warm"), {"StoppingCondition": {"MaxRuntimeInSeconds": 86_400}}),
        (
            fleet(spot=True, seconds=7200.9),
            {"StoppingCondition": {"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 93_600}},
        ),
        (fleet(seconds=1e9, spot=True), {"StoppingCondition.MaxWaitTimeInSeconds": 2_419_200}),
        (fleet(seconds=0.1), {"StoppingCondition.MaxRuntimeInSeconds": 1}),
        (fleet(keep_alive=1800), {"ResourceConfig.KeepAlivePeriodInSeconds": 1800}),
        (fleet(isolated=True), {"EnableNetworkIsolation": True}),
        (fleet(subnets=["subnet-1"], security_groups=["sg-1"]), {"VpcConfig.Subnets": ["subnet-1"]}),
        (fleet(inputs={"train": "s3://here/rows"}), {"InputDataConfig.1.ChannelName": "train"}),
        (fleet(environment={"HF_HOME": "/opt/hf"}), {"Environment.HF_HOME": "/opt/hf"}),
        (fleet(words=["x" * 256] * 97), {"AlgorithmSpecification.ContainerArguments.99": "x" * 256}),
    ]:
        request = training_job(made, 0)
        assert wrong(request) == []
        for path, value in has.items():
            found = request
            for name in path.split("."):
                found = found[int(name) if name.isdecimal() else name]
            assert found == value
        assert json.loads(ENGINE.request(made)) == request


def test_a_request_that_breaks_a_limit_is_found():
    """The test above would pass on anything otherwise."""
    for changes, what in [
        ({"TrainingJobName": "warm_bert"}, "TrainingJobName"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "MaxRuntimeInSeconds"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 9}}, "Spot"),
        ({"Environment": {"A-B": "1"}}, "Environment key"),
        ({"Environment": {"A": "x" * 513}}, "Environment.A"),
        ({"ResourceConfig": {"InstanceType": "ml.trn9.big", "InstanceCount": 1, "VolumeSizeInGB": 1}}, "InstanceType"),
        ({"Foo": 1}, "Foo"),
    ]:
        (found,) = wrong(training_job(fleet(), 0) | changes)
        assert what in found


def test_the_service_as_moto_has_it_takes_the_request(aws):
    import boto3

    client, request = boto3.client("sagemaker", region_name=REGION), training_job(fleet(spot=True), 0)
    client.create_training_job(**request)
    found = client.describe_training_job(TrainingJobName=request["TrainingJobName"])
    assert found["CheckpointConfig"] == request["CheckpointConfig"]
    assert found["ResourceConfig"] == request["ResourceConfig"]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (fleet(units=3, jobs=2), "all 3 jobs at once"),
        (fleet(spot=True, keep_alive=60), "warm pools and Spot"),
        (fleet(words=["x" * 257]), "the command is too long"),
        (fleet(words=["x"] * 98), "the command is too long"),
    ],
)
def test_what_sagemaker_does_not_do_is_refused_and_noted_nowhere(made, says, tmp_path):
    layout = Layout(tmp_path)
    with pytest.raises(UsageError, match=says):
        submit(layout, made, ENGINE, print, keep=1)
    assert list(every(layout)) == []


# Before anything is rented


@cache
def s3(region):
    """A client, which moto serves in each test; to make one takes a tenth of a second."""
    import boto3

    return boto3.client("s3", region_name=region)


@pytest.fixture
def aws(monkeypatch):
    """moto's S3, STS and SageMaker in this process, with a bucket here and one elsewhere."""
    moto = pytest.importorskip("moto", reason="moto is not installed")
    use(monkeypatch, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": REGION})
    with moto.mock_aws():
        s3(REGION).create_bucket(Bucket="here")
        elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
        s3("eu-west-1").create_bucket(Bucket="there", **elsewhere)
        yield monkeypatch


def check(queue=KIND, verb="train", cache=("local:rw",), **table):
    return ENGINE.check(queue, config.load({"sagemaker": {**TABLE, **table}, "cache": cache}), verb)


def test_what_can_run_is_told_of_its_region(aws):
    assert check() == {"region": REGION, "verb": "train", "table": TABLE}
    isolated = check(isolated=True, cache=("local:rw", "s3://ours/cache:r", "/mnt/cache"))
    assert isolated["places"] == {"s3://ours/cache": "/opt/ml/input/data/remote-0"}
    assert isolated["table"]["inputs"] == {"remote-0": "s3://ours/cache"}


@pytest.mark.parametrize(
    ("said", "error", "says"),
    [
        ({"queue": ""}, UsageError, "sagemaker:ml.trn1.2xlarge"),
        ({"queue": "trn1.2xlarge"}, UsageError, "sagemaker:ml.trn1.2xlarge"),
        ({"queue": "ml.trn9.big"}, UnknownNameError, "no instance named"),
        ({"role": ""}, UsageError, "needs sagemaker.role"),
        ({"image": ""}, UsageError, "needs sagemaker.image"),
        ({"output": ""}, UsageError, "needs sagemaker.output"),
        ({"role": "arn:aws:iam::999999999999:role/training"}, UsageError, "role belongs to account 999999999999"),
        ({"image": f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/x"}, UsageError, "image is in eu-west-1"),
        ({"output": "s3://there/jobs"}, UsageError, "bucket there is in eu-west-1"),
        ({"output": "s3://nowhere/jobs"}, EngineError, "bucket nowhere failed"),
        ({"environment": {"HF_HUB_OFFLINE": "1"}}, UsageError, "would ask no remote"),
        ({"environment": {"WANDB_API_KEY": "hunter2xLongA1"}}, SecretError, "carry a secret to SageMaker"),
        ({"isolated": True, "verb": "warm"}, UsageError, "cannot push"),
        ({"isolated": True, "cache": ("local:rw", "hf://team/cache")}, UsageError, "cannot reach hf://team/cache"),
    ],
)
def test_what_cannot_work_is_refused(aws, said, error, says):
    with pytest.raises(error) as caught:
        check(**said)
    assert says in " ".join(caught.value.lines())
    assert caught.value.hint


def test_without_a_region_credentials_or_boto3(aws):
    aws.delenv("AWS_REGION")
    aws.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(UsageError, match="no AWS region"):
        check()
    aws.setenv("AWS_DEFAULT_REGION", REGION)
    assert check()["region"] == REGION
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        aws.delenv(name)
    aws.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    aws.setenv("AWS_EC2_METADATA_DISABLED", "true")
    aws.setattr("boto3.DEFAULT_SESSION", None)  # it remembers credentials
    with pytest.raises(EngineError) as caught:
        check()
    assert "aws configure" in caught.value.hint
    aws.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(EngineError, match="boto3") as caught:
        check()
    assert "cachekit-neuron[aws]" in caught.value.hint


def test_expired_credentials_are_named_with_what_helps(aws):
    from botocore.exceptions import ClientError

    def refuse(*_, **__):
        raise ClientError({"Error": {"Code": "ExpiredToken", "Message": "it has expired"}}, "GetCallerIdentity")

    aws.setattr("botocore.client.BaseClient._make_api_call", refuse)
    with pytest.raises(EngineError) as caught:
        check()
    assert "ExpiredToken: it has expired" in caught.value.cause
    assert "aws sso login" in caught.value.hint


# Settings


def test_a_setting_that_no_job_could_have_is_refused():
    for table, says in [
        ({"role": "training"}, "role"),
        ({"output": "/here"}, "output"),
        ({"keep_alive": 3601}, "keep_alive"),
        ({"keepalive": 1}, "keepalive"),
        ({"inputs": {"train": "/rows"}}, "inputs"),
        ({"environment": {"A-B": "1"}}, "environment"),
        ({"environment": {"A": "x" * 513}}, "environment"),
        ({"subnets": ["subnet-1"]}, "security_groups"),
        ("role = 1", "TOML"),
    ]:
        with pytest.raises(UsageError) as caught:
            config.load({"sagemaker": table})
        assert says in " ".join(caught.value.lines())


def test_a_job_that_cannot_be_stopped_leaves_none_of_the_others_running(monkeypatch):
    """AWS's own client, with answers as the service gives them."""
    import boto3
    from botocore.stub import Stubber

    client = boto3.client("sagemaker", region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    monkeypatch.setattr(sagemaker, "_client", lambda *_: client)
    with Stubber(client) as service:
        service.add_client_error("stop_training_job", "AccessDeniedException", "no")
        service.add_client_error("stop_training_job", "ValidationException", "it has ended")
        service.add_response("stop_training_job", {})
        with pytest.raises(EngineError, match="StopTrainingJob failed"):
            ENGINE.cancel(fleet(units=3))
        service.assert_no_pending_responses()
