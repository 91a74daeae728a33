"""What is asked of SageMaker for a command: the request for CreateTrainingJob, as a value."""

from __future__ import annotations

from typing import Any

from cachekit.config import Config
from cachekit.config_sagemaker import SageMakerTable
from cachekit.decode import from_builtins
from cachekit.errors import UsageError
from cachekit.executors.port import Fleet, Places
from cachekit.remotes.address import links_of, needs_network
from cachekit.text import DAY, cut

PLACES = Places("/opt/ml/model", "/opt/ml/checkpoints", "/opt/ml/input/data")
CHANNEL = "cachekit"
HOME = "/tmp/cachekit"  # noqa: S108 - of a container
LONGEST = 28 * DAY  # a job; the service gives one that does not say a day, and as long may a Spot job wait
ARGUMENTS, LETTERS = 100, 256  # of a command, and of each of its arguments, at most
# What a training prints of its evaluation, `"accuracy": 0.925`, a line each; `CreateTrainingJob` takes 40 at most.
FIGURES = (
    "loss", "accuracy", "f1", "precision", "recall", "exact_match", "f1_micro", "f1_macro", "mse", "pearson",
    "spearman", "perplexity", "bleu", "rouge1", "rouge2", "rougeL",
)  # fmt: skip


def job_name(fleet: Fleet, number: int) -> str:
    """What the job of a command is called: by it the job is found again."""
    return f"cachekit-{fleet.id}-{number}"


def prefix(fleet: Fleet) -> str:
    """Where all that belongs to a fleet lies in S3."""
    return f"{str(fleet.options['table']['output']).rstrip('/')}/{fleet.id}"


def isolated(config: Config, table: SageMakerTable, verb: str) -> dict[str, Any]:
    """What changes for a job without a network: buckets of records come as input channels.

    Raises:
        UsageError: The job could not work.
    """
    if not table.isolated:
        return {}
    if verb == "warm":
        raise UsageError(
            "a job without a network cannot push what it compiles", hint="set sagemaker.isolated = false for a warm"
        )
    places, inputs = {}, dict(table.inputs)
    for number, link in enumerate(one for one in links_of(config) if one.readable and needs_network(one)):
        if not link.address.startswith("s3://"):
            raise UsageError(
                f"a job without a network cannot reach {link.address}",
                cause="input channels come from S3 only",
                hint="use a remote in S3 (--cache local:rw,s3://…:r), or set sagemaker.isolated = false",
            )
        inputs[f"remote-{number}"] = link.address
        places[link.name] = f"{PLACES.inputs}/remote-{number}"
    offline = "HF_HUB_OFFLINE" not in table.environment  # whoever sets it has what is needed in the image
    return {"table": {**config.sagemaker, "inputs": inputs}, "places": places, "hub": not offline}


def training_job(fleet: Fleet, number: int) -> dict[str, Any]:
    """The request for CreateTrainingJob: a function of the fleet alone.

    Raises:
        UsageError: SageMaker begins all jobs at once, and that is more than may run at once; a command is too long for
            it; or Spot machines would be kept, which SageMaker's guide excludes ("SageMaker AI Managed Warm Pools",
            Considerations).
    """
    if len(fleet.units) > fleet.jobs:
        raise UsageError(
            f"SageMaker starts all {len(fleet.units)} jobs at once, but only {fleet.jobs} may run at once",
            hint=f"--jobs {len(fleet.units)}, or a shorter list",
        )
    options, argv = fleet.options, fleet.units[number].argv
    if len(argv) > ARGUMENTS or max(map(len, argv)) > LETTERS:
        raise UsageError(
            f"{cut(fleet.units[number].name, LETTERS)}: the command is too long for SageMaker",
            cause=f"it takes {ARGUMENTS} arguments of {LETTERS} characters each",
            hint="write the changes into the recipe's file, instead of --set",
        )
    table = from_builtins(options["table"], SageMakerTable)
    channels = {CHANNEL: f"{prefix(fleet)}/input/", **table.inputs}
    longest = max(1, min(int(fleet.seconds or DAY), LONGEST))
    made: dict[str, Any] = {
        "TrainingJobName": job_name(fleet, number),
        "RoleArn": table.role,
        "AlgorithmSpecification": {
            "TrainingImage": table.image,
            "TrainingInputMode": "File",
            # `exec` makes the command the container's first process; there is no field for a working directory.
            "ContainerEntrypoint": ["/bin/sh", "-c", 'cd "$0" && exec "$@"', f"{PLACES.inputs}/{CHANNEL}"],
            "ContainerArguments": list(argv),
        },
        "Environment": {**table.environment, "CACHEKIT_HOME": HOME},
        "InputDataConfig": [
            {
                "ChannelName": name,
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix", "S3Uri": address, "S3DataDistributionType": "FullyReplicated",
                    }
                },
            }
            for name, address in channels.items()
        ],
        "OutputDataConfig": {"S3OutputPath": prefix(fleet)},
        "ResourceConfig": {
            "InstanceType": fleet.queue, "InstanceCount": options.get("nodes", 1), "VolumeSizeInGB": table.volume_gb,
            **({"KeepAlivePeriodInSeconds": table.keep_alive} if table.keep_alive else {}),
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": longest},
        "EnableNetworkIsolation": table.isolated,
    }  # fmt: skip
    if options["verb"] == "train":
        made["AlgorithmSpecification"]["MetricDefinitions"] = [
            {"Name": name, "Regex": rf'"{name}": ([0-9.eE+-]+)'} for name in FIGURES
        ]
        made["CheckpointConfig"] = {"S3Uri": f"{prefix(fleet)}/checkpoints/{number}", "LocalPath": PLACES.checkpoints}
    if options.get("spot"):
        if table.keep_alive:
            raise UsageError(
                "a Spot machine is not kept for the next job: warm pools and Spot exclude each other",
                hint="leave out --spot, or sagemaker.keep_alive",
            )
        made["EnableManagedSpotTraining"] = True
        made["StoppingCondition"]["MaxWaitTimeInSeconds"] = min(longest + DAY, LONGEST)
    if table.subnets:
        made["VpcConfig"] = {"Subnets": list(table.subnets), "SecurityGroupIds": list(table.security_groups)}
    return made
