"""The articles' jobs in small, with real compiles by Inductor, on the stand-in for SageMaker.

Each is warmed by one job, trained by another one on a Spot machine, and compiles nothing there.
"""

import json
import random

import pytest

from tests.executors.fleet_session import ROOT, until
from tests.executors.sagemaker_local import lacking, sagemaker
from tests.executors.sagemaker_session import KIND, SageMakerUser, image

pytest_plugins = ["tests.executors.sagemaker_session"]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
ON = ("--on", f"sagemaker:{KIND}", "--price", "0")
STEPS, SAVE = 160, 20
MOODS = {"positive": ("calm", "quiet"), "negative": ("sad", "lonely", "grey")}


@pytest.fixture
def user(tmp_path, s3):
    """A user, and images with real compilers."""
    with image(str(ROOT)) as made, sagemaker(tmp_path / "sagemaker", s3, made | s3.environment()) as found:
        service, variables = found
        someone = SageMakerUser(tmp_path, service, s3, variables)
        someone.deadline = 1800.0  # real compiles, and a training
        yield someone


def reviews(folder, number, seed):
    """Rows as amazon polarity has them, in the words that the small tokenizer knows."""
    chosen, rows = random.Random(seed), []
    for _ in range(number):
        label = chosen.choice([*MOODS])
        thing, mood = chosen.choice(["river", "garden", "forest", "letter", "road"]), chosen.choice(MOODS[label])
        rows.append(json.dumps({"label": label, "title": "", "content": f"the {thing} seemed {mood} today"}))
    folder.write_text("\n".join(rows) + "\n")


def channel(user, **rows):
    """Reviews in the user's bucket, which jobs get as an input channel."""
    place = f"s3://{user.s3.bucket}/reviews-{user.work.parent.name}"
    for seed, (split, number) in enumerate(rows.items()):
        reviews(user.work / f"{split}.jsonl", number, seed)
        user.service.put(f"{place}/{split}.jsonl", user.work / f"{split}.jsonl")
    user.settings(inputs=f'{{reviews = "{place}"}}')


def compiled_nothing(user, job, folder):
    """What a training said, whose model is there and for which no compiler ran."""
    assert job.status == "Completed", job.lines("algo-1")
    model = user.service.model(job.name, folder)
    said = json.loads((model / "cachekit-result.json").read_text())
    assert (said["compiled"], said["built"], said["surprises"]) == (0, 0, [])
    assert said["found"] > 0
    assert list(model.glob("*.safetensors"))
    assert not list(model.glob("checkpoint-*")), "checkpoints are not in the model's archive"
    for name, value in job.metrics.items():
        assert value == pytest.approx(said["metrics"]["validation"][name])
    return said


@pytest.mark.feature("F1", "F2")
def test_polarity_goes_on_from_its_checkpoint_after_a_spot_stop(user, tmp_path):
    channel(user, train=320, validation=64)
    steps = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": SAVE}
    seed = ["bert-amazon-polarity", "--tiny", "--set", "data.path=/opt/ml/input/data/reviews"]
    seed += [word for name, value in steps.items() for word in ("--set", f"training.{name}={value}")]
    warmed = user("warm", *seed, *ON, "--format", "json")[0]
    assert warmed["units"][0]["status"] == "compiled"
    assert warmed["compiled"] > 0

    run = user.begin("train", *seed, *ON, "--spot", "--require-warm", "--format", "json")
    until(lambda: len(user.service.jobs) == 2)
    job = user.job()
    until(lambda: job.sent(f"checkpoint-{2 * SAVE}/trainer_state.json") or job.ended)
    job.interrupt()
    out, err = run.communicate(timeout=user.deadline)
    assert run.returncode == 0, out + err
    assert (job.starts, json.loads(out)["compiled"]) == (2, 0)
    said = compiled_nothing(user, job, tmp_path / "model")
    begun = int(said["resumed_from"].rpartition("-")[2])
    assert said["resumed_from"].startswith("/opt/ml/checkpoints/")
    assert 2 * SAVE <= begun < STEPS
    assert (said["steps"], said["steps_taken"]) == (STEPS, STEPS - begun)
    assert job.metrics["accuracy"] > 0.9, "it has learned to tell them apart"


@pytest.mark.feature("F1")
@pytest.mark.parametrize("name", ["bert-large-squad", "bert-mnli"])
def test_squad_and_mnli_compile_nothing_after_a_warm(user, tmp_path, name):
    user("warm", name, "--tiny", *ON)
    trained = user("train", name, "--tiny", *ON, "--spot", "--require-warm", "--format", "json")[0]
    assert trained["compiled"] == 0
    compiled_nothing(user, user.job(), tmp_path / "model")
    assert user.job().metrics
