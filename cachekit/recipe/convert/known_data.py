"""What a command line leaves to its script: splits, columns and labels of data sets that the field's examples use.

From the example scripts of Transformers (`task_to_keys` of run_glue.py, `summarization_name_mapping` of
run_summarization.py) and the data sets' cards on the Hub.
"""

from __future__ import annotations

from typing import Any

# GLUE: the data set's second name to columns, labels, and the validation split.
_GLUE: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "cola": ("sentence", None, ("unacceptable", "acceptable")),
    "mnli": ("premise", "hypothesis", ("entailment", "neutral", "contradiction")),
    "mrpc": ("sentence1", "sentence2", ("not_equivalent", "equivalent")),
    "qnli": ("question", "sentence", ("entailment", "not_entailment")),
    "qqp": ("question1", "question2", ("not_duplicate", "duplicate")),
    "rte": ("sentence1", "sentence2", ("entailment", "not_entailment")),
    "sst2": ("sentence", None, ("negative", "positive")),
    "wnli": ("sentence1", "sentence2", ("not_entailment", "entailment")),
}
GLUE_TASKS = (*_GLUE, "stsb")
_CONLL = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
_EMOTION = ["sadness", "joy", "love", "anger", "fear", "surprise"]
_SENTIMENT = ["negative", "positive"]

# By the last part of the Hub id; fields of `data`.
_KNOWN: dict[str, dict[str, Any]] = {
    "emotion": {"validation_split": "validation", "test_split": "test", "labels": _EMOTION},
    "imdb": {"validation_split": "test", "labels": ["neg", "pos"]},
    "amazon_polarity": {"validation_split": "test", "text_column": "content", "labels": _SENTIMENT},
    "ag_news": {"validation_split": "test", "labels": ["World", "Sports", "Business", "Sci/Tech"]},
    "yelp_review_full": {"validation_split": "test", "num_labels": 5},
    "rotten_tomatoes": {"validation_split": "validation", "test_split": "test", "labels": ["neg", "pos"]},
    "xnli": {
        "validation_split": "validation",
        "test_split": "test",
        "text_column": "premise",
        "text_pair_column": "hypothesis",
        "labels": ["entailment", "neutral", "contradiction"],
    },
    "conll2003": {"validation_split": "validation", "test_split": "test", "labels": _CONLL},
    "wnut_17": {"validation_split": "validation", "test_split": "test", "num_labels": 13},
    "squad": {"validation_split": "validation"},
    "squad_v2": {"validation_split": "validation"},
    "swag": {
        "validation_split": "validation",
        "context_column": "sent1",
        "question_column": "sent2",
        "choices_columns": ["ending0", "ending1", "ending2", "ending3"],
    },
    "wikitext": {"validation_split": "validation", "test_split": "test"},
    "xsum": {"validation_split": "validation", "test_split": "test", "source_column": "document"},
    "cnn_dailymail": {
        "validation_split": "validation",
        "test_split": "test",
        "source_column": "article",
        "target_column": "highlights",
    },
    "samsum": {
        "validation_split": "validation",
        "test_split": "test",
        "source_column": "dialogue",
        "target_column": "summary",
    },
    "billsum": {"validation_split": "test", "source_column": "text", "target_column": "summary"},
    "multi_news": {"validation_split": "validation", "test_split": "test", "source_column": "document"},
    "amazon_reviews_multi": {"source_column": "review_body", "target_column": "review_title"},
    "big_patent": {"validation_split": "validation", "source_column": "description", "target_column": "abstract"},
    "pubmed_qa": {"source_column": "question", "target_column": "long_answer"},
    "psc": {"source_column": "extract_text", "target_column": "summary_text"},
    "wiki_summary": {"source_column": "article", "target_column": "highlights"},
    "orange_sum": {"validation_split": "validation", "source_column": "text", "target_column": "summary"},
    "databricks-dolly-15k": {"prompt_column": "instruction", "response_column": "response"},
    "wmt14": {"validation_split": "validation", "test_split": "test"},
    "wmt16": {"validation_split": "validation", "test_split": "test"},
    "beans": {
        "validation_split": "validation",
        "test_split": "test",
        "label_column": "labels",
        "labels": ["angular_leaf_spot", "bean_rust", "healthy"],
    },
    "cats_vs_dogs": {"label_column": "labels", "labels": ["cat", "dog"]},
    "cifar10": {
        "validation_split": "test",
        "image_column": "img",
        "labels": ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
    },
    "food101": {"validation_split": "validation", "num_labels": 101},
}


def known(name: str, config: str | None = None) -> dict[str, Any]:
    """Fields of `data` for a data set; empty where nothing is known of it."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    if last == "glue" and config:
        return glue(config)
    return dict(_KNOWN.get(last, {}))


def glue(task: str) -> dict[str, Any]:
    """Fields of `data` for a task of GLUE; its test rows have no labels."""
    if task.lower() not in _GLUE:
        return {}
    first, second, labels = _GLUE[task.lower()]
    found: dict[str, Any] = {
        "validation_split": "validation_matched" if task.lower() == "mnli" else "validation",
        "text_column": first,
        "labels": list(labels),
    }
    return found | ({"text_pair_column": second} if second else {})
