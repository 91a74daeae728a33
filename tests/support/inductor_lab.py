"""Recipes in small on the real Inductor: one warm a store, and strict runs on copies of it.

A run is the real worker, watched and stopped at the first compile as under `--require-warm`; only that it is forked
from a process which has imported PyTorch (`preloaded.py`) spares it some seconds.
"""

import shutil
import sys
from functools import partial
from pathlib import Path

from msgspec import structs

from cachekit import config
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.prepare import prepare
from cachekit.errors import MissError
from cachekit.events import Journal
from cachekit.recipe import load, tiny, zoo
from cachekit.store import Store
from cachekit.training import ProcessLauncher
from cachekit.verbs.session import Session
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm

HERE = Path(__file__).parent
SMALL = ("training.bf16=false", "training.max_steps=3", "training.save_strategy=no", "training.eval_strategy=no")
# What makes each still smaller than `--tiny` does: the C++ compiler takes most of a cold compile.
SMALLER = {
    "bert": ("model.config.num_hidden_layers=1", "training.max_seq_length=16"),
    "bert-large-squad": (
        "model.config.num_hidden_layers=1", "training.max_seq_length=32", "training.doc_stride=8",
    ),
    "bert-swag": ("model.config.num_hidden_layers=1", "training.max_seq_length=16"),
    "distilbert-ner": ("model.config.n_layers=1", "training.max_seq_length=16"),
    "gpt2-clm": ("model.config.n_layer=1", "training.max_seq_length=16"),
    "roberta-mlm": ("model.config.num_hidden_layers=1", "training.max_seq_length=16"),
    "t5-summarization": (
        "model.config.num_layers=1", "model.config.num_decoder_layers=1", "training.max_seq_length=16",
        "training.max_target_length=8",
    ),
    "t5-translation": (
        "model.config.num_layers=1", "model.config.num_decoder_layers=1", "training.max_seq_length=16",
        "training.max_target_length=8",
    ),
    "tinyllama-lora": ("model.config.num_hidden_layers=1", "training.max_seq_length=16"),
    "vit": ("model.config.num_hidden_layers=1",),
}  # fmt: skip


def in_small(name, *overrides):
    """A recipe of the zoo, smaller than with `--tiny`, and overrides, as the command line reads them."""
    return tiny.in_small((*SMALL, *SMALLER[name], *overrides), partial(load, zoo.recipes()[name]))


class Lab:
    """A folder for the stores, and the process that workers are forked from."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.door = self.folder / "door"
        self.compiler = Inductor()
        self.count = 0
        self.homes = {}

    def close(self):
        Path(f"{self.door}.end").touch()

    def session(self, home, *, forked=True):
        settings = config.load({"home": home}, environ={}, cwd=HERE)
        command = [sys.executable, str(HERE / "preloaded.py"), str(self.door)] if forked else None
        journal = Journal(None, "test")
        return Session(settings, journal, Store(Path(home), journal), launcher=lambda: ProcessLauncher(command))

    def prepare(self, recipe):
        return prepare(recipe, self.compiler)

    def home(self, name):
        """The store in which a recipe was warmed: the one cold compile of it."""
        if name not in self.homes:
            self.homes[name] = self.folder / name
            warm(self.session(self.homes[name]), self.prepare(in_small(name)))
        return self.homes[name]

    def compiles(self, name, recipe, *, forked=True):
        """Whether a training needs a graph that the recipe in small has not: a strict run, on a copy of its store.

        Both have the same key here, whatever their own are: else nothing would be tried where they differ by much.
        `forked=False` is for variables that PyTorch reads as it is imported.
        """
        self.count += 1
        copy = self.folder / f"copy-{self.count}"
        shutil.copytree(self.home(name), copy)
        base = self.prepare(in_small(name))
        disguised = structs.replace(self.prepare(recipe), place=base.place, ingredients=base.ingredients)
        try:
            done = train(self.session(copy, forked=forked), disguised, output_dir=copy / "out", require_warm=True)
        except MissError:
            return True
        finally:
            shutil.rmtree(copy)
        assert (done.compiled, done.built) == (0, 0)
        return False
