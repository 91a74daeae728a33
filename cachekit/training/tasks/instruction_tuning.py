"""Instruction tuning: a model answers as it is shown. The instruction is given; only the response is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError, RecipeError
from cachekit.recipe import tasks
from cachekit.text import first_line
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, metrics
from cachekit.training.tasks.port import FILLER, Array, Collator, Feature, Task, Work

RESPONDER = "assistant"  # the role of a chat whose messages are learnt

Piece = tuple[str, bool]  # a text, and whether it is judged


class InstructionTuning(Task):
    """Rows are `{"prompt", "response"}` or `{"messages"}`, features tokens and which are judged."""

    auto_model = "AutoModelForCausalLM"

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        columns = tasks.columns(job.recipe)
        chat = columns.get("messages_column")

        def read(row: Mapping[str, Any], where: str) -> Feature:
            if chat:
                return {"messages": messages(row[chat], where), "where": where}
            prompt, response = columns["prompt_column"], columns["response_column"]
            if not data.text(row[response]).strip():
                raise DataError(f"{where} has no response", hint="remove the row, or check data.response_column")
            return {"prompt": data.text(row[prompt]), "response": data.text(row[response]), "where": where}

        return data.splits(data.tables(job.recipe), job.recipe, read)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        inputs.check_causal(model)
        inputs.check_vocabulary(processor, model)
        length, end = job.recipe.training.max_seq_length, inputs.end_of_text(processor)
        if job.recipe.data.messages_column and not processor.chat_template:
            raise RecipeError(
                "data.messages_column needs a chat template, and the tokenizer has none",
                hint="choose another with model.tokenizer, or give data.prompt_column and data.response_column",
            )
        features: dict[str, Sequence[Feature]] = {}
        notes: list[str] = []
        for name, split in splits.items():
            features[name], lost = _encoded(split, processor, length, most.get(name))
            if not features[name]:
                raise DataError(
                    f"no {name} row has room for a response",
                    cause=f"the prompts alone have more than {length} tokens: training.max_seq_length",
                    hint="raise training.max_seq_length",
                )
            if lost:
                notes.append(
                    f"{lost} of {len(split)} {name} rows are left out: their prompts alone have the {length} tokens of "
                    "training.max_seq_length, or more"
                )

        def encode(rows: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
            return filled_up(rows, length, end)

        return Work(
            features=features,
            filler={"input_ids": np.full(1, end, dtype=np.int32), "judged": np.zeros(1, dtype=np.bool_)},
            collate=Collator(inputs.inputs_of(model), encode),
            score=score,
            reduce=metrics.next_token_sums,
            notes=tuple(notes),
        )


def messages(value: Any, where: str) -> list[dict[str, str]]:
    """A chat; DataError for anything else, and for a chat in which nobody answers."""
    form = '[{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]'
    chat = value if isinstance(value, list) else []
    for message in chat:
        if not isinstance(message, dict) or not all(isinstance(message.get(name), str) for name in ("role", "content")):
            raise DataError(f"{where}: a message has no role or no content", hint=f"data.messages_column holds {form}")
    if not any(message["role"] == RESPONDER for message in chat):
        raise DataError(f"{where}: no message has the role {RESPONDER}", hint=f"a chat is {form}")
    return [{"role": message["role"], "content": message["content"]} for message in chat]


def _encoded(split: Split, tokenizer: Any, length: int, most: int | None) -> tuple[list[Feature], int]:
    """Features of a split's rows, and how many rows have none because nothing of their response fits."""
    start, end = _start(tokenizer), [inputs.end_of_text(tokenizer)]
    found: list[Feature] = []
    lost = 0
    for row in split:
        if most is not None and len(found) >= most:
            break
        ids, judged = _tokens(tokenizer, row, start, end)
        if judged[:length].any():
            found.append({"input_ids": ids[:length], "judged": judged[:length]})
        else:
            lost += 1
    return found, lost


def _tokens(tokenizer: Any, row: Feature, start: list[int], end: list[int]) -> tuple[Array, Array]:
    """Each piece is tokenized by itself: so is a prompt, when the model is asked."""
    if "messages" in row:
        pieces = list(chat_pieces(tokenizer, row["messages"], row["where"]))
        start, end = [], []  # the template writes them
    else:
        pieces = [(row["prompt"] + _between(row["prompt"], row["response"]), False), (row["response"], True)]
    parts = inputs.token_lists(tokenizer, [text for text, _ in pieces], special=False)
    ids: Array = np.asarray([*start, *(token for part in parts for token in part), *end], dtype=np.int32)
    judged: Array = np.zeros(len(ids), dtype=np.bool_)
    place = len(start)
    for part, (_, is_judged) in zip(parts, pieces, strict=True):
        judged[place : place + len(part)] = is_judged
        place += len(part)
    judged[place:] = True
    if len(judged):
        judged[0] = False  # there is nothing that it could be told from
    return ids, judged


def _between(prompt: str, response: str) -> str:
    """A line's end where nothing else would part them."""
    return "" if not prompt or prompt[-1].isspace() or response[:1].isspace() else "\n"


def _start(tokenizer: Any) -> list[int]:
    """The token that the tokenizer itself puts before a text, if it does."""
    token = tokenizer.bos_token_id
    (ids,) = inputs.token_lists(tokenizer, ["a"], special=True)
    return [token] if token is not None and ids[:1] == [token] else []


def chat_pieces(tokenizer: Any, chat: Sequence[Mapping[str, str]], where: str) -> Iterator[Piece]:
    """A chat as its template writes it: what the assistant says, and how that ends, is judged.

    A template may write earlier answers in another way once there are later ones (without their thoughts, for
    example). Then only the last one is judged.

    Raises:
        DataError: The template refuses the chat, or doesn't write an answer after what asks for it.
    """
    try:
        turns = [number for number, message in enumerate(chat) if message["role"] == RESPONDER]
        chat = chat[: turns[-1] + 1]
        spans = [
            (_written(tokenizer, chat[:number], asks=True), _written(tokenizer, chat[: number + 1], asks=False))
            for number in turns
        ]
    except Exception as error:  # Jinja's errors, and those that a template raises, have no root of their own
        raise DataError(f"{where}: the tokenizer's chat template refuses the chat", cause=first_line(error)) from error
    whole = spans[-1][1]
    if not all(after.startswith(before) and whole.startswith(after) for before, after in spans):
        spans = spans[-1:]
    if not whole.startswith(spans[-1][0]):
        # A template that ends its question otherwise than it begins the answer: the words themselves are there.
        said = chat[-1]["content"].strip()
        start = whole.rfind(said)
        if not said or start < 0:
            raise DataError(
                f"{where}: the chat template changes the words of the last answer",
                hint="give data.prompt_column and data.response_column, or choose another model.tokenizer",
            )
        spans = [(whole[:start], whole)]
    place = 0
    for before, after in spans:
        yield whole[place : len(before)], False
        yield whole[len(before) : len(after)], True
        place = len(after)


def _written(tokenizer: Any, chat: Sequence[Mapping[str, str]], *, asks: bool) -> str:
    if not chat:  # the assistant speaks first: templates refuse a chat of nothing
        return ""
    text: str = tokenizer.apply_chat_template(list(chat), tokenize=False, add_generation_prompt=asks)
    return text


def filled_up(rows: Sequence[Feature], length: int, filler: int) -> Mapping[str, torch.Tensor]:
    """Rows as tensors of one length, filled up at their ends, where no judged place can see it."""
    shape = (len(rows), length)
    ids, labels = torch.full(shape, filler), torch.full(shape, FILLER)
    mask = torch.zeros(shape, dtype=torch.long)
    for number, row in enumerate(rows):
        tokens = torch.from_numpy(row["input_ids"]).long()
        ids[number, : len(tokens)] = tokens
        mask[number, : len(tokens)] = 1
        labels[number, : len(tokens)] = torch.where(torch.from_numpy(row["judged"]), tokens, FILLER)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def score(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:  # noqa: ARG001 - the port's
    """Mean loss over the responses' tokens, perplexity, tokens and their accuracy, and rows."""
    return {**metrics.of_sums(predictions, accuracy=True), "rows": len(features)}


TASK = InstructionTuning()
