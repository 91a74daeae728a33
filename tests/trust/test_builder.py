"""Who made a record: a user on a host, or a run of a CI service."""

import pytest

from cachekit.trust.statement import CiRun, builder, ci_run

GITHUB = {
    "CI": "true",
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "team/model",
    "GITHUB_WORKFLOW_REF": "team/model/.github/workflows/warm.yml@refs/heads/main",
    "GITHUB_SHA": "c0ffee",
    "GITHUB_RUN_ID": "7",
}
GITLAB = {
    "CI": "true",
    "GITLAB_CI": "true",
    "CI_PROJECT_URL": "https://gitlab.com/team/model",
    "CI_CONFIG_REF_URI": "gitlab.com/team/model//.gitlab-ci.yml@refs/heads/main",
    "CI_COMMIT_SHA": "c0ffee",
    "CI_JOB_URL": "https://gitlab.com/team/model/-/jobs/7",
}


@pytest.mark.feature("T3")
def test_a_run_of_a_ci_service_is_told_by_its_variables():
    for environ, run in [
        (
            GITHUB,
            CiRun(
                "github",
                "https://github.com/team/model",
                "team/model/.github/workflows/warm.yml@refs/heads/main",
                "c0ffee",
                "https://github.com/team/model/actions/runs/7",
            ),
        ),
        (
            GITLAB,
            CiRun(
                "gitlab",
                "https://gitlab.com/team/model",
                "gitlab.com/team/model//.gitlab-ci.yml@refs/heads/main",
                "c0ffee",
                "https://gitlab.com/team/model/-/jobs/7",
            ),
        ),
        (
            {**GITLAB, "CI_CONFIG_REF_URI": "", "CI_JOB_NAME": "warm"},
            CiRun("gitlab", GITLAB["CI_PROJECT_URL"], "warm", "c0ffee", GITLAB["CI_JOB_URL"]),
        ),
        ({"CI": "1"}, CiRun("ci")),
        (
            {"CI": "true", "GIT_URL": "https://me:secret@host/x", "GIT_COMMIT": "c", "JOB_NAME": "j", "BUILD_URL": "b"},
            CiRun("ci", "https://***@host/x", "j", "c", "b"),
        ),
        (
            {"CI": "true", "GIT_URL": f"https://{'0a' * 20}@host/x", "BUILD_URL": "https://ci/x?token=abcd"},
            CiRun("ci", "https://***@host/x", run="https://ci/x?***"),
        ),
        (
            {
                **GITLAB,
                "CI_PROJECT_URL": "https://oauth2:hunter2xLongA1@gitlab.acme/x",
                "CI_CONFIG_REF_URI": "",
                "CI_JOB_NAME": "train: [hunter2xLongA1]",
                "WANDB_API_KEY": "hunter2xLongA1",
            },
            CiRun("gitlab", "https://***@gitlab.acme/x", "train: [***]", "c0ffee", GITLAB["CI_JOB_URL"]),
        ),
        (
            {**GITHUB, "GITHUB_SERVER_URL": "https://me:secret@ghe.acme"},
            CiRun(
                "github",
                "https://***@ghe.acme/team/model",
                GITHUB["GITHUB_WORKFLOW_REF"],
                "c0ffee",
                "https://***@ghe.acme/team/model/actions/runs/7",
            ),
        ),
        ({"CI": "false"}, None),
        ({}, None),
    ]:
        assert ci_run(environ) == run


def test_a_user_and_a_host_are_named_anyway():
    found = builder({})
    assert found.user
    assert found.host
    assert found.ci is None
    assert builder(GITHUB).ci.service == "github"
