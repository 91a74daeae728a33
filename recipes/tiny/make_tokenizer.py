"""Write the tokenizer of the tiny recipes: one number a word, for the words of their rows.

Run it after a change of the rows: python recipes/tiny/make_tokenizer.py
"""

import json
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = 512
CHAT = (
    "{% for message in messages %}{{ message['role'] + ' : ' + message['content'] + ' [SEP] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}"
)


def words() -> list[str]:
    """All words of the rows, the most frequent first."""
    found = Counter(["system", "user", "assistant", ":"])
    for path in sorted(HERE.glob("*/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            found.update(re.findall(r"\w+|[^\w\s]+", " ".join(texts(json.loads(line))).lower()))
    kept = sorted(found, key=lambda word: (-found[word], word))
    if len(kept) > VOCABULARY - len(SPECIAL):
        raise SystemExit(f"{len(kept)} words, {VOCABULARY - len(SPECIAL)} fit")
    return kept


def texts(value: object) -> list[str]:
    """The texts in a value, at any depth."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def main() -> None:
    """Write `tokenizer/`."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words()])}
    added = [
        {"id": number, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False}
        for number, word in enumerate(SPECIAL)
    ]

    def piece(kind: str, name: str, segment: int) -> dict:
        return {kind: {"id": name, "type_id": segment}}

    cls, sep = piece("SpecialToken", "[CLS]", 0), piece("SpecialToken", "[SEP]", 0)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, piece("Sequence", "A", 0), sep],
            "pair": [cls, piece("Sequence", "A", 0), sep, piece("Sequence", "B", 1), piece("SpecialToken", "[SEP]", 1)],
            "special_tokens": {
                word: {"id": word, "ids": [SPECIAL.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")
            },
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "model_max_length": 512,
        "chat_template": CHAT,
    }
    for name, document in {"tokenizer.json": tokenizer, "tokenizer_config.json": config}.items():
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        (HERE / "tokenizer" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
