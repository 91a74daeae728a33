"""Who made a record, and where: a user on a host, or a run of a CI service."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from cachekit import redact
from cachekit.process import user_name


class CiRun(Struct, frozen=True):
    """A run of a CI service, as its variables tell.

    Attributes:
        service: `github`, `gitlab`, or `ci` for one that is not known.
        repository: Its address.
        workflow: The file, or the job, that ran.
        commit: What was built.
        run: The address of the run, or its number.
    """

    service: str
    repository: str = ""
    workflow: str = ""
    commit: str = ""
    run: str = ""


class Builder(Struct, frozen=True):
    """Who made a record: a claim of whoever signs."""

    user: str = ""
    host: str = ""
    ci: CiRun | None = None


def builder(environ: Mapping[str, str] | None = None) -> Builder:
    """Who runs this, and where.

    Args:
        environ: The environment; the process's own by default.
    """
    import socket

    return Builder(user_name(), socket.gethostname(), ci_run(os.environ if environ is None else environ))


def ci_run(environ: Mapping[str, str]) -> CiRun | None:
    """The run of a CI service that an environment describes; None where it describes none.

    GitHub: docs.github.com, "Variables reference". GitLab: docs.gitlab.com, "Predefined CI/CD variables".
    """
    said = environ.get
    if said("GITHUB_ACTIONS") == "true":
        server, repository = said("GITHUB_SERVER_URL", "https://github.com"), said("GITHUB_REPOSITORY", "")
        address = f"{server}/{repository}"
        run = f"{address}/actions/runs/{said('GITHUB_RUN_ID', '')}"
        # OWNER/NAME/.github/workflows/warm.yml@refs/heads/main
        return CiRun("github", address, said("GITHUB_WORKFLOW_REF", ""), said("GITHUB_SHA", ""), run)
    if said("GITLAB_CI") == "true":
        return CiRun(
            "gitlab",
            said("CI_PROJECT_URL", ""),
            # gitlab.com/group/project//.gitlab-ci.yml@refs/heads/main, since GitLab 16.0
            said("CI_CONFIG_REF_URI") or said("CI_JOB_NAME", ""),
            said("CI_COMMIT_SHA", ""),
            said("CI_JOB_URL", ""),
        )
    if said("CI", "").lower() in {"", "0", "false", "no"}:
        return None
    # No standard: what several services call them (Buildkite, CircleCI, Jenkins, Travis, Woodpecker, Azure).
    first = {
        "repository": ("BUILDKITE_REPO", "CIRCLE_REPOSITORY_URL", "GIT_URL", "TRAVIS_REPO_SLUG", "CI_REPO_URL"),
        "workflow": ("BUILDKITE_PIPELINE_SLUG", "CIRCLE_JOB", "JOB_NAME", "TRAVIS_JOB_NAME", "CI_WORKFLOW_NAME"),
        "commit": ("BUILDKITE_COMMIT", "CIRCLE_SHA1", "GIT_COMMIT", "TRAVIS_COMMIT", "CI_COMMIT_SHA"),
        "run": ("BUILDKITE_BUILD_URL", "CIRCLE_BUILD_URL", "BUILD_URL", "TRAVIS_BUILD_WEB_URL", "CI_PIPELINE_URL"),
    }
    found = {name: next((said(one, "") for one in names if said(one)), "") for name, names in first.items()}
    return CiRun(
        "ci", **{name: redact.address(redact.printed(value)) for name, value in found.items()}
    )  # a clone's address has a login
