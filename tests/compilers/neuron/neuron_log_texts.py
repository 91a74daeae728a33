"""Neuron's logs: names in them, how they are read, and real ones."""

import pytest

from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.compilers.neuron.log.summary import Log
from tests.support.places import real_dir

ROOT = "/var/tmp/neuron-compile-cache"
NCC = f"{ROOT}/neuronxcc-2.26.6360.0+6f180f47"


def module(number):
    return f"MODULE_{number}+f7f529f3"


def events_of(text):
    reader = LogReader()
    return reader.feed(text) + reader.close()


def run_of(text):
    return Log().add_all(events_of(text))


def real_log(kind):
    found = sorted(real_dir("logs").glob(kind))
    if not found:
        pytest.skip(f"no {kind} among the real files (CACHEKIT_REAL_DIR)")
    return found[0]
