"""Other names that people use for our fields, and the one we use.

From the recipes that exist in the field (optimum-neuron's scripts, neuronx-distributed-training, Metaflow, SageMaker
samples): whoever brings one over should find that it reads. Every synonym maps to one name; using both is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe.yaml_text import Path

# Names of other tools whose values are other ones, so that they are not synonyms: an error points to the field.
MEANT: dict[str, dict[str, str]] = {
    "training": {"precision": "bf16", "mixed_precision": "bf16", "dtype": "bf16"},
}
SYNONYMS: dict[str, dict[str, str]] = {
    "": {
        "env": "environment",
        "trainer": "training",
        "dataset": "data",
        "expected": "expect",
        "parallelism": "parallel",
    },
    "model": {
        "model_id": "id",
        "model_name_or_path": "id",
        "name": "id",
        "config_overrides": "config",
        "tokenizer_name": "tokenizer",
    },
    "data": {
        "dataset_name": "id",
        "name": "id",
        "dataset_config_name": "config",
        "train": "train_file",
        "validation": "validation_file",
        "test": "test_file",
        "sentence_column": "text_column",
        "label_names": "labels",
        "max_train_rows": "max_train_samples",
        "max_eval_rows": "max_eval_samples",
        "summary_column": "target_column",
        "source_language": "source_lang",
        "target_language": "target_lang",
    },
    "training": {
        "batch_size": "per_device_train_batch_size",
        "train_batch_size": "per_device_train_batch_size",
        "micro_batch_size": "per_device_train_batch_size",
        "eval_batch_size": "per_device_eval_batch_size",
        "max_length": "max_seq_length",
        "sequence_length": "max_seq_length",
        "seq_length": "max_seq_length",
        "block_size": "max_seq_length",
        "train_max_length": "max_seq_length",
        "epochs": "num_train_epochs",
        "num_epochs": "num_train_epochs",
        "max_train_steps": "max_steps",
        "total_steps": "max_steps",
        "lr": "learning_rate",
        "accumulation_steps": "gradient_accumulation_steps",
        "evaluation_strategy": "eval_strategy",
        "lr_scheduler": "lr_scheduler_type",
        "optimizer": "optim",
        "label_smoothing": "label_smoothing_factor",
        "peft": "lora",
        "max_source_length": "max_seq_length",
        "source_sequence_length": "max_seq_length",
        "target_sequence_length": "max_target_length",
    },
    "parallel": {
        "num_cores": "data_parallel_size",
        "num_workers": "data_parallel_size",
        "nproc_per_node": "data_parallel_size",
        "devices": "data_parallel_size",
        "tensor_parallelism_degree": "tensor_parallel_size",
        "tensor_model_parallel_size": "tensor_parallel_size",
        "pipeline_model_parallel_size": "pipeline_parallel_size",
        "use_zero_1": "zero_1",
        "zero1": "zero_1",
        "num_nodes": "nodes",
        "nnodes": "nodes",
    },
    "compiler": {"compiler_flags": "flags", "backend": "name"},
}


def canonical(path: Path) -> Path:
    """A field's path by the names that we use."""
    if not path:
        return path
    top = SYNONYMS[""].get(str(path[0]), path[0])
    names = SYNONYMS.get(str(top), {})
    return (top, *(names.get(str(name), name) for name in path[1:2]), *path[2:])


def normalise(document: dict[str, Any], lines: Mapping[Path, int], source: str) -> dict[str, Any]:
    """Rename synonyms, at the top and one level down; other values are kept as they are.

    Raises:
        RecipeError: A field is given under two names.
    """
    renamed = _rename(document, (), lines, source)
    for section, value in renamed.items():
        if section in SYNONYMS and isinstance(value, dict):
            renamed[section] = _rename(value, (section,), lines, source)
    return renamed


def _rename(mapping: dict[str, Any], around: Path, lines: Mapping[Path, int], source: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for given, value in mapping.items():
        *_, name = canonical((*around, given))
        first = spelled.setdefault(str(name), given)
        if name in result:
            prefix = "".join(f"{section}." for section in around)
            line = lines.get((*around, given))
            raise RecipeError(
                f"{source}{f', line {line}' if line else ''}: {prefix}{first} and {prefix}{given} are the same field",
                hint=f"keep {prefix}{name}",
            )
        result[str(name)] = value
    return result
