"""Instruction tuning: only the response is judged, in prompts and in chats; every row once, in rows of one length."""

from __future__ import annotations

import numpy as np
import pytest

from cachekit.data import shapes
from cachekit.errors import DataError, RecipeError
from tests.training.jobs import ready, told, train_here, uncompiled  # noqa: F401 - a fixture
from tests.training.language_models import WORDS, dumped, graphs, lm_job, tokenizer_folder

pytestmark = pytest.mark.versions
NUMBER = {word: 5 + number for number, word in enumerate(WORDS)}
TEMPLATE = (
    "{% for m in messages %}{{ '<s> ' + ('question' if m.role == 'user' else 'answer') + ' ' + m.content + ' </s> ' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<s> answer ' }}{% endif %}"
)
# As those of thinking models: an earlier answer is written in another way.
FORGETFUL = TEMPLATE.replace("m.content", "('' if m.role == 'assistant' and not loop.last else m.content)")
CHAT = [
    {"role": "user", "content": "the sea"},
    {"role": "assistant", "content": "is calm"},
    {"role": "user", "content": "a bird"},
    {"role": "assistant", "content": "sings"},
]


def pairs(count: int, seed: int = 0) -> list[dict]:
    chosen = np.random.default_rng(seed)

    def some(most):
        return " ".join(chosen.choice(WORDS, chosen.integers(1, most)))

    return [{"prompt": some(5), "response": some(8)} for _ in range(count)]


ROWS = {"train": pairs(20), "validation": pairs(11, 1), "test": pairs(7, 2)}


def sft(folder, rows=ROWS, **given):
    return lm_job(folder, "instruction-tuning", rows, **{"model_type": "llama", **given})


def chat_job(folder, chats, template=TEMPLATE, **given):
    rows = {"train": [{"messages": chat} for chat in chats] * 4, "validation": [{"messages": chat} for chat in chats]}
    tokenizer = tokenizer_folder(folder, template=template)
    return sft(folder, rows, tokenizer=tokenizer, data={"messages_column": "messages"}, max_seq_length=24, **given)


def judged(work, number=0, name="validation"):
    """What of a row the model must tell, as words, from its batch."""
    batch = work.collate([work.features[name][number], work.filler])
    assert (batch["labels"][1] == -100).all()
    words = {number: word for word, number in NUMBER.items()} | {1: "?", 2: "<s>", 3: "</s>"}
    return " ".join(words[token] for token in batch["labels"][0].tolist() if token != -100)


def test_the_response_and_its_end_are_judged_and_cut(tmp_path):
    work, _ = ready(sft(tmp_path))
    for name, rows in ROWS.items():
        for number, row in enumerate(rows):
            room = 8 - len(row["prompt"].split())
            assert judged(work, number, name) == " ".join([*row["response"].split(), "</s>"][:room])
    batches = [work.collate([feature, work.filler]) for feature in work.features["train"]]
    assert {tuple(tensor.shape) for batch in batches for tensor in batch.values()} == {(2, 8)}
    assert all(batch["attention_mask"][1].any() for batch in batches)


def test_each_answer_of_a_chat_is_judged(tmp_path):
    work, _ = ready(chat_job(tmp_path, [CHAT]))
    assert judged(work) == "is calm </s> sings </s>"
    ids = work.features["validation"][0]["input_ids"].tolist()
    assert ids[:7] == [2, NUMBER["question"], NUMBER["the"], NUMBER["sea"], 3, 2, NUMBER["answer"]]


def test_what_follows_the_last_answer_is_left_out(tmp_path):
    work, _ = ready(chat_job(tmp_path, [[*CHAT, {"role": "user", "content": "now rest"}]]))
    assert judged(work) == "is calm </s> sings </s>"
    assert NUMBER["rest"] not in work.features["validation"][0]["input_ids"]


def test_a_template_that_forgets_has_its_last_answer_judged(tmp_path):
    work, _ = ready(chat_job(tmp_path, [CHAT], FORGETFUL))
    assert judged(work) == "sings </s>"


def test_a_template_that_asks_otherwise_than_it_answers(tmp_path):
    template = TEMPLATE.replace("{{ '<s> answer ' }}", "{{ '<s> now ' }}")
    work, _ = ready(chat_job(tmp_path, [CHAT[:2]], template))
    assert judged(work) == "is calm </s>"


def test_figures_are_those_of_the_whole_logits(tmp_path, uncompiled, monkeypatch):
    import torch
    from sklearn.metrics import accuracy_score, log_loss

    seen = dumped(monkeypatch)
    done = train_here(sft(tmp_path, per_device_eval_batch_size=4))
    assert {tuple(batch["input_ids"].shape) for batch, _ in seen} == {(4, 8)}
    for name, part in (("validation", seen[:3]), ("test", seen[3:])):
        logits = torch.cat([all_logits[:, :-1] for _, all_logits in part]).flatten(0, 1)
        labels = torch.cat([batch["labels"][:, 1:] for batch, _ in part]).flatten()
        logits, labels = logits[labels != -100].double(), labels[labels != -100]
        figures = done.metrics[name]
        assert (figures["rows"], figures["tokens"]) == (len(ROWS[name]), len(labels))
        expected = log_loss(labels, logits.softmax(-1).numpy(), labels=np.arange(64))
        assert figures["loss"] == pytest.approx(expected, abs=2e-6)
        assert figures["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
        assert figures["accuracy"] == pytest.approx(accuracy_score(labels, logits.argmax(-1)), abs=1e-6)
    assert train_here(sft(tmp_path, mode="trial")).metrics["validation"]["rows"] == 3


@pytest.mark.slow  # of the same model, and of batches of the same form, as in causal language modelling
def test_a_forward_pass_is_one_graph(tmp_path):
    assert graphs(*ready(chat_job(tmp_path, [CHAT]))) == 2


def test_rows_without_room_for_a_response_are_told(tmp_path, uncompiled):
    long = {"prompt": "the sea is calm and a bird sings", "response": "now"}
    made = sft(tmp_path, {"train": [*pairs(8), long], "validation": [*pairs(4, 1), long, long]})
    done = train_here(made)
    assert done.metrics["validation"]["rows"] == 4
    assert [event["note"].partition(":")[0] for event in told(made, "note")] == [
        "1 of 9 train rows are left out",
        "2 of 6 validation rows are left out",
    ]
    with pytest.raises(DataError, match="no train row has room for a response") as refused:
        ready(sft(tmp_path, {"train": [long] * 4, "validation": pairs(3)}))
    assert "training.max_seq_length" in refused.value.cause


@pytest.mark.parametrize(
    "chat, said",
    [
        ([], "no message has the role assistant"),
        ([{"role": "user", "content": "the sea"}], "no message has the role assistant"),
        ([{"from": "human", "value": "the sea"}], "a message has no role or no content"),
        ([{"role": "user", "content": ["the"]}, CHAT[1]], "a message has no role or no content"),
    ],
)
def test_what_is_no_chat_is_refused(tmp_path, chat, said):
    with pytest.raises(DataError, match=f"train row 1: {said}") as refused:
        ready(chat_job(tmp_path, [chat]))
    assert '"role": "assistant"' in refused.value.hint


def test_other_rows_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(DataError, match="validation row 2 has no response") as refused:
        ready(sft(tmp_path / "a", {"train": pairs(9), "validation": [*pairs(1), {"prompt": "a", "response": " "}]}))
    assert "data.response_column" in refused.value.hint
    with pytest.raises(RecipeError, match="the tokenizer has none"):
        ready(chat_job(tmp_path / "b", [CHAT], None))
    with pytest.raises(DataError, match="chat template refuses the chat") as refused:
        ready(chat_job(tmp_path / "c", [CHAT], "{{ raise_exception('no system here') }}"))
    assert refused.value.cause == "no system here"
    with pytest.raises(DataError, match="messages is one value"):
        shapes.check_data(
            sft(tmp_path / "d", {"train": [{"messages": "hi"}]}, data={"messages_column": "messages"}).recipe
        )
    with pytest.raises(DataError, match="no column 'response'"):
        shapes.check_data(sft(tmp_path / "e", {"train": [{"prompt": "hi"}]}).recipe)


def test_prompt_and_response_are_parted():
    from cachekit.training.tasks.instruction_tuning import _between

    assert [_between(*pair) for pair in (("a", "b"), ("a\n", "b"), ("a", " b"), ("", "b"))] == ["\n", "", "", ""]
