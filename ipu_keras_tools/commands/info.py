"""`ipu-keras info`."""

import argparse
from typing import Any

from ipu_keras.machine.system import LISTING, PCI_ADDRESSES
from ipu_keras.report.text import PlainTable, rendered
from ipu_keras_tools.results import print_result

_TYPES = ("PCIe", "Multi IPU")


def run(given: argparse.Namespace) -> int:
    """Prints the devices of the machine.

    Args:
        given: The arguments.
    """
    print_result(given, {"devices": devices()}, listing() if given.list_devices else table())
    return 0


def devices() -> list[dict[str, Any]]:
    """The device configurations by id, and what is in each."""
    return [
        {
            "id": number,
            "type": _TYPES[len(ipus) > 1],
            "ipus": [
                {"pcie_id": ipu, "dnc_id": place, "pci_domain": PCI_ADDRESSES[ipu]}
                for place, ipu in enumerate(ipus)
            ],
        }
        for number, ipus in enumerate(LISTING)
    ]


def listing() -> str:
    """The devices in the words of `gc-info -l`."""
    lines = ["Graphcore device listing:", ""]
    for device in devices():
        ipus = device["ipus"]
        head = f"-+- Id: {_bracketed(device['id'], 4)}, type: {_bracketed(device['type'], 11)}"
        if len(ipus) == 1:
            lines.append(f"{head}, PCI Domain: [{ipus[0]['pci_domain']}]")
            continue
        lines.append(head)
        width = len(f"[{max(one['dnc_id'] for one in ipus)}]")
        lines += [
            f"|--- PCIe Id: {_bracketed(one['pcie_id'], 4)}, DNC Id: "
            f"{_bracketed(one['dnc_id'], width)}, PCI Domain: [{one['pci_domain']}]"
            for one in ipus
        ]
    return "\n".join(lines)


def table() -> str:
    """The devices by the number of their IPUs, as `select_ipus` and `auto_select_ipus` choose."""
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
