"""In front of PYTHONPATH: every cachekit below has the stand-in compiler, and STANDIN_LOG counts its compiles.

For tests of fleets, whose commands an engine starts. A fork of a Python that has loaded cachekit already
(`tests.support.forked`) has both names in other modules, too.
"""

import sys

if "cachekit" in sys.orig_argv:  # python -m cachekit
    from cachekit import compilers, training
    from tests.support.standins import WORKER, StandIn

    launcher, select = training.ProcessLauncher, compilers.select
    for module in [one for name, one in sys.modules.items() if name.startswith("cachekit.")]:
        if getattr(module, "select", None) is select:
            module.select = lambda *names, **others: StandIn(node=others.get("node"))
        if getattr(module, "ProcessLauncher", None) is launcher:
            module.ProcessLauncher = lambda: launcher(WORKER)
