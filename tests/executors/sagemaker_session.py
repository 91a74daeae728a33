"""What tests of jobs on SageMaker share: a user with settings and a bucket, and the stand-in service.

PYTEST_DONT_REWRITE: its fixtures are for `pytest_plugins`.
"""

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachekit import start
from tests.executors.fleet_session import ROOT, SITE, Fleet, until
from tests.executors.sagemaker_local import ACCOUNT, REGION, sagemaker
from tests.remotes.s3_server import s3_server

KIND = "ml.c6i.8xlarge"


def settings(bucket, place="", **more):
    """A project's settings, with further lines of the table [sagemaker]."""
    lines = "".join(f"{name} = {value}\n" for name, value in more.items())
    return f"""
cache = ["local:rw", "team:rw"]
[remotes.team]
url = "s3://{bucket}/cache{place}"
trust = "owner"
[sagemaker]
role = "arn:aws:iam::{ACCOUNT}:role/training"
image = "{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/training:neuron"
output = "s3://{bucket}/jobs"
{lines}"""


class SageMakerUser(Fleet):
    """A user who works with SageMaker: `service` is the stand-in, `s3` its buckets."""

    def __init__(self, folder, service, s3, variables):
        super().__init__(folder, {**s3.environment(), **variables, "PYTHONPATH": service.image["PYTHONPATH"]})
        self.service, self.s3 = service, s3
        for name in ("CACHEKIT_CACHE", "HF_HUB_OFFLINE"):  # remotes count as offline with the Hub
            del self.environment[name]
        self.settings()

    def settings(self, **more):
        """Write the project's settings."""
        (self.work / "cachekit.toml").write_text(settings(self.s3.bucket, f"/{self.work.parent.name}", **more))

    def job(self):
        """The newest job, once there is one."""
        return until(lambda: [*self.service.jobs.values()][-1:])[0]


@contextmanager
def image(python_path):
    """The variables of an image whose `cachekit` is this one; it lies outside of /tmp, which containers have anew."""
    with tempfile.TemporaryDirectory(prefix="cachekit-image-", dir="/var/tmp") as folder:
        yield _image(Path(folder), python_path)


def _image(programs, python_path):
    (programs / "cachekit").write_text(f'#!/bin/sh\nexec {sys.executable} {start.__file__} cachekit "$@"\n')
    (programs / "cachekit").chmod(0o755)
    return {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": python_path, "HOME": "/root"}


@pytest.fixture(scope="module")
def s3():
    with s3_server() as found:
        yield found


@pytest.fixture
def user(tmp_path, s3):
    """A user, and images with the stand-in compiler."""
    with image(f"{SITE}:{ROOT}") as made, sagemaker(tmp_path / "sagemaker", s3, made | s3.environment()) as found:
        service, variables = found
        yield SageMakerUser(tmp_path, service, s3, variables)
