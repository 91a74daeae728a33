"""Image classification: whatever rows hold, batches of one shape that is in the key; figures over every row once."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.data import shapes
from cachekit.errors import DataError, RecipeError
from cachekit.recipe import ingredients
from cachekit.recipe.schema import Data, Training
from cachekit.recipe.schema import Model as ModelPart
from tests.training.grids import representative
from tests.training.jobs import TINY, job_of, ready, recipe_of, train_here, uncompiled  # noqa: F401 - a fixture

pytestmark = pytest.mark.versions
TASK = "image-classification"
SHAPES = ("bars", "cross", "disc", "square")
CONFIGS = {
    "vit": {
        "image_size": 16,
        "patch_size": 4,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
    },
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
}
CONFIGS["deit"] = CONFIGS["vit"]
PROCESSORS = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}},
    "old vit": {"feature_extractor_type": "ViTFeatureExtractor", "size": 16},
    "another size": {"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}},
    "deit": {
        "image_processor_type": "DeiTImageProcessor",
        "do_center_crop": True,
        "size": {"height": 18, "width": 18},
        "crop_size": {"height": 16, "width": 16},
    },
    "convnext": {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.875},
    "efficientnet": {"image_processor_type": "EfficientNetImageProcessor", "size": {"height": 16, "width": 16}},
}


def png(shade=0, size=(8, 8), mode="L"):
    from PIL import Image

    stream = io.BytesIO()
    Image.new(mode, size, shade if mode == "L" else (shade, 255 - shade, 9)).save(stream, "PNG")
    return stream.getvalue()


def model_folder(place: Path, kind: str = "vit", processor: str = "vit", **changes) -> Path:
    """A model's folder: its config and its image processor."""
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps({"model_type": kind, **CONFIGS[kind], **changes}))
    (place / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[processor]))
    return place


def image_job(place: Path, data: Data, kind="vit", processor="vit", **training):
    folder = model_folder(place / "model", kind, processor)
    size = {"image_size": 16} if kind == "resnet" else {}
    recipe = recipe_of(TASK, data, num_train_epochs=1, **size, **training)
    recipe = structs.replace(recipe, model=ModelPart(path=str(folder), from_config=True))
    config = json.loads((folder / "config.json").read_text())
    labels = shapes.labels_of(recipe)
    return job_of(place, recipe, config=config, labels=labels, tokenizer=folder, weights=folder)


def folders(place: Path, **splits) -> Path:
    """Images in folders: by split, how many of each class."""
    for split, counts in splits.items():
        for name, count in counts.items():
            folder = place / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}.png").write_bytes(png(number, (5 + number, 9)))
    return place


def work_of(job):
    return ready(job)[0]


def tiny(**more) -> Data:
    return Data(path=str(TINY / TASK), labels=SHAPES, **more)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_every_batch_has_one_shape_whatever_the_images_and_the_processor(tmp_path, kind, processor):
    from PIL import Image

    job = image_job(tmp_path, tiny(), kind, processor)
    work = work_of(job)
    one = {"where": "train row 1", "folder": Path(), "label": 1}
    kinds = [
        png(7),
        {"bytes": png(8, (300, 20), "RGB"), "path": None},
        Image.new("P", (3, 200)),
        Image.new("RGBA", (20, 20)),
        Image.new("I;16", (20, 20)),
    ]
    for value in kinds:
        batch = work.collate([{**one, "image": value}, work.filler])
        assert {name: tuple(t.shape) for name, t in batch.items()} == {"pixel_values": (2, 3, 16, 16), "labels": (2,)}
        assert batch["labels"].tolist() == [1, -100]


def test_the_processor_decides_how_the_size_is_of_the_key(tmp_path):
    """At its own size it is left alone; at another one it is told."""
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor

    picture = Image.radial_gradient("L").resize((40, 30)).convert("RGB")
    row = {"image": picture, "where": "train row 1", "folder": Path(), "label": 1}
    job = image_job(tmp_path, tiny(), processor="deit")
    processor = AutoImageProcessor.from_pretrained(job.tokenizer)
    made = work_of(job).collate([row])["pixel_values"]
    assert torch.equal(made, processor([picture], return_tensors="pt")["pixel_values"])
    (tmp_path / "other").mkdir()
    job = image_job(tmp_path / "other", tiny(), processor="another size")
    processor = AutoImageProcessor.from_pretrained(job.tokenizer, size={"height": 16, "width": 16})
    made = work_of(job).collate([row])["pixel_values"]
    assert torch.equal(made, processor([picture], return_tensors="pt")["pixel_values"])


@pytest.mark.parametrize("kind", representative(sorted(CONFIGS), ["vit", "resnet"]))
def test_figures_are_scikit_learns_over_every_row_once(tmp_path, uncompiled, kind):
    """40 rows in batches of 12; the saved model looks again, one image at a time."""
    import pyarrow.parquet as pq
    import torch
    from PIL import Image
    from sklearn.metrics import accuracy_score, f1_score
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    job = image_job(tmp_path, tiny(), kind, max_steps=3, per_device_eval_batch_size=12, learning_rate=1e-3)
    figures = train_here(job).metrics["validation"]
    model = AutoModelForImageClassification.from_pretrained(job.output_dir).eval()
    processor = AutoImageProcessor.from_pretrained(job.output_dir)
    logits, truth = [], []
    with torch.no_grad():
        for row in pq.read_table(TINY / TASK / "validation.parquet").to_pylist():
            image = Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
            logits.append(model(**processor(image, return_tensors="pt")).logits[0])
            truth.append(model.config.label2id[row["label"]])
    stacked = torch.stack(logits)
    guesses = stacked.argmax(-1).tolist()
    assert figures["rows"] == 40
    assert figures["accuracy"] == pytest.approx(accuracy_score(truth, guesses), abs=1e-6)
    assert figures["f1"] == pytest.approx(f1_score(truth, guesses, average="macro", zero_division=0.0), abs=1e-6)
    loss = torch.nn.functional.cross_entropy(stacked, torch.tensor(truth)).item()
    assert figures["loss"] == pytest.approx(loss, rel=1e-3)


def test_folders_name_their_classes_without_torch(tmp_path):
    place = folders(tmp_path / "data", train={"dog": 3, "cat": 4}, val={"cat": 1, "dog": 2})
    (place / "train" / ".cache").mkdir()
    (place / "train" / "cat" / "notes.txt").write_text("no image")
    data = Data(path=str(place))
    job = image_job(tmp_path, data)
    assert job.labels == ("cat", "dog")
    work = work_of(job)
    assert {name: len(split) for name, split in work.features.items()} == {"train": 7, "validation": 3}
    assert [row["label"] for row in work.features["train"]] == [0, 0, 0, 0, 1, 1, 1]
    assert tuple(work.collate(list(work.features["train"]))["pixel_values"].shape) == (7, 3, 16, 16)
    shapes.check_data(job.recipe)


def test_folders_that_are_numbers_are_numbered_by_value(tmp_path):
    place = folders(tmp_path / "data", train={str(number): 1 for number in range(12)})
    assert shapes.labels_of(image_job(tmp_path, Data(path=str(place))).recipe) == [str(n) for n in range(12)]


def test_paths_in_a_text_file_start_there(tmp_path):
    place = folders(tmp_path / "data", train={"cat": 3, "dog": 3})
    rows = [{"image": f"train/{name}/{number}.png", "label": name} for name in ("cat", "dog") for number in range(3)]
    (place / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    work = work_of(image_job(tmp_path, Data(path=str(place), validation_fraction=0.3)))
    assert {name: len(split) for name, split in work.features.items()} == {"train": 4, "validation": 2}
    work.collate([*work.features["train"], *work.features["validation"]])
    (place / "train" / "dog" / "1.png").unlink()
    with pytest.raises(DataError, match=r"train row 5: there is no image 'train/dog/1.png'"):
        work_of(image_job(tmp_path, Data(path=str(place))))


def test_a_data_sets_images_are_decoded_by_it(tmp_path, monkeypatch):
    import datasets

    table = datasets.Dataset.from_dict(
        {"img": [{"bytes": png(n), "path": None} for n in range(6)], "fine": [0, 1] * 3},
        features=datasets.Features({"img": datasets.Image(), "fine": datasets.ClassLabel(names=["a", "b"])}),
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: table)
    data = Data(id="some/pictures", image_column="img", label_column="fine", num_labels=2)
    work = work_of(image_job(tmp_path, data))
    assert sum(len(split) for split in work.features.values()) == 6
    assert tuple(work.collate(list(work.features["train"]))["pixel_values"].shape[1:]) == (3, 16, 16)


@pytest.mark.parametrize(
    "splits, message",
    [
        ({"train": {"cat": 2, "dog": 0}}, "dog has no images"),
        ({"train": {"cat": 2}}, "only one class"),
        ({"train": {"cat": 2, "dog": 2}, "val": {"cat": 1, "dog": 1}, "dev": {"cat": 1}}, "more than one validation"),
        ({"train": {"cat": 2, "dog": 2}, "test": {"cow": 1}}, "unknown label 'cow'"),
    ],
)
def test_folders_that_cannot_be_used_are_refused(tmp_path, splits, message):
    place = folders(tmp_path / "data", **splits)
    with pytest.raises(DataError, match=message):
        work_of(image_job(tmp_path, Data(path=str(place))))


def test_images_that_cannot_be_read_name_their_row(tmp_path):
    place = folders(tmp_path / "data", train={"cat": 3, "dog": 3}, test={"cat": 1, "dog": 1})
    (place / "test" / "cat" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="test row 1: the image cannot be read"):
        work_of(image_job(tmp_path, Data(path=str(place))))
    (place / "test" / "cat" / "0.png").write_bytes(png())
    (place / "train" / "dog" / "1.png").write_bytes(png()[:40])
    work = work_of(image_job(tmp_path, Data(path=str(place), max_train_samples=5)))
    with pytest.raises(DataError, match=r"train row \d: the image cannot be read"):
        work.collate(list(work.features["train"]) + list(work.features["train"].take([0])))


def test_sizes_that_cannot_be_are_refused(tmp_path):
    recipe = image_job(tmp_path, tiny(), image_size=32).recipe
    with pytest.raises(RecipeError, match=r"training\.image_size is 32, but the model's config says 16"):
        ingredients.image_size(recipe, {"model_type": "vit", "image_size": 16})
    assert ingredients.image_size(recipe, {"model_type": "resnet"}) == 32
    plain = structs.replace(recipe, training=Training())
    assert ingredients.image_size(plain, {"model_type": "resnet"}) == 224
    assert ingredients.image_size(plain, {"model_type": "efficientnet"}) == 600
    with pytest.raises(RecipeError, match=r"image_size is \[16, 32\]") as refused:
        ingredients.image_size(plain, {"model_type": "vit", "image_size": [16, 32]})
    assert "square" in refused.value.cause


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_checkpointing_that_a_model_does_not_have_is_refused(tmp_path, kind):
    wanted = image_job(tmp_path, tiny(), kind, "vit", gradient_checkpointing=True)
    if kind == "vit":
        assert work_of(wanted)
        return
    with pytest.raises(RecipeError, match=f"training.gradient_checkpointing is true, but a {kind} model"):
        work_of(wanted)


@pytest.mark.feature("K1")
def test_the_size_is_in_the_key_and_the_images_are_not(tmp_path):
    from cachekit.compilers import select
    from cachekit.compilers.prepare import prepare

    def hard(data, kind="resnet", **training):
        recipe = image_job(tmp_path, data, kind).recipe
        recipe = structs.replace(recipe, training=structs.replace(recipe.training, **training))
        return prepare(recipe, select("inductor")).ingredients.hard

    place = folders(tmp_path / "data", train=dict.fromkeys(SHAPES, 1))
    assert hard(tiny()) == hard(Data(path=str(place)))
    assert hard(tiny())["training.image_size"] == hard(tiny(), "vit")["training.image_size"] == 16
    small, large = hard(tiny(), image_size=16), hard(tiny(), image_size=None)
    assert {name for name in small if small[name] != large[name]} == {"training.image_size"}
    assert large["training.image_size"] == 224
