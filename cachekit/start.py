"""Run a module in a process of its own, with the working directory not among the places that it imports from.

    python start.py MODULE ARGUMENT…

`python -m` looks there first: a user's `datasets.py` would be taken for the library. (Python's own option `-P` came
with 3.11.) A folder of PYTHONPATH stays what the user made it. It is run as a file; the cachekit that it belongs to is
the one that the module imports.
"""

import sys

if __name__ == "__main__" and sys.path and sys.path[0] and __file__.rpartition("/")[0] == sys.path[0]:
    del sys.path[0]  # this file's folder: first of all, for modules of cachekit have names that others have as well

import importlib.util
import runpy
from pathlib import Path

COMMAND = (sys.executable, __file__)


def main() -> None:
    """Run the module that the command line names as the main one."""
    package = Path(__file__).parent
    spec = importlib.util.spec_from_file_location(
        "cachekit", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    sys.modules["cachekit"] = own
    spec.loader.exec_module(own)
    if str(package.parent) not in sys.path:  # last: it shadows nothing
        sys.path.append(str(package.parent))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
