"""`neuron-ls`: the system tool that tells what devices there are.

Follows: a real `neuron-ls -j` of a trn1.2xlarge (tools 2.31.13.0), field by field.
Invented: how many devices and cores there are (knobs `devices`, `cores`, `instance_type`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from neuronxcc import knobs


def neuron_ls() -> int:
    """List the devices: `-j` as JSON, otherwise a table."""
    wanted = knobs.read()
    if "neuron_ls" in wanted:
        answer = wanted["neuron_ls"]
        print(answer if isinstance(answer, str) else json.dumps(answer, indent=4))
        return 0
    kind, found = wanted.get("instance_type", "trn1.2xlarge"), devices(wanted)
    if not found:
        print("no neuron device found", file=sys.stderr)
        return 1
    if {"-j", "--json-output"} & set(sys.argv[1:]):
        print(json.dumps(found, indent=4))
        return 0
    print(f"instance-type: {kind}\ninstance-id: i-0cb9e758143a745d5")
    print("| NEURON DEVICE | NEURON CORES | NEURON MEMORY |")
    for device in found:
        print(f"| {device['neuron_device']} | {device['nc_count']} | {device['memory_size'] >> 30} GB |")
    return 0


def devices(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """What `neuron-ls -j` lists."""
    count = int(wanted.get("devices", 1))
    cores = int(wanted.get("cores", 2)) // count if count else 0
    return [
        {
            "instance_type": wanted.get("instance_type", "trn1.2xlarge"),
            "instance_id": "i-0cb9e758143a745d5",
            "neuron_device": number,
            "bdf": f"0000:00:{0x1E - number:02x}.0",
            "cpu_affinity": "0-7",
            "numa_node": "-1",
            "connected_to": None,
            "nc_count": cores,
            "memory_size": 34359738368,
            "neuroncore_ids": list(range(number * cores, (number + 1) * cores)),
            "neuron_processes": [],
        }
        for number in range(count)
    ]
