"""Ways in which an SDK may be another than cachekit takes it for, as changes of its stand-in (`support.neuron_sdk`).

Each is a few lines that every Python process of a host begins with, and what must be found: that, and nothing else.
Those that do not touch each other are altered in one SDK: a run takes a quarter of a minute.
"""

from __future__ import annotations

from typing import NamedTuple


class Alteration(NamedTuple):
    """A change of the stand-in.

    Attributes:
        text: Python that makes it.
        wanted: The promises and assumptions that differ then.
        only: The promises that are tried; none for those of `wanted`.
        limit: Seconds for one command.
    """

    text: str
    wanted: set[str]
    only: tuple[str, ...] = ()
    limit: float = 60


_HEAD = """\
import os, pathlib, sys, time
from libneuronxla import logger, neuron_cc_cache, neuron_cc_wrapper as wrapper
"""
_KEY = """\
import hashlib
compile_graph = wrapper.neuron_xla_compile
def compiled(graph, name):
    part = hashlib.md5(repr({part}).encode()).hexdigest()
    return compile_graph(graph, str(int(name) + int(part[:8], 16)))
wrapper.neuron_xla_compile = compiled
"""
_LINE = """\
info = logger.info
logger.info = lambda text: info(text.replace({old!r}, {new!r}))
"""
_ENTRY = """\
compile_entry = wrapper.compile_cache_entry
def compiled(entry):
    try:
        return compile_entry(entry)
    finally:
        {then}
wrapper.compile_cache_entry = compiled
"""


def _sdk(text: str, *wanted: str, only: tuple[str, ...] = (), limit: float = 60) -> Alteration:
    return Alteration(_HEAD + text, {*wanted}, only, limit)


def _key(part: str, *wanted: str, only: tuple[str, ...] = ()) -> Alteration:
    """Names of graphs depend on something."""
    return _sdk(_KEY.format(part=part), *wanted, only=only)


_EACH = {
    # What names of graphs depend on
    "key: environment path": _key("os.path.realpath(sys.prefix)", "elsewhere", "virtual-environment"),
    "key: rank": _key("os.environ.get('RANK')", "again", "rank"),
    "key: process": _key("os.getpid()", "train", "unchanged", only=("again", "elsewhere")),
    "key: not the flags": _sdk("wrapper.Options.digest = property(lambda self: 'f7f529f3')", "flags"),
    "key: another hash of the flags": _sdk(
        "import hashlib\n"
        "wrapper.Options.digest = property(lambda self: hashlib.md5(' '.join(self.flags).encode()).hexdigest()[:8])",
        "flags-hash",
        only=("warm",),
    ),
    # What counts as a hit
    "age of files": _sdk(
        """
look_up = wrapper.look_up
def young(cache, entry, *, retry):
    done = pathlib.Path(entry, "model.done")
    if done.exists() and time.time() - done.stat().st_mtime > 86400:
        done.unlink()
    return look_up(cache, entry, retry=retry)
wrapper.look_up = young
""",
        "age",
    ),
    # What a compile leaves, where, and when
    "another layout": _sdk(
        "neuron_cc_cache.CompileCacheFs.get_cache_dir_with_cache_key = "
        "lambda self, key: f'{self.cache_path}/v2/{key[7:9]}/{key}'",
        "module-names",
        "warm",
    ),
    "other names of files": _sdk(
        "wrapper.NEFF = 'graph.neff'", "module-files", "neff-contents", "done-last", only=("warm",)
    ),
    "one more file": _sdk(
        _ENTRY.format(then="pathlib.Path(entry, 'metadata.json').touch()"), "module-files", only=("warm",)
    ),
    "locks stay": _sdk(
        "neuron_cc_cache.CompileCacheFs.hlo_release_lock = lambda self, h: None", "module-files", "warm", limit=15
    ),
    "no locks": _sdk(
        "neuron_cc_cache.CompileCacheFs.hlo_acquire_lock = lambda self, h: True", "lock-left", only=("killed",)
    ),
    "done too early": _sdk(
        """
call = wrapper.call_neuron_compiler
def early(command):
    folder = pathlib.Path(command[3]).name.removeprefix("model.").removesuffix(".hlo_module.pb")
    for entry in pathlib.Path(os.environ["NEURON_COMPILE_CACHE_URL"]).glob("*/" + folder):
        (entry / "model.done").touch()
    return call(command)
wrapper.call_neuron_compiler = early
""",
        "done-last",
        only=("killed",),
    ),
    "another target": _sdk(
        "options = wrapper.options\n"
        "def inf2():\n"
        "    was = options()\n"
        "    return wrapper.Options(('--target=inf2', *was.flags[1:]), was.cache_dir, was.no_cache, was.retry)\n"
        "wrapper.options = inf2",
        "target",
        only=("warm",),
    ),
    "another digest of a NEFF": _sdk(
        """
from neuronxcc import neff
write = neff.write
def made(*args, **kwargs):
    raw = write(*args, **kwargs)
    return raw[:180] + bytes(16) + raw[196:]
neff.write, neff.check = made, lambda raw, graph: None
""",
        "neff-contents",
        "done-last",
        "killed",
        "warm",
    ),
    "no compiler process": _sdk(
        """
call = wrapper.call_neuron_compiler
def inside(command):
    code = "import sys; from neuronxcc.driver import main; sys.exit(main())"
    return call([sys.executable, "-c", code, *command[1:]])
wrapper.call_neuron_compiler = inside
""",
        "compiler-process",
        only=("warm",),
    ),
    # What is told
    # What a log does not name is kept where its compile was seen, so it lasts for some looks, as a real one does.
    "no line of a compile": _sdk(
        _LINE.format(old="Compilation Successfully Completed", new="Done")
        + "if sys.orig_argv[1:2] and sys.orig_argv[1].endswith('/neuronx-cc') and 'compile' in sys.orig_argv:\n"
        + "    time.sleep(5)\n",
        "log-compiled",
        "run",
        limit=120,
    ),
    "lines without a time": _sdk(
        "logger._line = lambda name, text: os.write(1, f'[{name}] {text}\\n'.encode())",
        "log-hit",
        "extraction-line",
        only=("train",),
    ),
    # What fails
    "a failed compile falls back": _sdk(
        """
compile_graph = wrapper.neuron_xla_compile
def fallen(graph, name):
    try:
        return compile_graph(graph, name)
    except wrapper.CompilationError:
        return None
wrapper.neuron_xla_compile = fallen
""",
        "refused",
    ),
    "failures are not remembered": _sdk(
        _ENTRY.format(then="pathlib.Path(entry, 'model.log').unlink(missing_ok=True)"), "failure", only=("refused",)
    ),
    "another refusal": _sdk(
        "from neuronxcc import driver\ndriver.FAILURES['user-error'] = ('it cannot be done', 70)",
        "failure",
        only=("refused",),
    ),
}
_TOGETHER = (
    ("key: environment path",),
    ("key: rank", "a failed compile falls back"),
    ("key: process",),
    ("key: not the flags", "age of files"),
    ("key: another hash of the flags", "one more file", "another target", "no compiler process"),
    ("another layout",),
    ("other names of files",),
    ("locks stay",),
    ("no locks", "done too early"),
    ("another digest of a NEFF",),
    ("no line of a compile",),
    ("lines without a time",),
    ("failures are not remembered",),
    ("another refusal",),
)
ALTERATIONS = {", ".join(names): [_EACH[name] for name in names] for names in _TOGETHER}
