"""SageMaker as an engine: a training job for each command, over boto3 alone.

A job sees no file of this machine. What its command reads is put into an input channel, whose folder is the command's
working directory; what the command told comes back from CloudWatch when the job has ended, or is asked for. The
entry point is cachekit itself: the first process of a container gets SIGTERM when the job is stopped, and a shell
would not pass it on [sagemaker-training-toolkit issues 125 and 173].

Facts about the service are those of its description in botocore 1.44.5 and of AWS's developer guide: "How Amazon
SageMaker AI Runs Your Training Image", "Checkpoints", "Managed Spot Training", "Run Training Containers in
Internet-Free Mode".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from cachekit import files, private, redact
from cachekit.config import Config
from cachekit.config_sagemaker import SageMakerTable
from cachekit.decode import from_builtins
from cachekit.errors import EngineError, SecretError, UsageError
from cachekit.executors import fleet as fleets
from cachekit.executors.port import ENDED, Fleet, Seen, State
from cachekit.executors.sagemaker_job import PLACES, isolated, job_name, prefix, training_job
from cachekit.recipe import zoo
from cachekit.text import cut

INSTALL = 'pip install "cachekit-neuron[aws]"'
LOGS = "/aws/sagemaker/TrainingJobs"
# Of `SecondaryStatus`, in the state InProgress; others mean that a machine is being made ready, or will be again.
_RUNNING = frozenset({"Training", "Uploading", "Stopping", "Updating"})
_OVER = frozenset({"MaxRuntimeExceeded", "MaxWaitTimeExceeded"})
_STATES: dict[str, State] = {"Completed": "done", "Failed": "failed", "Stopped": "cancelled", "Stopping": "running"}
_HINTS = {
    "NoCredentialsError": "`aws configure`, `aws sso login`, or AWS_PROFILE",
    "ExpiredToken": "`aws sso login`, or new keys",
    "ExpiredTokenException": "`aws sso login`, or new keys",
    "InvalidClientTokenId": "`aws sso login`, or new keys",
    "403": "the identity needs s3:ListBucket and s3:PutObject there",
    "404": "`aws s3 mb`, or another address for sagemaker.output",
    "ResourceLimitExceeded": "ask for more in Service Quotas: Amazon SageMaker, TYPE for training job usage",
    "AccessDeniedException": "the identity needs this action, and iam:PassRole for the role",
}
T = TypeVar("T")


def _asked(what: str, call: Callable[[], T], silent: frozenset[str] = frozenset()) -> T | None:
    """What AWS answers; None where it answers with an error of one of the codes in `silent`.

    Raises:
        EngineError: It does not answer, or refuses.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        answer = getattr(error, "response", {}).get("Error", {})
        code = str(answer.get("Code") or type(error).__name__)
        if code in silent:
            return None
        cause = f"{code}: {answer['Message']}" if answer.get("Message") else str(error)
        raise EngineError(f"{what} failed", cause=cut(cause, 500), hint=_HINTS.get(code, "")) from error


def _client(service: str, region: str) -> Any:
    try:
        import boto3
        from botocore.config import Config as Options
    except ImportError as error:
        raise EngineError("SageMaker needs boto3, which is not installed", hint=INSTALL) from error
    options = Options(connect_timeout=10, read_timeout=60, retries={"mode": "standard", "max_attempts": 5})
    return _asked(f"making a client of {service}", lambda: boto3.client(service, region_name=region, config=options))


def _region() -> str:
    """The region that the environment or the profile names.

    Raises:
        EngineError: boto3 is not installed.
        UsageError: No region is named.
    """
    try:
        import boto3
    except ImportError as error:
        raise EngineError("SageMaker needs boto3, which is not installed", hint=INSTALL) from error
    # boto3 itself reads AWS_DEFAULT_REGION alone; other tools of AWS, and our own remotes, read this first.
    found = os.environ.get("AWS_REGION") or _asked("reading the AWS profile", lambda: boto3.Session().region_name)
    if not found:
        raise UsageError("no AWS region is set", hint="export AWS_REGION=us-east-1, or `aws configure`")
    return str(found)


def _check_bucket(region: str, address: str) -> None:
    """See that a bucket is there, may be asked for, and lies in the region of the job."""
    bucket, said = address.removeprefix("s3://").partition("/")[0], {}
    client = _client("s3", region)
    client.meta.events.register(
        "after-call.s3.HeadBucket", lambda http_response, **_: said.update(http_response.headers)
    )
    missing = _asked(f"asking for the bucket {bucket}", partial(client.head_bucket, Bucket=bucket), frozenset({"301"}))
    there = said.get("x-amz-bucket-region") or ("" if missing is None else region)
    if there != region:
        raise UsageError(
            f"the bucket {bucket} is in {there or 'another region'}, but the job would run in {region}",
            hint=f"name a bucket in {region} for output, or export AWS_REGION={there or 'REGION'}",
        )


class _SageMaker:
    rents = spot = True
    places = PLACES

    def check(self, queue: str, config: Config, verb: str) -> Mapping[str, Any]:
        zoo.instance(self.machine(queue))
        region = _region()
        table = from_builtins(config.sagemaker, SageMakerTable)
        for name, what in (
            ("role", "the ARN of the IAM role that the job runs as"),
            ("image", "an image in ECR with cachekit in it"),
            ("output", "an address in S3 for checkpoints and models"),
        ):
            if not getattr(table, name):
                raise UsageError(
                    f"SageMaker needs sagemaker.{name}: {what}",
                    hint=f"set {name} = … under [sagemaker] in cachekit.toml",
                )
        if secret := next((name for name, one in table.environment.items() if redact.holds(f"{name}={one}")), ""):
            raise SecretError(
                f"sagemaker.environment would carry a secret to SageMaker, which shows it to others: {secret}",
                hint="put it into the image, or let the job's role read it from AWS Secrets Manager",
            )
        if "HF_HUB_OFFLINE" in table.environment and not table.isolated:
            raise UsageError(
                "sagemaker.environment has HF_HUB_OFFLINE, and a job would ask no remote",
                cause="whatever it compiled would be lost with its machine",
                hint="remove it, or set sagemaker.isolated = true",
            )
        elsewhere = re.search(r"\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com", table.image)
        if elsewhere and elsewhere[1] != region:
            raise UsageError(
                f"the image is in {elsewhere[1]}, but the job would run in {region}",
                cause="SageMaker takes images from the job's own region only",
                hint=f"copy the image there, or export AWS_REGION={elsewhere[1]}",
            )
        me = _asked("asking AWS who this is", _client("sts", region).get_caller_identity)
        account = table.role.split(":")[4]
        if me and me["Account"] != account:
            raise UsageError(
                f"the role belongs to account {account}, but these credentials belong to {me['Account']}",
                cause="a role can be passed within its own account only",
                hint="name a role of this account, or export another AWS_PROFILE",
            )
        _check_bucket(region, table.output)
        return {"region": region, "verb": verb, "table": config.sagemaker, **isolated(config, table, verb)}

    def together(self, nodes: int, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Nothing: each machine of a job runs the job's command, and is told its place (`compilers.nodes`)."""
        return ()

    def machine(self, queue: str) -> str:
        if not queue.startswith("ml."):
            raise UsageError(
                "SageMaker needs a machine type, under SageMaker's name for it", hint="--on sagemaker:ml.trn1.2xlarge"
            )
        return queue

    def request(self, fleet: Fleet) -> str:
        return "\n".join(json.dumps(training_job(fleet, number), indent=2) for number in range(len(fleet.units)))

    def submit(self, fleet: Fleet) -> None:
        jobs = [training_job(fleet, number) for number in range(len(fleet.units))]
        region = fleet.options["region"]
        bucket, _, folder = f"{prefix(fleet)}/input".removeprefix("s3://").partition("/")
        store, client = _client("s3", region), _client("sagemaker", region)
        for name, text in fleet.files.items():
            put = {"Bucket": bucket, "Key": f"{folder}/{name}", "Body": text.encode()}
            _asked(f"writing to {bucket}", partial(store.put_object, **put))
        try:
            for one in jobs:
                # A job of this name is this one: an answer was lost, and botocore asked again.
                _asked("CreateTrainingJob", partial(client.create_training_job, **one), frozenset({"ResourceInUse"}))
        except EngineError:
            with suppress(EngineError):
                self.cancel(fleet)
            raise

    def look(self, fleet: Fleet) -> Mapping[int, Seen]:
        client, seen = None, {}
        for number in range(len(fleet.units)):
            if noted := files.noted(fleets.stopped(fleet.path, number), Seen):
                seen[number] = noted
            elif not (fleet.path / f"{number}.ended").exists():  # else its note says how
                client = client or _client("sagemaker", fleet.options["region"])
                name = job_name(fleet, number)
                found = _asked(
                    "DescribeTrainingJob",
                    partial(client.describe_training_job, TrainingJobName=name),
                    frozenset({"ValidationException"}),  # there is no such job
                )
                if found is not None:
                    seen[number] = self._seen(fleet, number, found)
        return seen

    def _seen(self, fleet: Fleet, number: int, found: Mapping[str, Any]) -> Seen:
        status, secondary = found["TrainingJobStatus"], found.get("SecondaryStatus", "")
        reason = str(found.get("FailureReason", ""))
        state = _STATES.get(status) or ("running" if secondary in _RUNNING else "waiting")
        if status == "Stopped" and secondary in _OVER:
            state = "timed-out"
        if status == "Failed" and reason.startswith("InternalServerError"):  # AWS's, and no word of the command's
            state = "lost"
        seen = Seen(state, fleet.queue, reason or (secondary if secondary not in {"", status} else ""))
        if state in ENDED:
            with suppress(EngineError):  # what it told can be asked for again: `fleet logs`
                self.fetch(fleet, number)
            if reason:
                files.note(fleet.path / f"{number}.engine", f"{reason}\n".encode(), mode=private.FILE)
            self._note(fleet, number, found, seen)
        return seen

    def _note(self, fleet: Fleet, number: int, found: Mapping[str, Any], seen: Seen) -> None:
        """Note how a job ended: the service forgets no job, but is not asked again."""
        said = re.search(r"exit code:? (\d+)", seen.reason, re.IGNORECASE)
        code = 0 if seen.state == "done" else int(said[1]) if said and seen.state == "failed" else None
        began, ended = (found.get(f"Training{end}Time") or found["CreationTime"] for end in ("Start", "End"))
        if code is None:
            files.note(fleets.stopped(fleet.path, number), msgspec.json.encode(seen), mode=private.FILE)
            return
        told = {"host": fleet.queue, "began": began.timestamp(), "ended": ended.timestamp(), "code": code}
        files.note(fleet.path / f"{number}.ended", json.dumps(told).encode(), mode=private.FILE)

    def fetch(self, fleet: Fleet, number: int) -> None:
        client, name = _client("logs", fleet.options["region"]), job_name(fleet, number)
        named = {"logGroupName": LOGS, "logStreamNamePrefix": f"{name}/"}
        found = _asked(
            "reading the log", partial(client.describe_log_streams, **named), frozenset({"ResourceNotFoundException"})
        )
        lines: list[str] = []
        for stream in (found or {}).get("logStreams", ()):
            asked = {"logGroupName": LOGS, "logStreamName": stream["logStreamName"], "startFromHead": True}
            while (events := _asked("reading the log", partial(client.get_log_events, **asked))) is not None:
                lines += [event["message"].rstrip("\n") for event in events["events"]]
                if events["nextForwardToken"] == asked.get("nextToken"):
                    break
                asked["nextToken"] = events["nextForwardToken"]
        if lines:
            files.note(fleet.path / f"{number}.log", "\n".join([*lines, ""]).encode(), mode=private.FILE)
        if "{" in lines:  # stdout and stderr are one there; an answer is the last text of JSON that begins a line
            answer = "\n".join(lines[len(lines) - 1 - lines[::-1].index("{") :])
            with suppress(ValueError):
                _, end = json.JSONDecoder().raw_decode(answer)
                files.note(fleet.path / f"{number}.out", answer[:end].encode(), mode=private.FILE)

    def cancel(self, fleet: Fleet) -> None:
        client = _client("sagemaker", fleet.options["region"])
        ended = frozenset({"ValidationException", "ResourceNotFound"})  # already, or it never began
        failed = []
        for number in range(len(fleet.units)):
            name = job_name(fleet, number)
            try:
                _asked("StopTrainingJob", partial(client.stop_training_job, TrainingJobName=name), ended)
            except EngineError as error:  # the others cost money meanwhile
                failed.append(error)
        if failed:
            raise failed[0]


ENGINE = _SageMaker()
