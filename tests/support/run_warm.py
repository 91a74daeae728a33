"""A run of cachekit with the stand-in compiler, in a process of its own: for tests that kill, interrupt and compete.

    run_warm.py warm|train --home DIR [--cache-dirs DIR] [--batch N] ...     prints what the action returned, as JSON;
                                                                       `start` goes to stderr before
    run_warm.py cli ARGUMENTS...                                       the real command line

STANDIN_VERSION, STANDIN_GRAPHS and STANDIN_EXTRA describe the compiler; see also `standin_worker.py`.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from cachekit import compilers, training
from cachekit.cli import app
from cachekit.errors import CachekitError
from cachekit.events import Journal
from cachekit.store.layout import Layout
from cachekit.values import builtins
from cachekit.verbs.planned import warmed
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.standins import WORKER, StandIn, Watched, recipe


def compiler():
    """The stand-in, as the environment describes it."""
    return StandIn(graphs=int(os.environ.get("STANDIN_GRAPHS", "3")), extra=int(os.environ.get("STANDIN_EXTRA", "0")))


def main(arguments):
    """Run; returns the exit code."""
    if arguments[0] == "cli":
        launcher = training.ProcessLauncher
        compilers.select = lambda *names, **others: compiler()
        training.ProcessLauncher = lambda: launcher(WORKER)
        return app.run(arguments[1:])
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["warm", "train"])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--cache-dirs", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--wait", type=float, default=60.0)
    parser.add_argument("--recache", action="store_true")
    parser.add_argument("--require-warm", action="store_true")
    given = parser.parse_args(arguments)
    journal = Journal(Layout(given.home).journal, given.verb)
    watched = Watched(
        given.home, cache_dirs=given.cache_dirs, compiler=compiler(), inline=False, wait=given.wait, journal=journal
    )
    how = {"recache": given.recache, "require_warm": given.require_warm}
    prepared = watched.prepare(recipe(given.batch))
    sys.stderr.write("start\n")
    sys.stderr.flush()
    try:
        if given.verb == "warm":
            done = warmed(warm(watched.session, prepared, **how))
        else:
            done = train(watched.session, prepared, output_dir=given.output or given.home / "output", **how)
    except CachekitError as error:
        sys.stdout.write(json.dumps({"error": builtins(error)}) + "\n")
        return error.exit_code
    finally:
        journal.close()
    sys.stdout.write(json.dumps(done.as_dict()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
