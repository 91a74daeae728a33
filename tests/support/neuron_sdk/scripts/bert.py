"""Fine-tune a tiny BERT with `transformers.Trainer` on torch_xla: the graphs of a real training step.

    python bert.py FOLDER [STEPS]     accumulation, evaluation and checkpoints; ranks of torchrun train apart

The two overrides keep what a device computed out of Python's decisions: a run that only extracts graphs gets zeros.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch_xla.debug.metrics as xla_metrics
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

LENGTH, BATCH, STEPS, EVERY = 16, 4, 6, 3


class Rows(Dataset):
    """Random rows."""

    def __init__(self, number: int, seed: int) -> None:
        self._number, self._seed = number, seed

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> dict:
        random = np.random.RandomState(self._seed + index)
        return {
            "input_ids": torch.tensor(random.randint(1, 99, LENGTH)),
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "labels": torch.tensor(int(random.randint(3))),
        }


class StaticTrainer(Trainer):
    """A Trainer whose graphs do not depend on what others computed."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.accelerator.pad_across_processes = lambda tensor, **_: tensor

    def _nested_gather(self, tensors, name=None):
        return self.accelerator.gather(tensors)


def main(folder: str, steps: int) -> None:
    """Train, evaluate, save."""
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=3,
        attn_implementation="eager",  # the default one asks whether a batch has padding, and makes another graph if not
    )
    arguments = TrainingArguments(
        output_dir=f"{folder}/{rank}",
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        gradient_accumulation_steps=2,
        max_steps=steps,
        optim="adamw_torch",
        eval_strategy="steps",
        eval_steps=EVERY,
        save_strategy="steps",
        save_steps=EVERY,
        logging_steps=1,
        eval_accumulation_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_drop_last=True,
        dataloader_pin_memory=False,
    )
    trainer = StaticTrainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Rows(64, 0),
        eval_dataset=Rows(3 * BATCH, 1000),
    )
    checkpoints = sorted(Path(arguments.output_dir).glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=str(checkpoints[0]) if checkpoints else None)
    if rank:  # work that one rank alone does: a graph that the others never see
        torch.arange(rank + 1).to("xla").cumsum(0).cpu()
    print(f"xla-compiles={xla_metrics.counter_value('UncachedCompile')} device={arguments.device}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else STEPS)
