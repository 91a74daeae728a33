"""`neuronx-cc`: the documented command line, around a compile that takes as long, and fails as, a test wants.

Follows: `compile <hlo> --framework XLA --target … --output …` with its other options passed by, `--version`;
progress dots and "Compiler status PASS" on stdout; the texts and exit codes of failures as real logs
and issues have them. Invented: when it fails (see `knobs`), the exit code of the failures whose text alone is known.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from neuronxcc import __version__, knobs, neff

BANNER = f"NeuronX Compiler version {__version__}"
ERROR = "[ERROR] [{code}] {text}\nNon-signal exit. Backend exited with code 1 and stderr: {text}\n"
# class -> (text, exit code). 70 is what the driver gives for whatever its jobs report.
FAILURES = {
    "device-oom": (
        ERROR.format(code="NCC_EOOM002", text="The total memory usage of 27.0GB exceeds the HBM limit of 16.0GB."),
        70,
    ),
    "host-oom": (
        (
            "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory. "
            "Using a smaller data type, dimensions, batch size, or a larger instance type may help.\n"
        ),
        70,
    ),
    "internal": (
        (
            "***************************************************************\n"
            " An Internal Compiler Error has occurred\n"
            "***************************************************************\n"
            "Error message:  Assertion failure in DotTransform.\nError class:    AssertionError\n"
            f"Diagnostic information:\n  {BANNER}\n"
        ),
        70,
    ),
    "user-error": (
        ERROR.format(code="NCC_EBVF030", text="Instructions exceed the limit."),
        70,
    ),
    "disk-full": ("OSError: [Errno 28] No space left on device\n", 1),
    "killed": ("", -signal.SIGKILL),  # what the kernel does to the compiler itself
    "hang": ("", 0),
}


def main() -> int:
    """Run the command line."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["--version"], ["-v"]):
        print(f"{BANNER}\n\nPython version {platform.python_version()}\nHWM version 2.26.0.0+stand-in\n")
        return 0
    if arguments[:1] != ["compile"]:
        print("usage: neuronx-cc [-h] [--version] {compile} ...", file=sys.stderr)
        return 2
    return _compile(arguments[1:])


def _compile(arguments: list[str]) -> int:
    source, output, target, flags = _parse(arguments)
    try:
        graph = Path(source).read_bytes()
    except OSError as error:
        print(f"[ERROR] [NCC_EARG001] cannot read {source}: {error}", file=sys.stderr)
        return 1
    digest = hashlib.sha256(graph).hexdigest()
    wanted = knobs.read()
    knobs.note("compile", input=source, output=output, target=target, flags=flags, graph=digest, bytes=len(graph))
    _take(float(wanted.get("compile_seconds", 0)))
    if "sticks" in wanted and not knobs.take_turn("ends", wanted["sticks"]):
        _take(math.inf)
    while "held" in wanted and Path(wanted["held"]).exists():
        time.sleep(0.02)
    failure = _failure(wanted.get("failures", []), source, digest)
    if failure is not None:
        return _fail(failure, digest)
    data = neff.write(graph, output=output, target=target, version=__version__, lnc=_lnc(flags))
    Path(output).write_bytes(data)
    print("\nCompiler status PASS", flush=True)
    knobs.note("compiled", graph=digest, output=output)
    return 0


def _parse(arguments: list[str]) -> tuple[str, str, str, list[str]]:
    source, output, target, flags = "", "file.neff", "", []
    rest = iter(arguments)
    for argument in rest:
        name, given, value = argument.partition("=")
        if name in {"--framework", "--output", "--target", "-o"}:
            value = value if given else next(rest, "")
            if name == "--target":
                target = value
            elif name != "--framework":
                output = value
        elif not argument.startswith("-") and not source:
            source = argument
        else:
            flags.append(argument)
    if not source or target not in neff.TARGETS:
        _usage(f"[NCC_EARG001] an input and a known --target are needed, not {target!r}")
    return source, output, target, flags


def _usage(text: str) -> NoReturn:
    print(f"[ERROR] {text}", file=sys.stderr)
    raise SystemExit(1)


def _lnc(flags: list[str]) -> int | None:
    for number, flag in enumerate(flags):
        if flag.startswith(("--logical-nc-config", "-lnc")):
            value = flag.partition("=")[2] or (flags[number + 1] if number + 1 < len(flags) else "")
            return int(value) if value.isdecimal() else None
    return None


def _take(seconds: float) -> None:
    """Take time, with progress dots."""
    end = time.monotonic() + seconds
    print(".", end="", flush=True)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))
        print(".", end="", flush=True)


def _failure(rules: list[dict[str, Any]], source: str, digest: str) -> str | None:
    graph = Path(source).name.removeprefix("model.").partition(".")[0]
    names = (source, graph, digest)
    for number, rule in enumerate(rules):
        if any(fnmatch.fnmatch(name, rule.get("match", "*")) for name in names):
            times = rule.get("times")
            if times is None or knobs.take_turn(number, times):
                return str(rule["class"])
    return None


def _fail(failure: str, digest: str) -> int:
    text, code = FAILURES[failure]
    knobs.note("failed", graph=digest, **{"class": failure})
    print(f"\n{text}Compiler status ERROR", flush=True)
    if failure == "hang":
        while True:
            time.sleep(3600)
    if code < 0:
        os.kill(os.getpid(), -code)
    return code
