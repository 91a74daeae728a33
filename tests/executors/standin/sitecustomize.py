"""In front of PYTHONPATH: every cachekit below has the stand-in compiler, and STANDIN_LOG counts its compiles.

For tests of fleets, whose commands an engine starts.
"""

import sys

if "cachekit" in sys.orig_argv:  # python -m cachekit
    from cachekit import compilers, training
    from tests.support.standins import WORKER, StandIn

    launcher = training.ProcessLauncher
    compilers.select = lambda *names, **others: StandIn()
    training.ProcessLauncher = lambda: launcher(WORKER)
