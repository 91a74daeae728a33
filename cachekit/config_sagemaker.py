"""The `[sagemaker]` table of the settings: what a training job on SageMaker needs beside its command.

    [sagemaker]
    role = "arn:aws:iam::123456789012:role/training"
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:neuron"
    output = "s3://our-bucket/jobs"
    keep_alive = 1800
    [sagemaker.inputs]
    train = "s3://our-bucket/reviews"
    [sagemaker.environment]
    HF_HOME = "/opt/hf"

Limits are those of CreateTrainingJob's description in botocore 1.44.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from cachekit import config_files
from cachekit.decode import from_builtins
from cachekit.errors import UsageError

_ROLE = r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+"
_S3 = r"s3://[^/]+.*"


class SageMakerTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table.

    Attributes:
        role: The IAM role of the job, by its ARN.
        image: The image in ECR that has cachekit and what it needs.
        output: Where inputs, checkpoints and models of jobs go.
        inputs: Channels: names, and what of S3 the job finds under /opt/ml/input/data/NAME.
        environment: Further variables of the job; everybody who may describe the job sees them.
        volume_gb: The job's disk, in GB.
        keep_alive: Seconds that the machine is kept for the next job (a warm pool), which are billed.
        isolated: The container has no network (EnableNetworkIsolation).
        subnets: Of a VPC; with `security_groups`, or neither.
    """

    role: str = ""
    image: Annotated[str, Meta(max_length=255)] = ""
    output: str = ""
    inputs: Annotated[dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")], str], Meta(max_length=18)] = {}
    environment: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")], Annotated[str, Meta(max_length=512)]],
        Meta(max_length=90),
    ] = {}
    volume_gb: Annotated[int, Meta(ge=1)] = 100
    keep_alive: Annotated[int, Meta(ge=0, le=3600)] = 0  # 21,600 in the description; 3,600 on the page of warm pools
    isolated: bool = False
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


def read(value: Any) -> Mapping[str, Any]:
    """The table, checked; a variable holds it as TOML writes a table in one line: `{role = "arn:…"}`.

    Raises:
        ValueError: A name in it is unknown, or a value is of the wrong kind.
    """
    if isinstance(value, str):
        try:
            value = config_files.parse(f"table = {value}", Path("the table"))["table"]
        except UsageError as error:
            raise ValueError(f"it is not a TOML table: {error.cause}") from error
    try:
        table = from_builtins(value, SageMakerTable)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    if table.role and not re.fullmatch(_ROLE, table.role):
        raise ValueError("role is the ARN of a role: arn:aws:iam::123456789012:role/training")
    for name, address in {
        "output": table.output,
        **{f"inputs.{name}": one for name, one in table.inputs.items()},
    }.items():
        if not re.fullmatch(_S3, address) and (address or name != "output"):
            raise ValueError(f"{name} is an address in S3: s3://BUCKET/PREFIX")
    if bool(table.subnets) != bool(table.security_groups):
        raise ValueError("set both subnets and security_groups, or neither")
    found: Mapping[str, Any] = msgspec.to_builtins(value)
    return found
