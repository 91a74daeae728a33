"""Question answering against Transformers' own example and model: same inputs, same positions, same loss.

The rows are those of the zoo's recipe in small, of which 60 steps learn little: so does a plain loop over these batches
with Transformers' model and PyTorch's optimizer, whose losses are the same.
"""

from __future__ import annotations

import json

import pytest

from cachekit.recipe import tiny, zoo
from cachekit.training.data import Split
from cachekit.training.tasks import question_answering as task

pytestmark = [pytest.mark.versions, pytest.mark.filterwarnings("default")]  # other libraries' own
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LENGTH, STRIDE = tiny.LENGTH, tiny.LENGTH // 4


def prepare_train_features(tokenizer, rows):
    """As run_qa.py does it [transformers: examples/pytorch/question-answering].

    But for an answer that ends a window: there the example goes on to the separator behind it, whose offset is 0.
    """
    made = tokenizer(
        [row["question"].lstrip() for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
        return_token_type_ids=True,
    )
    starts, ends = [], []
    for number, offsets in enumerate(made["offset_mapping"]):
        ids, sequence = made["input_ids"][number], made.sequence_ids(number)
        cls_index = ids.index(tokenizer.cls_token_id)
        answers = rows[made["overflow_to_sample_mapping"][number]]["answers"]
        start_char = answers["answer_start"][0]
        end_char = start_char + len(answers["text"][0])
        start, end = 0, len(ids) - 1
        while sequence[start] != 1:
            start += 1
        while sequence[end] != 1:
            end -= 1
        if not (offsets[start][0] <= start_char and offsets[end][1] >= end_char):
            starts.append(cls_index)
            ends.append(cls_index)
            continue
        while sequence[start] == 1 and offsets[start][0] <= start_char:
            start += 1
        starts.append(start - 1)
        while offsets[end][1] >= end_char:
            end -= 1
        ends.append(end + 1)
    return {**{name: made[name] for name in INPUTS}, "start_positions": starts, "end_positions": ends}


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(zoo.tiny() / "tokenizer")


@pytest.fixture(scope="module")
def rows():
    lines = (zoo.tiny() / "question-answering" / "train.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def windows(tokenizer, rows):
    def read(row, where):
        return {**row, "answers": task.answers_of(row["answers"], "answers", where), "negatives": False}

    split = Split(rows, range(len(rows)), read)
    return task.windows(split, tokenizer, length=LENGTH, stride=STRIDE, inputs=INPUTS, enough=None, judged=True)


@pytest.mark.feature("P1")
def test_inputs_and_positions_are_those_of_transformers_example(tokenizer, rows, windows):
    expected = prepare_train_features(tokenizer, rows)
    assert len(windows) == len(expected["start_positions"]) > len(rows), "some rows have several windows"
    for name in INPUTS:
        assert windows.inputs[name].tolist() == expected[name], name
    assert windows.positions[:, 0].tolist() == expected["start_positions"]
    assert windows.positions[:, 1].tolist() == expected["end_positions"]


@pytest.mark.feature("P1")
def test_the_loss_is_the_models_own_over_the_same_batch(windows):
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=tiny.POSITIONS,
    )
    model = BertForQuestionAnswering(config).eval()
    features = [windows[number] for number in range(len(windows))]
    batch = task.encode(INPUTS, features)
    with torch.no_grad():
        given = model(**batch)
    labels = tuple(batch[name].numpy() for name in task.LABELS)
    figures = task.score(features, (given.start_logits.numpy(), given.end_logits.numpy()), labels)
    assert figures["loss"] == pytest.approx(given.loss.item(), rel=1e-5)
