"""What is asked of Slurm, and what becomes of a refusal: in its place stand programs that take no job."""

import os

import pytest

from cachekit.executors.slurm import PROGRAMS

pytest_plugins = ["tests.executors.fleet_session"]
ON = ("warm", "toy.yaml", "--on", "slurm")
LONE = {"CACHEKIT_CACHE": "local:rw"}


@pytest.fixture
def slurm(fleet):
    """A user of a Slurm without partitions and jobs, where nothing is allowed."""
    for program in PROGRAMS:
        path = fleet.work / program
        path.write_text("#!/bin/sh\ncase ${0##*/} in sb*) echo Access denied >&2; exit 1 ;; esac\n")
        path.chmod(0o700)
    fleet.environment["PATH"] = f"{fleet.work}:{os.environ['PATH']}"
    return fleet


@pytest.mark.feature("T7")
@pytest.mark.parametrize("verb", [("warm",), ("train", "--nnodes", "2")], ids=lambda verb: verb[0])
def test_a_secret_in_the_setup_is_refused_before_it_lies_in_any_file(slurm, verb):
    """Of several nodes the setup stands in the arguments of srun, which all users of a node see."""
    secret, (verb, *words) = "q7RzpL2vT9wKs4XbWWq7", verb
    setup = {"CACHEKIT_SLURM_SETUP": f"export WANDB_API_KEY={secret}; source venv/bin/activate"}
    _, err = slurm(verb, "toy.yaml", *words, "--on", "slurm", "--price", "0", code=2, **setup)
    assert "error[secret]: slurm_setup would carry a secret" in err
    assert secret not in err
    assert not [one for one in slurm.home.rglob("*") if one.is_file() and secret in one.read_text(errors="replace")]


@pytest.mark.feature("F2")
def test_a_dry_run_shows_all_that_is_lacking_and_the_request_all_the_same(slurm):
    planned = slurm(*ON, "--dry-run", "--home", "50%", "--format", "json", **LONE)[0]
    cache, budget = planned["lacks"]
    assert "no shared cache can be written" in cache
    assert "--max-dollars" in budget
    assert planned["forecast"]["totals"]["miss"] == 1
    assert f"#SBATCH --output={slurm.work}/50%%/" in planned["request"], "a percent sign begins one of its patterns"
    shown = slurm(*ON, "--dry-run", **LONE)[0]
    assert shown.count("would not be submitted as it is: ") == 2
    assert "no shared cache" in slurm(*ON, "--price", "0", code=2, **LONE)[1]


def test_a_dry_run_needs_no_slurm(slurm):
    (slurm.work / "sinfo").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    planned = slurm(*ON, "--price", "0", "--dry-run", "--format", "json")[0]
    assert planned["forecast"]["totals"]["miss"] == 1
    assert planned["request"] == ""
    assert planned["lacks"][0].startswith("sinfo failed: no controller")
    assert "would submit" not in slurm(*ON, "--price", "0", "--dry-run")[0]
    assert "sinfo failed" in slurm(*ON, "--price", "0", code=1)[1]


def test_a_folder_that_slurm_cannot_write_into_is_refused_before_anything_is_noted(slurm):
    told = slurm(*ON, "--price", "0", code=1, CACHEKIT_HOME=str(slurm.work / "a\\b"))[1]
    assert "it allows no backslash" in told


def test_a_budget_is_not_exceeded_by_rounding_to_minutes(slurm):
    paid = ("--price", "60", "--max-dollars")  # a dollar a minute
    assert "#SBATCH --time=1\n" in slurm(*ON, *paid, "1.9", "--dry-run", "--format", "json")[0]["request"]
    assert "is not enough for 1 min 0 s of each command" in slurm(*ON, *paid, "0.9", code=2)[1]


def test_a_fleet_that_is_refused_is_none(slurm):
    assert "Access denied" in slurm(*ON, "--price", "0", code=1)[1]
    assert slurm("fleet", "ls", "--format", "json")[0] == []
