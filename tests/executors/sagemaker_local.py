"""A stand-in for Amazon SageMaker's training jobs and for CloudWatch's logs, on loopback: it really runs the jobs.

What it stands in for, and where that is said:

- CreateTrainingJob, DescribeTrainingJob, StopTrainingJob: requests are judged by the service's description in botocore,
  its limits and patterns too. States and their words are those of the description.
- The container: "How Amazon SageMaker AI Runs Your Training Image", "… Provides Training Information", "… Signals
  Algorithm Success and Failure" in AWS's developer guide. /opt/ml with input, output, model and checkpoints; the entry
  point is the first process of a PID namespace, which ignores SIGTERM unless it handles it; SIGTERM, then SIGKILL after
  `grace` seconds (120 there); exit code 0 is success; one archive of the model and one of output/data at the end, also
  when a job is stopped.
- `SM_*` variables are not the platform's: sagemaker-training-toolkit makes them in images that have it. There are none.
- "Use checkpoints in Amazon SageMaker AI", "Managed Spot Training": the checkpoint folder is copied to S3 all the time,
  and back when a job starts, and starts again after an interruption; nothing else is. That a Spot interruption comes
  with SIGTERM is promised nowhere: here it does not.
- "Run Training Containers in Internet-Free Mode": no network at all.
- Metrics: the expressions of MetricDefinitions, on each line of the log; the last value is the final one.

The image is a folder of programs on this machine's own file system; the role's credentials are variables. S3 and STS
are moto's server. It needs root, and util-linux's `unshare`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REGION, ACCOUNT = "us-east-1", "123456789012"
CHANNEL = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
KILLED = -signal.SIGKILL
SYNC = 0.2  # seconds between two looks at the checkpoints
ROOT = Path(__file__).resolve().parents[2]
IMAGE = {ROOT, Path(sys.prefix), Path(sys.base_prefix)}  # what programs of the image are made of, wherever it lies here


def lacking():
    """Why no job can be run here; empty where one can."""
    if os.geteuid() != 0:
        return "a container's stand-in needs root"
    return "" if shutil.which("unshare") else "there is no unshare"


def _inside(place, host, words):
    """The first process of a container, whose /opt, /tmp and /etc/hosts are its own; its image is there too."""
    commands = [["mount", "--bind", place / "ml", place / "opt/ml"], ["mount", "--bind", place / "hosts", "/etc/hosts"]]
    for folder in (Path("/opt"), Path("/tmp")):  # in this order: the place itself is in /tmp
        own = place / folder.name
        for part in sorted(part for part in IMAGE if part.is_relative_to(folder)):
            there = own / part.relative_to(folder)
            commands += [["mkdir", "-p", there], ["mount", "--rbind", part, there]]
        commands += [["mount", "--rbind", own, folder]]
    commands += [["hostname", host], ["exec", *words]]
    return ["sh", "-c", " && ".join(shlex.join(map(str, command)) for command in commands)]


@cache
def description(operation="CreateTrainingJob"):
    """The shape of a request, as botocore has it; no network, and no credentials."""
    import botocore.session

    return botocore.session.Session().get_service_model("sagemaker").operation_model(operation).input_shape


def beyond(shape, value, where="request"):
    """What a value breaks of the limits that a service's description has; botocore itself looks at few of them."""
    limits, kind = shape.metadata, shape.type_name
    if kind == "structure":
        return [one for name, inner in value.items() for one in beyond(shape.members[name], inner, f"{where}.{name}")]
    size = value if kind in {"integer", "long", "float"} else len(value) if kind in {"string", "list", "map"} else None
    found = []
    if size is not None and not limits.get("min", 0) <= size <= limits.get("max", size):
        found.append(f"{where}: {size}")
    if kind == "string" and "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        found.append(f"{where}: {value!r} is not {limits['pattern']}")
    if kind == "string" and shape.enum and value not in shape.enum:
        found.append(f"{where}: {value!r} is unknown")
    if kind == "list":
        found += [
            one for number, inner in enumerate(value) for one in beyond(shape.member, inner, f"{where}[{number}]")
        ]
    if kind == "map":
        for name, inner in value.items():
            found += beyond(shape.key, name, f"{where} key") + beyond(shape.value, inner, f"{where}.{name}")
    return found


def wrong(request):
    """What is wrong with a request, of types, names, limits, and what fields say of each other."""
    from botocore.validate import ParamValidator

    shape = description()
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        return [report.generate_report()]
    found, stops = beyond(shape, request), request["StoppingCondition"]
    spot = request.get("EnableManagedSpotTraining", False)
    if ("MaxWaitTimeInSeconds" in stops) != spot or stops.get("MaxWaitTimeInSeconds", 1 << 40) < stops[
        "MaxRuntimeInSeconds"
    ]:
        found.append("MaxWaitTimeInSeconds goes with Spot, and is not below MaxRuntimeInSeconds")
    if spot and request["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        found.append("warm pools exclude Spot")
    return found


class Job(threading.Thread):
    """A training job: its containers, from its first start to its end."""

    def __init__(self, service, request):
        super().__init__(daemon=True)
        self.service, self.request, self.name = service, request, request["TrainingJobName"]
        self.folder = service.folder / self.name
        self.status, self.secondary, self.reason = "InProgress", "Starting", ""
        self.created = time.time()
        self.began = self.ended = None
        self.starts = 0
        self.metrics = {}
        self._interrupt = self._stopping = False
        self._why = ""
        self.containers = []

    # What others ask for

    @property
    def described(self):
        told = {
            "TrainingJobName": self.name, "TrainingJobArn": self.arn, "TrainingJobStatus": self.status,
            "SecondaryStatus": self.secondary, "CreationTime": self.created, **self.request,
        }  # fmt: skip
        told |= {"FailureReason": self.reason} if self.reason else {}
        told |= {"TrainingStartTime": self.began} if self.began else {}
        if self.ended:
            told |= {"TrainingEndTime": self.ended, "BillableTimeInSeconds": int(self.ended - self.began) + 1}
        told["FinalMetricDataList"] = [{"MetricName": name, "Value": one} for name, one in self.metrics.items()]
        return told

    @property
    def arn(self):
        return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{self.name}"

    @property
    def hosts(self):
        return [f"algo-{number}" for number in range(1, self.request["ResourceConfig"]["InstanceCount"] + 1)]

    def lines(self, host):
        path = self.folder / f"{host}.log"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def sent(self, name):
        """Whether S3 has a file of the checkpoints."""
        return name in self.service.copied.get(self.name, ())

    def stop(self, why="Stopped"):
        """As StopTrainingJob, and as the end of the time that the job has."""
        self._stopping, self._why, self.status, self.secondary = True, why, "Stopping", "Stopping"
        self._signal(signal.SIGTERM)

    def interrupt(self):
        """The Spot machine is taken away: whatever runs is gone at once; the job will start again elsewhere."""
        self._interrupt = True
        for one in self.containers:
            one.kill()

    def _signal(self, number):
        for one in self.containers:
            with suppress(OSError, ValueError, IndexError):
                first = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()[0]
                os.kill(int(first), number)

    # What happens

    def run(self):
        try:
            while not self._attempt():
                self.secondary = "Interrupted"
        except Exception as error:  # noqa: BLE001 - the service's own failure, as there
            self.ended, self.reason = time.time(), f"InternalServerError: {error!r}"
            self.status = self.secondary = "Failed"

    def _attempt(self):
        """One start, on a machine that has nothing but what S3 has; False where the machine was taken away."""
        self._interrupt, self.secondary = False, "Downloading"
        self.starts += 1
        for host in self.hosts:
            self._prepare(host)
        self.secondary, self.began = "Training", self.began or time.time()
        self.containers = [self._start(host) for host in self.hosts]
        limit = self.began + self.request["StoppingCondition"]["MaxRuntimeInSeconds"]
        asked = None
        while any(one.poll() is None for one in self.containers):
            if time.time() > limit and not self._stopping:
                self.stop("MaxRuntimeExceeded")
            asked = asked or (time.monotonic() if self._stopping else None)
            if asked and time.monotonic() > asked + self.service.grace:
                for one in self.containers:
                    one.kill()
            if not self._interrupt:
                self._sync()
            time.sleep(SYNC)
        if self._interrupt and not self._stopping:
            return False
        self._sync()
        self._finish([one.returncode for one in self.containers])
        return True

    def _prepare(self, host):
        place, request = self.folder / host, self.request
        shutil.rmtree(place, ignore_errors=True)
        for name in ("input/config", "input/data", "model", "output/data", "checkpoints"):
            (place / "ml" / name).mkdir(parents=True)
        (place / "opt/ml").mkdir(parents=True)
        (place / "tmp").mkdir()
        (place / "tmp").chmod(0o1777)
        (place / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"127.0.0.{10 + n} {name}\n" for n, name in enumerate(self.hosts))
        )
        channels = request.get("InputDataConfig", [])
        for one in channels:
            self.service.download(
                one["DataSource"]["S3DataSource"]["S3Uri"], place / "ml/input/data" / one["ChannelName"]
            )
        if "CheckpointConfig" in request:
            self.service.download(request["CheckpointConfig"]["S3Uri"].rstrip("/") + "/", self._checkpoints(host))
        kind = request["ResourceConfig"]["InstanceType"]
        group = {"instance_group_name": "homogeneousCluster", "instance_type": kind, "hosts": self.hosts}
        texts = {
            "hyperparameters": request.get("HyperParameters", {}),
            "inputdataconfig": {one["ChannelName"]: CHANNEL for one in channels},
            "resourceconfig": {
                "current_host": host, "current_instance_type": kind, "current_group_name": "homogeneousCluster",
                "hosts": self.hosts, "instance_groups": [group], "network_interface_name": "eth0",
            },
            **({"checkpointconfig": request["CheckpointConfig"]} if "CheckpointConfig" in request else {}),
        }  # fmt: skip
        for name, value in texts.items():
            (place / "ml/input/config" / f"{name}.json").write_text(json.dumps(value))

    def _checkpoints(self, host):
        local = self.request.get("CheckpointConfig", {}).get("LocalPath", "/opt/ml/checkpoints/")
        return self.folder / host / "ml" / Path(local).relative_to("/opt/ml")

    def _start(self, host):
        place, said = self.folder / host, self.request["AlgorithmSpecification"]
        words = [*said.get("ContainerEntrypoint", ["train"]), *said.get("ContainerArguments", [])]
        apart = ["--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
        apart += ["--net"] if self.request.get("EnableNetworkIsolation") else []
        variables = {
            **self.service.image, **self.request.get("Environment", {}),
            "TRAINING_JOB_NAME": self.name, "TRAINING_JOB_ARN": self.arn,
        }  # fmt: skip
        with (self.folder / f"{host}.log").open("ab") as told:
            return subprocess.Popen(
                ["unshare", *apart, *_inside(place, host, words)],
                env=variables, stdin=subprocess.DEVNULL, stdout=told, stderr=told, cwd="/",
            )  # fmt: skip

    def _sync(self):
        if "CheckpointConfig" in self.request:
            for host in self.hosts:
                self.service.upload(self._checkpoints(host), self.request["CheckpointConfig"]["S3Uri"], self)

    def _finish(self, codes):
        self.secondary = "Uploading"
        for definition in self.request["AlgorithmSpecification"].get("MetricDefinitions", ()):
            for host in self.hosts:
                for line in self.lines(host):
                    if found := re.search(definition["Regex"], line):
                        self.metrics[definition["Name"]] = float(found[1])
        for what in ("model", "output/data"):
            archive = self.folder / f"{Path(what).parts[0]}.tar.gz"
            with tarfile.open(archive, "w:gz") as made:
                for host in self.hosts:
                    for path in sorted((self.folder / host / "ml" / what).iterdir()):
                        made.add(path, path.name)
            self.service.put(
                f"{self.request['OutputDataConfig']['S3OutputPath']}/{self.name}/output/{archive.name}", archive
            )
        self.ended = time.time()
        if self._stopping:
            self.status, self.secondary = "Stopped", self._why
        elif any(codes):
            code = next(code for code in codes if code)
            failure = [self.folder / host / "ml/output/failure" for host in self.hosts]
            said = next((path.read_text(errors="replace")[:1024] for path in failure if path.exists()), "")
            self.reason = f"AlgorithmError: {said}, exit code: {code if code > 0 else 128 - code}"
            self.status = self.secondary = "Failed"
        else:
            self.status = self.secondary = "Completed"


class Service:
    """SageMaker and CloudWatch's logs of one account.

    Attributes:
        image: The variables that the image and the job's role give a container.
        grace: Seconds between SIGTERM and SIGKILL.
        refuses: What an operation is answered with, instead of what it would do: a code and a message.
    """

    def __init__(self, folder, s3, image, grace):
        import boto3

        self.folder, self.image, self.grace = folder, image, grace
        self.jobs, self.refuses = {}, {}
        self.copied = {}
        variables = s3.environment()
        self._s3 = boto3.client(
            "s3", endpoint_url=s3.endpoint, region_name=REGION, aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip

    def download(self, address, folder):
        """Copy what lies below an address into a folder, by its name after the address."""
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        prefix = prefix.rstrip("/") + "/"
        folder.mkdir(parents=True, exist_ok=True)
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for one in page.get("Contents", ()):
                target = folder / one["Key"].removeprefix(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._s3.download_file(bucket, one["Key"], str(target))

    def upload(self, folder, address, job):
        """Copy what is new or changed in a folder; what was removed stays in S3, as there."""
        sent = self.copied.setdefault(job.name, {})
        for path in sorted(folder.rglob("*")):
            with suppress(OSError):
                state = path.stat()
                mark = (state.st_size, state.st_mtime_ns)
                name = path.relative_to(folder).as_posix()
                if path.is_file() and sent.get(name) != mark:
                    self.put(f"{address.rstrip('/')}/{name}", path)
                    sent[name] = mark

    def put(self, address, path):
        bucket, _, key = address.removeprefix("s3://").partition("/")
        self._s3.upload_file(str(path), bucket, key)

    def model(self, name, folder):
        """The model of a job, unpacked."""
        job = self.jobs[name]
        self.download(f"{job.request['OutputDataConfig']['S3OutputPath']}/{name}/output", folder)
        with tarfile.open(folder / "model.tar.gz") as archive:
            archive.extractall(folder / "model", filter="data")
        return folder / "model"

    # The operations

    def answer(self, operation, asked):
        """What an operation answers, with its status."""
        if operation in self.refuses:
            code, message = self.refuses[operation]
            return 400, {"__type": code, "message": message}
        return getattr(self, f"_{operation}")(asked)

    def _CreateTrainingJob(self, asked):  # noqa: N802 - the service's own names
        if found := wrong(asked):
            return 400, {"__type": "ValidationException", "message": "; ".join(found)}
        if asked["TrainingJobName"] in self.jobs:
            return 400, {"__type": "ResourceInUse", "message": "there is a training job of this name"}
        job = self.jobs[asked["TrainingJobName"]] = Job(self, asked)
        job.folder.mkdir(parents=True)
        job.start()
        return 200, {"TrainingJobArn": job.arn}

    def _DescribeTrainingJob(self, asked):  # noqa: N802
        job = self.jobs.get(asked["TrainingJobName"])
        if job is None:
            return 400, {"__type": "ValidationException", "message": "Requested resource not found."}
        return 200, job.described

    def _StopTrainingJob(self, asked):  # noqa: N802
        job = self.jobs.get(asked["TrainingJobName"])
        if job is None or job.ended:
            return 400, {"__type": "ValidationException", "message": "it is not running"}
        job.stop()
        return 200, {}

    def _DescribeLogStreams(self, asked):  # noqa: N802
        job = self.jobs.get(asked["logStreamNamePrefix"].rstrip("/"))
        names = [f"{job.name}/{host}-{int(job.created)}" for host in job.hosts] if job else []
        return 200, {"logStreams": [{"logStreamName": name} for name in names]}

    def _GetLogEvents(self, asked):  # noqa: N802
        name, _, stream = asked["logStreamName"].partition("/")
        lines = self.jobs[name].lines(stream.rpartition("-")[0]) if "nextToken" not in asked else []
        return 200, {
            "events": [{"message": line} for line in lines],
            "nextForwardToken": "f/1",
            "nextBackwardToken": "b/1",
        }


@contextmanager
def sagemaker(folder, s3, image, grace=2.0):
    """The service, and the variables by which boto3 finds it, until the end of the block."""
    service = Service(folder, s3, image, grace)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            status, told = service.answer(self.headers["X-Amz-Target"].rpartition(".")[2], asked)
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service, {"AWS_ENDPOINT_URL_SAGEMAKER": address, "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": address}
    finally:
        server.shutdown()
        server.server_close()
        for job in service.jobs.values():
            if not job.ended:
                job.stop()
                job.interrupt()
            job.join()
