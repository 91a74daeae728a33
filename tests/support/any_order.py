"""Modules in another order, and each module's tests too: none may need that another ran before.

python -m pytest -p tests.support.any_order --order 7 --no-loadscope-reorder -n 2 --dist loadgroup
"""

from __future__ import annotations

import random

import pytest


def pytest_addoption(parser):
    parser.addoption("--order", type=int, help="the number of an order of modules, and of the tests in each")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if (order := config.getoption("order")) is None:
        return
    chance = random.Random(order)
    modules = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    paths = list(modules)
    chance.shuffle(paths)
    for path in paths:
        chance.shuffle(modules[path])
    items[:] = [item for path in paths for item in modules[path]]
