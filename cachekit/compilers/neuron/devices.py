"""What Neuron devices this machine has: `neuron-ls` is asked, and sysfs for the instance type.

Every field of the tool's output is optional, as versions and chips differ in what they print.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit.compilers.neuron import facts, presence
from cachekit.host import product
from cachekit.text import cause_of, cut, one_line

_LARGEST = 1 << 24  # characters of a tool's output that are read
_START = re.compile(r"^[\[{]", re.MULTILINE)
# What begins so and is not JSON is a damaged list, and no line of a log (`[WARN] …`).
_CERTAIN = re.compile(r"\[\s*[\[{]|\{\s*\"")
_MOST_CORES = 4096  # of one device, in a range of their numbers


class DeviceListError(ValueError):
    """Output that is not what a Neuron tool prints, or a tool that did not answer; the text says which."""


class Devices(Struct, frozen=True):
    """The Neuron devices of a machine."""

    count: int  # devices (chips)
    cores: int | None = None  # cores as a framework sees them, of all devices; None where the tool did not say
    # Physical cores in a core that the framework sees; None where the tool did not say (before Trainium 2).
    lnc: int | None = None
    instance_type: str = ""  # `trn1.2xlarge`; empty where the tool did not say


def list_devices(tools: Sequence[str] = facts.NEURON_LS, *, timeout: float = 30.0) -> Devices | None:
    """Ask `neuron-ls`; None where there is none.

    Raises:
        DeviceListError: It did not answer in time, failed, or printed something else.
    """
    tool = next(filter(None, map(shutil.which, tools)), None)
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, facts.NEURON_LS_JSON], capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceListError(f"{tool} did not answer within {timeout:g} s") from error
    except OSError as error:
        raise DeviceListError(f"{tool} cannot be run: {cause_of(error)}") from error
    out, complaint = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    try:
        return parse_neuron_ls(out if out.strip() else complaint)
    except DeviceListError as error:
        reason = cut(" ".join(complaint.split()), 200)
        raise DeviceListError(f"{tool} ended with {done.returncode}: {reason or error}") from error


def chip() -> str:
    """The compiler's name for the chip, as the driver or the bus tells it in /sys; empty where neither does.

    Of a chip that nobody here knows, the driver's own name.
    """
    folder, name = facts.CHIP_FILES
    unknown = ""
    for file in sorted(Path(folder).glob(name)):
        with suppress(OSError):
            said = file.read_text(encoding="utf-8", errors="replace").strip()
            if found := facts.CHIP_NAMES.get(said):
                return found
            unknown = one_line(said)[:40]
    return presence.pci_chip() or unknown


def host_instance_type() -> str:
    """The EC2 instance type that the firmware names; empty where it names none."""
    name = product()
    return name if facts.INSTANCE_TYPE.fullmatch(name) else ""


def parse_neuron_ls(text: str) -> Devices:
    """Read what `neuron-ls --json-output` printed, or its table.

    Raises:
        DeviceListError: It is neither, or cut off: what is left of it would be taken for all devices.
    """
    text = facts.TERMINAL_CODE.sub("", text[:_LARGEST]).lstrip("\ufeff").translate(facts.TABLE_LINES)
    said = {found["name"]: found["value"] for found in facts.NEURON_LS_LINE.finditer(text)}
    single: list[dict[str, Any]] = []
    for value in _json_values(text):
        if isinstance(value, dict) and facts.NEURON_LS_DEVICE in value:
            single.append(value)  # one object a line
        elif not single and (entries := _device_entries(value)) is not None:
            return _devices(entries, value if isinstance(value, dict) else {}, said)
    if single:
        return _devices(single, {}, said)
    if rows := _table(text):
        return _devices(rows, {}, said)
    if facts.NEURON_LS_NONE.search(text):
        return Devices(0, instance_type=said.get("instance-type", ""))
    raise DeviceListError(f"not a list of Neuron devices: {cut(text.strip(), 80)!r}")


def _json_values(text: str) -> Iterator[Any]:
    """Every JSON list or object that begins at the start of a line, with anything between them.

    Raises:
        DeviceListError: One is damaged: what is left of it would be taken for all there is.
    """
    decoder, place = json.JSONDecoder(), 0
    text = textwrap.dedent(text)
    failures = 0
    while (found := _START.search(text, place)) and failures < 100:  # noqa: PLR2004 - no quadratic work
        try:
            value, place = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError) as error:
            if _CERTAIN.match(text, found.start()):
                raise DeviceListError(f"a damaged list of Neuron devices: {error}") from error
            place, failures = found.end(), failures + 1
            continue
        yield value


def _device_entries(value: Any) -> list[dict[str, Any]] | None:
    """The devices in a document: a list at top level, or the one list of objects in an object."""
    if isinstance(value, dict):
        lists = [part for part in value.values() if isinstance(part, list) and part and isinstance(part[0], dict)]
        named = [value[name] for name in facts.NEURON_LS_LISTS if isinstance(value.get(name), list)]
        if len(named or lists) != 1:
            return None
        (value,) = named or lists
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return None
    return value if not value or any(facts.NEURON_LS_KNOWN & entry.keys() for entry in value) else None


def _devices(entries: list[dict[str, Any]], outer: dict[str, Any], said: dict[str, str]) -> Devices:
    cores = [_cores(entry) for entry in entries]
    lncs = [_int(entry.get(facts.NEURON_LS_LNC)) for entry in (*entries, outer)]
    types = [_str(entry.get(facts.NEURON_LS_INSTANCE)) for entry in (*entries, outer)]
    return Devices(
        count=len(entries),
        cores=_sum(cores),
        lnc=next(filter(None, lncs), None) or _int(said.get("logical-neuroncore-config")),
        instance_type=next(filter(None, types), "") or said.get("instance-type", ""),
    )


def _sum(values: list[int | None]) -> int | None:
    """The sum, if every part is known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _cores(entry: dict[str, Any]) -> int | None:
    count = _int(entry.get(facts.NEURON_LS_CORES))
    return _numbers(entry.get(facts.NEURON_LS_CORE_IDS)) if count is None else count


def _numbers(ids: Any) -> int | None:
    """How many numbers: `[0, 1]`, `["0-3"]`, `"0,1"`; None for anything else."""
    parts = ids.split(",") if isinstance(ids, str) else ids
    if not isinstance(parts, list):
        return None
    total = 0
    for part in parts:
        ends = [_int(end) for end in part.split("-")] if isinstance(part, str) else [_int(part)]
        if None in ends or len(ends) > 2:  # noqa: PLR2004 - first and last
            return None
        first, last = ends[0] or 0, ends[-1] or 0
        if not 0 <= last - first < _MOST_CORES:
            return None
        total += last - first + 1
    return total


def _table(text: str) -> list[dict[str, Any]]:
    """The rows of neuron-ls's table as its JSON has them; the column names stand in two rows.

    Raises:
        DeviceListError: It does not end with a line, or a row has fewer columns than names: it was cut off.
    """
    device, cores = facts.NEURON_LS_COLUMNS
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    border = last = ""
    for line in map(str.strip, text.splitlines()):
        if line[:1] in {"|", "+"}:
            last = line
            border = border or line
        elif rows:
            break  # whatever comes after the table
        if not line.startswith("|"):
            continue
        # A device's further processes stand in rows of their own, whose first cells are blank [SDK: neuron-ls].
        cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if cells[0].isdigit():
            if len(cells) < len(names) or not line.endswith("|"):
                raise DeviceListError(f"a damaged table of Neuron devices: {cut(line, 80)!r}")
            row = dict(zip(names, cells, strict=False))
            rows.append({facts.NEURON_LS_CORES: row.get(cores)})
        elif not rows:
            names = [f"{a} {b}".strip() for a, b in zip(names, cells, strict=False)] if names else cells
    if device not in names:
        return []
    if not last.startswith("+") or len(last) != len(border):
        raise DeviceListError(f"a table of Neuron devices that is cut short: {cut(last, 80)!r}")
    return rows


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int | None:
    """A count: JSON's integer, an integral float, or digits in a string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:  # noqa: PLR2004
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else None
