"""One process, one first step: the driver of bench_first_step.py. Prints seconds from the first call to its end.

python first_step.py [--save FILE | --load FILE]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, BertConfig

from cachekit.compilers.inductor.runtime import Runtime

BATCH, LENGTH = 8, 32


def main() -> None:
    runtime = Runtime()
    runtime.prepare({})
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=2,
        hidden_size=384,
        num_attention_heads=12,
        intermediate_size=1536,
        num_labels=3,
        problem_type="single_label_classification",
    )
    model = AutoModelForSequenceClassification.from_config(config)
    runtime.compile_model(model, {})
    inputs = {
        "input_ids": torch.randint(0, 1000, (BATCH, LENGTH)),
        "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
        "labels": torch.zeros(BATCH, dtype=torch.long),
    }
    start = time.perf_counter()
    if "--load" in sys.argv:
        torch.compiler.load_cache_artifacts(Path(sys.argv[2]).read_bytes())
    model.train()
    model(**inputs).loss.backward()
    seconds = time.perf_counter() - start
    if "--save" in sys.argv:
        artifacts = torch.compiler.save_cache_artifacts()
        assert artifacts is not None
        Path(sys.argv[2]).write_bytes(artifacts[0])
    print(seconds, runtime.counters()["compiled"])


if __name__ == "__main__":
    main()
