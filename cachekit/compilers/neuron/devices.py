"""What Neuron devices this machine has: its tools are asked, and sysfs for the instance type."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cachekit.compilers.neuron.device_output import (
    DeviceListError,
    Devices,
    MonitorRecord,
    parse_neuron_ls,
    parse_neuron_monitor,
)
from cachekit.compilers.neuron.facts import INSTANCE_TYPE, NEURON_LS, NEURON_LS_JSON, NEURON_MONITOR, PRODUCT_NAME

_LARGEST = 1 << 24  # characters of a tool's output that are read


def list_devices(tools: Sequence[str] = NEURON_LS, *, timeout: float = 30.0) -> Devices | None:
    """Ask `neuron-ls`; None where there is none.

    Raises:
        DeviceListError: It did not answer in time, failed, or printed something else.
    """
    if (tool := _find(tools)) is None:
        return None
    try:
        done = subprocess.run(
            [tool, NEURON_LS_JSON], capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceListError(f"{tool} did not answer within {timeout:g} s") from error
    except OSError as error:
        raise DeviceListError(f"{tool} cannot be run: {error.strerror or error}") from error
    out, complaint = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    try:
        return parse_neuron_ls(out if out.strip() else complaint)
    except DeviceListError as error:
        reason = " ".join(complaint.split())[:200]
        raise DeviceListError(f"{tool} ended with {done.returncode}: {reason or error}") from error


def sample_monitor(tools: Sequence[str] = NEURON_MONITOR, *, timeout: float = 15.0) -> MonitorRecord | None:
    """The first record of `neuron-monitor`, which is then stopped; None where there is no such tool.

    Raises:
        DeviceListError: No record came in time.
    """
    if (tool := _find(tools)) is None:
        return None
    try:
        process = subprocess.Popen(
            [tool], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise DeviceListError(f"{tool} cannot be run: {error.strerror or error}") from error
    with process:
        try:
            return _first_record(process, tool, timeout)
        finally:
            process.kill()


def host_instance_type(path: Path = Path(PRODUCT_NAME)) -> str:
    """The EC2 instance type that the firmware names; empty where it names none."""
    try:
        name = path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
    return name if INSTANCE_TYPE.fullmatch(name) else ""


def _first_record(process: subprocess.Popen[bytes], tool: str, timeout: float) -> MonitorRecord:
    assert process.stdout is not None
    deadline, data = time.monotonic() + timeout, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and len(data) < _LARGEST:
            if not selector.select(left):
                continue
            piece = os.read(process.stdout.fileno(), 1 << 16)
            data += piece
            with suppress(DeviceListError):
                return parse_neuron_monitor(data.decode("utf-8", "replace"))[0]
            if not piece:
                break
    raise DeviceListError(f"{tool} gave no record within {timeout:g} s: {data[:80].decode('utf-8', 'replace')!r}")


def _find(tools: Sequence[str]) -> str | None:
    return next((path for tool in tools if (path := shutil.which(tool))), None)
