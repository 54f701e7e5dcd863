"""The command `ipu-keras info`, which lists the emulated IPUs as `gc-info` does."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ipu_keras.machine.system import LISTING, PCI_ADDRESSES
from ipu_keras.machine.target import DEFAULT_TARGET, TARGETS, Target
from ipu_keras.report.text import PlainTable, rendered
from ipu_keras_tools.results import UsageError, print_result

_TYPES = ("PCIe", "Multi IPU")


def run(given: argparse.Namespace) -> int:
    """Prints the devices of the machine."""
    numbers = _chosen(given.device_id)
    found = [device(number) for number in numbers]
    if given.device_info:
        found = [{**one, "attributes": attributes(one)} for one in found]
        text = "\n\n".join(map(_described, found))
    elif given.list_devices or given.device_id is not None:
        text = listing(found)
    else:
        text = table()
    print_result(given, {"devices": found}, text)
    return 0


def _chosen(number: int | None) -> Sequence[int]:
    if number is None:
        return range(len(LISTING))
    if not 0 <= number < len(LISTING):
        raise UsageError(
            f"there is no device {number}. The devices are 0 to {len(LISTING) - 1}: "
            "`ipu-keras info -l` lists them."
        )
    return (number,)


def device(number: int) -> dict[str, Any]:
    """Returns a device by its id, and the IPUs in it."""
    ipus = LISTING[number]
    return {
        "id": number,
        "type": _TYPES[len(ipus) > 1],
        "ipus": [
            {"pcie_id": ipu, "dnc_id": place, "pci_domain": PCI_ADDRESSES[ipu]}
            for place, ipu in enumerate(ipus)
        ],
    }


def attributes(
    found: Mapping[str, Any], target: Target = TARGETS[DEFAULT_TARGET]
) -> dict[str, Any]:
    """Returns what the hardware of a device has, by names as `gc-info -I` writes them."""
    return {
        "target": target.name,
        "number of IPUs": len(found["ipus"]),
        "tiles per IPU": target.num_tiles,
        "bytes per tile": target.tile_bytes,
        "workers per tile": target.num_workers,
        "tile clock frequency (Hz)": int(target.clock_hz),
        "remote buffers supported": int(target.remote_bytes_per_second > 0),
    }


def _described(found: Mapping[str, Any]) -> str:
    values = found["attributes"].items()
    lines = [f"{name}: {value}" for name, value in values]
    return "\n".join([f"Device Id: [{found['id']}]", *lines])


def listing(found: Iterable[Mapping[str, Any]]) -> str:
    """Lists devices in the words of `gc-info -l`."""
    lines = ["Graphcore device listing:", ""]
    for one in found:
        ipus = one["ipus"]
        head = f"-+- Id: {_bracketed(one['id'], 4)}, type: {_bracketed(one['type'], 11)}"
        if len(ipus) == 1:
            lines.append(f"{head}, PCI Domain: [{ipus[0]['pci_domain']}]")
            continue
        lines.append(head)
        width = len(f"[{max(ipu['dnc_id'] for ipu in ipus)}]")
        lines += [
            f"|--- PCIe Id: {_bracketed(ipu['pcie_id'], 4)}, DNC Id: "
            f"{_bracketed(ipu['dnc_id'], width)}, PCI Domain: [{ipu['pci_domain']}]"
            for ipu in ipus
        ]
    return "\n".join(lines)


def table() -> str:
    """Draws the devices by their number of IPUs, as `select_ipus` and `auto_select_ipus` choose."""
    rows = []
    for size in sorted({len(ipus) for ipus in LISTING}):
        numbers = [number for number, ipus in enumerate(LISTING) if len(ipus) == size]
        rows.append((str(size), str(len(numbers)), ", ".join(map(str, numbers))))
    whole = PlainTable(
        title=f"An emulated machine of {len(PCI_ADDRESSES)} IPUs",
        columns=("IPUs of a device", "devices", "ids for select_ipus"),
        rows=tuple(rows),
        words=("ids for select_ipus",),
    )
    return rendered(whole)


def _bracketed(value: object, width: int) -> str:
    return f"[{value}]".rjust(width)
