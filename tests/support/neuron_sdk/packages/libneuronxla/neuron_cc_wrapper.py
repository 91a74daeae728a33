"""The wrapper around the compiler: flags, lookup, lock, compile, remembered failure.

Follows: wrapper options are taken off NEURON_CC_FLAGS before the flags are hashed; the hash of libneuronxla >=
2.0.4986, `md5(json.dumps(["--target=…", *flags]))[:8]`; `model.done` is looked for, then `model.log`; a remembered
failure is not compiled again without `--retry_failed_compilation`; a failed compile, and an interrupted one, leave
`model.log`; waiting for a lock for ever, with a line a minute; a hit copies the NEFF to a temporary folder; the
command `neuronx-cc compile --framework=XLA … --output … <flags> --verbose=35` with the compiler from PATH;
NEURON_EXTRACT_GRAPHS_ONLY. Invented: the error that a failure ends in, the device's architecture (NEURON_SDK_TARGET
where NEURON_PLATFORM_TARGET_OVERRIDE is not set).
"""

from __future__ import annotations

import argparse
import getpass
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from neuronxcc import knobs, neff

import libneuronxla
from libneuronxla import logger
from libneuronxla.neuron_cc_cache import DONE, FLAGS, HLO, LOG, NEFF, CacheUrl, CompileCache


@dataclass(frozen=True)
class Options:
    """What NEURON_CC_FLAGS asks for.

    Attributes:
        flags: Those that the compiler gets, target first: what the hash is taken of.
    """

    flags: tuple[str, ...]
    cache_dir: str | None
    no_cache: bool
    retry: bool

    @property
    def digest(self) -> str:
        """The flags' part of an entry's name."""
        return hashlib.md5(self.text.encode()).hexdigest()[:8]

    @property
    def text(self) -> str:
        """What `compile_flags.json` has."""
        return json.dumps(list(self.flags))


class CompilationError(RuntimeError):
    """A graph has no NEFF: its compile failed, now or before."""


def setup_args() -> argparse.ArgumentParser:
    """The wrapper's own options."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--cache_dir")
    parser.add_argument("--no_cache", action="store_true")
    parser.add_argument("--retry_failed_compilation", action="store_true")
    parser.add_argument("--log_level", default="INFO")
    parser.add_argument("--dump")
    parser.add_argument("--compile_workdir")
    return parser


def options() -> Options:
    """Read NEURON_CC_FLAGS."""
    own, flags = setup_args().parse_known_args(shlex.split(os.environ.get("NEURON_CC_FLAGS", "")))
    logger.level = own.log_level
    target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or os.environ.get("NEURON_SDK_TARGET", "trn1")
    if any(flag == "--target" or flag.startswith("--target=") for flag in flags):
        return Options(tuple(flags), own.cache_dir, own.no_cache, own.retry_failed_compilation)
    return Options((f"--target={target}", *flags), own.cache_dir, own.no_cache, own.retry_failed_compilation)


def neuron_xla_compile(graph: bytes, model_hash: str) -> Path | None:
    """Find or make the NEFF of a graph, as the PJRT plugin does when XLA compiles.

    Returns:
        A copy of the NEFF in a temporary folder; None when graphs are only extracted.

    Raises:
        CompilationError: It did not compile, or had not before.
    """
    wanted = options()
    # By this name, because optimum-neuron puts its own cache in its place.
    cache = libneuronxla.create_compile_cache(CacheUrl.get_cache_url(cache_dir=wanted.cache_dir))
    entry, _ = cache.get_cache_dir(model_hash, wanted.digest)
    hlo = f"{entry}/{HLO}"
    if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1":
        write_inputs(entry, graph, wanted)
        logger.info(f"Extracting graphs ({hlo}) for ahead-of-time parallel compilation. No compilation was done.")
        return None
    if not look_up(cache, entry, retry=wanted.retry):
        wait_for_lock(cache, hlo)
        try:
            # Whoever had the lock may have done it meanwhile.
            if wanted.no_cache or not cache.exists(f"{entry}/{DONE}"):
                write_inputs(entry, graph, wanted)
                compile_cache_entry(entry)
                logger.info(f"Compilation Successfully Completed for model.{Path(entry).name}.hlo_module.pb")
            else:
                logger.info(f"Using a cached neff at {entry}/{NEFF}")
        finally:
            cache.hlo_release_lock(hlo)
    copy = Path(tempfile.mkdtemp()) / NEFF
    cache.download_file(f"{entry}/{NEFF}", str(copy))
    return copy


def wait_for_lock(cache: CompileCache, hlo: str) -> None:
    """Take the lock of a graph, however long that takes; say so once a minute."""
    start = told = time.monotonic()
    minute = float(knobs.read().get("lock_minute", 60))
    while not cache.hlo_acquire_lock(hlo):
        time.sleep(min(0.05, minute / 4))
        if time.monotonic() - told >= minute:
            told = time.monotonic()
            waited = round((told - start) / minute)
            logger.info(f"Another process must be compiling {hlo}, been waiting for: {waited}.0 minutes")


def look_up(cache: CompileCache, entry: str, *, retry: bool) -> bool:
    """Whether an entry is there.

    Raises:
        CompilationError: Its compile is remembered to have failed.
    """
    if cache.exists(f"{entry}/{DONE}"):
        logger.info(f"Using a cached neff at {entry}/{NEFF}")
        return True
    if cache.exists(f"{entry}/{LOG}"):
        text = cache.download_file_to_string(f"{entry}/{LOG}", limit=2000)
        if not retry:
            logger.error(
                f"Got a cached failed neff at {entry}/{NEFF}. Will skip compilation, please set "
                "--retry_failed_compilation for recompilation."
            )
            raise CompilationError(text)
        logger.info(f"Got a cached failed neff at {entry}/{NEFF}. With eror log: [{text}]. Retrying...")
        cache.remove(f"{entry}/{LOG}")
    return False


def write_inputs(entry: str, graph: bytes, wanted: Options) -> None:
    """Write the graph and its flags, unless they are there; whole, as several ranks may do it at once."""
    for name, data in ((FLAGS, wanted.text.encode()), (HLO, graph)):
        path = Path(entry, name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{name}.{uuid.uuid4().hex}")
            temporary.write_bytes(data)
            temporary.replace(path)


def compile_cache_entry(entry: str) -> float:
    """Compile an entry whose graph and flags are there and whose lock is held.

    Returns:
        Seconds.

    Raises:
        CompilationError: It failed; the entry remembers.
        KeyboardInterrupt: It was interrupted; the entry remembers that as a failure too.
    """
    start = time.monotonic()
    flags = json.loads(Path(entry, FLAGS).read_text())
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "no-user"
    work = Path(tempfile.gettempdir(), user, "neuroncc_compile_workdir", str(uuid.uuid4()))
    work.mkdir(parents=True)
    source, output = work / f"model.{Path(entry).name}.hlo_module.pb", work / f"model.{Path(entry).name}.neff"
    shutil.copyfile(Path(entry, HLO), source)
    command = ["neuronx-cc", "compile", "--framework=XLA", str(source), "--output", str(output), *flags, "--verbose=35"]
    try:
        text, failed = call_neuron_compiler(command)
        if failed:
            Path(entry, LOG).write_text(
                f"Failed compilation with {command}: {text} [libneuronxla {libneuronxla.__version__}]"
            )
            logger.error(f"Failed compilation with {command}: {text}")
            raise CompilationError(text)
        shutil.copyfile(output, Path(entry, NEFF))
        Path(entry, DONE).touch()
    except KeyboardInterrupt:
        Path(entry, LOG).write_text(f"Failed compilation with {command}: KeyboardInterrupt")
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return time.monotonic() - start


def call_neuron_compiler(command: list[str]) -> tuple[str, bool]:
    """Run the compiler; what it says is shown as it comes. Returns its text and whether it failed."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except FileNotFoundError:
        return "neuronx-cc is not on PATH", True
    said = b""
    try:
        assert process.stdout is not None
        while part := os.read(process.stdout.fileno(), 65536):
            os.write(1, part)
            said += part
    except KeyboardInterrupt:
        process.kill()
        raise
    finally:
        process.wait()
    text = said.decode(errors="replace").lstrip(".\n")
    if process.returncode:
        text += f"neuronx-cc compilation failed with {process.returncode}"
    return text, process.returncode != 0


def load(copy: Path, graph: bytes) -> None:
    """Do what the runtime does with a NEFF before it runs.

    Raises:
        neff.InvalidNeffError: It is damaged, or of another graph.
    """
    try:
        neff.check(copy.read_bytes(), graph)
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)
    knobs.note("loaded", graph=hashlib.sha256(graph).hexdigest())
