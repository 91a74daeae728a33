"""Which chip a machine has: as the user, `neuron-ls`, the registry, the driver or the firmware say."""

from __future__ import annotations

import os
import re
from functools import cache

from cachekit.compilers.neuron import devices, facts, presence
from cachekit.errors import UsageError
from cachekit.recipe import zoo
from cachekit.recipe.zoo import Instance

_FAMILY = re.compile(r"[a-z]+\d+")  # of an instance type: `trn1`


def here() -> str:
    """The compiler's name for this machine's chip, asked of the devices, the firmware, and the user's override.

    Empty where nothing tells: a machine without Neuron.
    """
    return shown() or _said()


def meant() -> str:
    """The compiler's name for the chip that is compiled for: the user's override comes before the devices."""
    return _said() or shown()


def _said() -> str:
    said = os.environ.get(facts.TARGET_OVERRIDE, "")
    return said if said in facts.TARGETS else ""


def shown() -> str:
    """The compiler's name for the chip that this machine has, whatever the user's override says; else empty."""
    if not presence.may_have_devices():
        return ""
    seen = listed()[0]
    name = (seen.instance_type if seen else "") or devices.host_instance_type()
    found = of("", name, zoo.instances().get(name)) or devices.chip()
    family = _FAMILY.match(name)
    return found or (family[0] if family else "")


def of(override: str, instance: str, known: Instance | None) -> str:
    """The compiler's name for a machine's chip: as the user says, as the registry says, or by the instance's family.

    Raises:
        UsageError: The user says a name that is none: nothing could be compared with it.
    """
    if override:
        if override not in facts.TARGETS:
            raise UsageError(
                f"{facts.TARGET_OVERRIDE}={override} is not a known target",
                hint=f"set it to one of {', '.join(facts.TARGETS)}",
            )
        return override
    if known is not None:
        return known.target
    family = _FAMILY.match(instance)
    return facts.TARGET_FAMILIES.get(family[0], "") if family else ""


@cache
def listed() -> tuple[devices.Devices | None, str]:
    """What neuron-ls lists, and why it lists nothing where it failed."""
    try:
        return devices.list_devices(), ""
    except devices.DeviceListError as error:
        return None, str(error)
