"""The hardware's numbers, each with where it comes from. Data only.

Sources are named in `SOURCES`; a value without one does not exist here.
"""

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ipu_keras.settings.enumerations import DeviceConnectionType
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE, PoplarFlags

SOURCES: Mapping[str, str] = {
    "microbenchmarks": "Z. Jia, B. Tillman, M. Maggioni, D. P. Scarpazza, Dissecting the Graphcore "
    "IPU Architecture via Microbenchmarking, arXiv:1912.03413",
    "documents": "Graphcore's hardware documents: IPU Programmer's Guide, Tile Vertex ISA, "
    "M2000 and Bow datasheets",
    "api": "Poplar API reference, classes Target and IPUModel",
    "poplibs": "Graphcore poplibs, commit 7eac0f266",
    "memory guide": "Graphcore, Memory and Performance Optimisation on the IPU",
    "tutorials": "Graphcore examples repository, Poplar and PopVision tutorials",
    "graph analyser": "Graphcore, PopVision Graph Analyser User Guide, glossary",
    "auto pipeline": "Graphcore ipu_tensorflow_addons, auto-pipelining cluster information",
    "ipu-stack": "osmarks, ipu-stack, measured on a C600 (third party)",
    "tessellate": "Graphcore Research, tessellate-ipu notebooks, measured on Bow",
    "benchmark report": "ByteDance, ByteMLPerf, reports of the IPU and their configurations",
    "machine white paper": "Cambrian-AI Research, white paper on Graphcore's IPU-M2000",
    "caller": "given by the caller",
}


class Confidence(enum.Enum):
    """How sure a number is.

    - `CALIBRATED`: fitted to or checked against measurements of hardware.
    - `DERIVED`: follows from stated numbers or published formulas.
    - `GUESSED`: an assumption, for want of anything better.
    """

    CALIBRATED = "calibrated"
    DERIVED = "derived"
    GUESSED = "guessed"


@dataclass(frozen=True)
class Provenance:
    """Where a number comes from; `source` is a key of `SOURCES`."""

    source: str
    confidence: Confidence = Confidence.DERIVED


_NO_NUMBERS = {"name", "has_measured_convolutions", "provenance"}
# Numbers of the matrix unit: with others, a target is not the one whose convolutions were measured.
_MATRIX_UNIT = frozenset({"amp_flops", "conv_units", "weight_load_bytes"})


@dataclass(frozen=True, kw_only=True)
class Target:
    """One generation of IPU and the system around it.

    Args:
        name: One of `"gc2"`, `"gc200"`, `"bow"` and `"c600"`.
        clock_hz: Tile cycles per second.
        num_tiles: Tiles of one IPU.
        tile_bytes: SRAM of one tile, in bytes.
        memory_element_bytes: Size of the banks that it is made of, in bytes. Each can be read by
            one side only in a cycle.
        code_region_bytes: The part of it that instructions can be read from, in bytes.
        num_workers: Worker threads of a tile; each gets one cycle in as many.
        vector_bytes: Width of a load and of an arithmetic instruction, in bytes.
        amp_flops: Floating point operations of one tile in one cycle by (input dtype, dtype of
            partial sums).
        conv_units: Output channels that a tile accumulates at once, by the same.
        weight_load_bytes: Bytes of weights that a tile loads in a cycle.
        exchange_bytes: Bytes that a tile sends, and receives, in a cycle.
        shared_exchange_bytes: Bytes that two tiles receive in a cycle if they receive the same,
            as inputs of products.
        memcpy_bytes: Bytes that a tile copies in a cycle.
        sync_cycles: Cycles of synchronizing the tiles of an IPU.
        global_sync_cycles: Cycles of synchronizing several IPUs.
        launch_cycles: Cycles from a compute set's start to its vertices'.
        exchange_latency_cycles: Cycles from a tile to the farthest one.
        link_bytes_per_second: Bandwidth between two neighbouring IPUs, one direction.
        link_latency_seconds: Latency for each IPU on the way.
        host_bytes_per_second: Bandwidth between the host and one IPU.
        host_latency_cycles: Beginning and end of a copy between host and IPU.
        stack_bytes: Stacks of one tile's threads.
        sdk: Release of Graphcore's software whose libraries plan and compute.
        remote_bytes_per_second: Bandwidth between the memory of a machine and all of its IPUs.
        machine_ipus: IPUs of a machine, which share that memory.
        rack_ipus: IPUs that links connect: those of a rack, which a Pod64 fills.
        gateway_bytes_per_second: Bandwidth from a machine to those of other racks, one direction.
        gateway_latency_seconds: Latency of a tensor on its way to another rack.
        has_measured_convolutions: Whether times of convolutions on this hardware were published,
            against which plans are checked.
        provenance: Where each of these fields comes from, by name.

    Example:

    >>> gc200 = TARGETS["gc200"]
    >>> gc200.num_tiles * gc200.tile_bytes
    940572672
    >>> gc200.provenance["tile_bytes"].source
    'memory guide'
    """

    name: str
    clock_hz: float
    num_tiles: int
    tile_bytes: int
    memory_element_bytes: int
    code_region_bytes: int
    num_workers: int = 6
    vector_bytes: int = 8
    # Mappings have no hash, and the numbers beside them tell targets apart well enough.
    amp_flops: Mapping[tuple[str, str], int] = field(hash=False)
    conv_units: Mapping[tuple[str, str], int] = field(hash=False)
    weight_load_bytes: int
    exchange_bytes: float = 4.0
    shared_exchange_bytes: float = 8.0
    memcpy_bytes: int = 8
    sync_cycles: int = 126
    global_sync_cycles: int = 600
    launch_cycles: int = 81
    exchange_latency_cycles: int = 157
    link_bytes_per_second: float
    link_latency_seconds: float = 0.16e-6
    host_bytes_per_second: float
    host_latency_cycles: int
    stack_bytes: int = 3168
    sdk: float = 3.4
    remote_bytes_per_second: float = 20.0e9
    machine_ipus: int = 4
    rack_ipus: int = 64
    gateway_bytes_per_second: float = 25.0e9
    gateway_latency_seconds: float = 9.3e-6
    has_measured_convolutions: bool = False
    provenance: Mapping[str, Provenance] = field(repr=False, hash=False)

    def __post_init__(self) -> None:
        named = {f.name for f in dataclasses.fields(self)} - _NO_NUMBERS
        missing = sorted(named - set(self.provenance))
        unknown = sorted({p.source for p in self.provenance.values()} - set(SOURCES))
        if missing or unknown:
            raise ValueError(
                "Every number of a target needs a known source in `provenance`. "
                f"Received: target {self.name!r} without a source for {missing}, "
                f"with unknown sources {unknown}"
            )

    @property
    def ipu_bytes(self) -> int:
        """SRAM of one IPU, in bytes."""
        return self.num_tiles * self.tile_bytes

    @property
    def interleaved_bytes(self) -> int:
        """Bytes of a tile's interleaved memory, which instructions cannot be read from."""
        # Where instructions can be read from everywhere, no region is known: all counts as both.
        return max(self.tile_bytes - self.code_region_bytes, 0) or self.tile_bytes

    def without_tiles(self, count: int) -> "Target":
        """Returns a target whose tiles are those that are left if some are set apart."""
        if count >= self.num_tiles:
            raise ValueError(
                f"`num_io_tiles` must be less than the {self.num_tiles} tiles of {self.name}, for "
                f"some to compute. Received: num_io_tiles={count}"
            )
        return dataclasses.replace(self, num_tiles=self.num_tiles - count) if count else self

    def with_numbers(self, **numbers: Any) -> "Target":
        """Returns a target that differs in some numbers, whose source is the caller.

        Args:
            **numbers: New values of fields, by name.

        Raises:
            ValueError: There is no such number.
        """
        unknown = sorted(set(numbers) - set(self.provenance))
        if unknown:
            raise ValueError(
                f"A target has the numbers {', '.join(self.provenance)}. Received: {unknown}"
            )
        given = dict.fromkeys(numbers, Provenance("caller", Confidence.GUESSED))
        is_measured = self.has_measured_convolutions and not _MATRIX_UNIT & set(numbers)
        return dataclasses.replace(
            self,
            **numbers,
            has_measured_convolutions=is_measured,
            provenance={**self.provenance, **given},
        )

    def with_sdk(self, release: float) -> "Target":
        """Returns the target with the software of another release, as far as that differs.

        Example: Its small programs left no room for a stack of as many bytes.

        >>> old = TARGETS["gc200"].with_sdk(2.0)
        >>> old.sdk, old.stack_bytes, TARGETS["gc200"].stack_bytes
        (2.0, 0, 3168)
        """
        declared = _FIRST_DECLARED_STACKS <= release < _LAST_DECLARED_STACKS
        return self.with_numbers(sdk=release, stack_bytes=0 if declared else _UNKNOWN_STACK)


# Of code whose need nobody says, in reports before 1.4 and since 3.0. In between, codelets in
# assembler say theirs, most of them 0 and the others some tens of bytes: the fullest tile of a
# reduction on the IPU Model has 888 bytes in all (SDK 2.0), of small programs below 500 (2.2).
_UNKNOWN_STACK = 3168
_FIRST_DECLARED_STACKS, _LAST_DECLARED_STACKS = 1.4, 3.0

_C, _D, _G = Confidence.CALIBRATED, Confidence.DERIVED, Confidence.GUESSED

# Why the fields' defaults are what they are: 126 cycles is the worst tile's sync delay that
# ipu-stack read, 600 the external one of the Poplar target. 81 cycles of launch are what two
# additions of tessellate-ipu took beyond their formulas (126), without the 45 of reading the
# cycle counter. 157 cycles are the slowest of the measured ways, 98 ns at 1.6 GHz. 3,168 bytes
# of stack are those of a small program, shown for each tile. A machine has two gateway ports of
# 100 Gb/s each. What leaves a rack crosses the PCIe of its machine and that of another one, as a
# word that goes to the host and back does: those took 8.81 to 9.87 us.
_MK1: dict[str, Provenance] = {
    "clock_hz": Provenance("microbenchmarks"),
    "num_tiles": Provenance("microbenchmarks"),
    "tile_bytes": Provenance("microbenchmarks"),
    "memory_element_bytes": Provenance("graph analyser"),
    "code_region_bytes": Provenance("poplibs"),
    "num_workers": Provenance("microbenchmarks"),
    "vector_bytes": Provenance("microbenchmarks"),
    "amp_flops": Provenance("microbenchmarks"),
    "conv_units": Provenance("poplibs"),
    "weight_load_bytes": Provenance("poplibs"),
    "exchange_bytes": Provenance("microbenchmarks", _C),
    "shared_exchange_bytes": Provenance("microbenchmarks", _C),
    "memcpy_bytes": Provenance("api"),
    "sync_cycles": Provenance("ipu-stack"),
    "global_sync_cycles": Provenance("poplibs"),
    "launch_cycles": Provenance("tessellate", _G),
    "exchange_latency_cycles": Provenance("microbenchmarks", _C),
    "link_bytes_per_second": Provenance("microbenchmarks", _C),
    "link_latency_seconds": Provenance("microbenchmarks", _C),
    "host_bytes_per_second": Provenance("microbenchmarks", _C),
    "host_latency_cycles": Provenance("microbenchmarks", _C),
    "stack_bytes": Provenance("memory guide", _G),
    # The formulas of vertices are those of that time.
    "sdk": Provenance("poplibs"),
    # Of machines with IPUs of the second generation; those before had no such memory or gateways.
    "remote_bytes_per_second": Provenance("machine white paper", _G),
    "machine_ipus": Provenance("machine white paper"),
    "rack_ipus": Provenance("documents"),
    "gateway_bytes_per_second": Provenance("documents"),
    "gateway_latency_seconds": Provenance("microbenchmarks", _G),
}

_MK2: dict[str, Provenance] = {
    **_MK1,
    "clock_hz": Provenance("tutorials", _C),
    "num_tiles": Provenance("documents"),
    "tile_bytes": Provenance("memory guide"),
    "code_region_bytes": Provenance("ipu-stack"),
    "amp_flops": Provenance("documents"),
    "exchange_bytes": Provenance("documents"),
    "shared_exchange_bytes": Provenance("poplibs"),
    "global_sync_cycles": Provenance("ipu-stack"),
    "exchange_latency_cycles": Provenance("microbenchmarks", _G),
    "link_bytes_per_second": Provenance("auto pipeline"),
    "link_latency_seconds": Provenance("microbenchmarks", _G),
    "host_bytes_per_second": Provenance("auto pipeline"),
    "host_latency_cycles": Provenance("tutorials", _C),
}

_HALF_IN_HALF = ("float16", "float16")
_HALF_IN_FLOAT = ("float16", "float32")
_FLOAT = ("float32", "float32")

_GC2 = Target(
    name="gc2",
    clock_hz=1.6e9,
    num_tiles=1216,
    tile_bytes=256 * 1024,
    memory_element_bytes=32 * 1024,
    # On poplibs' IPU Model, partials of the smallest products lie from 131,072 on.
    code_region_bytes=128 * 1024,
    amp_flops={_HALF_IN_HALF: 64, _HALF_IN_FLOAT: 64, _FLOAT: 16},
    conv_units={_HALF_IN_HALF: 8, _HALF_IN_FLOAT: 8, _FLOAT: 8},
    weight_load_bytes=8,
    exchange_bytes=3.96,
    shared_exchange_bytes=7.8,
    # What popnn counted in its first years; later targets say 600.
    global_sync_cycles=500,
    link_bytes_per_second=55.0e9,
    host_bytes_per_second=5.86e9,
    host_latency_cycles=14_000,
    # Of the microbenchmarks, which had poplibs' tag 1.0.49.
    sdk=1.0,
    # By the microbenchmarks, of which `benchmarks/hardware/convolutions_gc2.csv` has the numbers.
    has_measured_convolutions=True,
    provenance=_MK1,
)

_GC200 = Target(
    name="gc200",
    clock_hz=1.33e9,
    num_tiles=1472,
    tile_bytes=638_976,
    memory_element_bytes=16 * 1024,
    # Instructions are fetched from the region that is not interleaved, 208 KiB.
    code_region_bytes=212_992,
    amp_flops={_HALF_IN_HALF: 128, _HALF_IN_FLOAT: 64, _FLOAT: 32},
    conv_units={_HALF_IN_HALF: 16, _HALF_IN_FLOAT: 8, _FLOAT: 16},
    # poplibs allows 16; the measured multiplications of Bow follow 8.
    weight_load_bytes=8,
    link_bytes_per_second=70.0e9,
    host_bytes_per_second=7.0e9,
    # 80,000 cycles each begin and end a copy of four bytes, in the tutorials' profiles.
    host_latency_cycles=160_000,
    provenance={**_MK2, "weight_load_bytes": Provenance("tessellate", _C)},
)

_BOW = dataclasses.replace(
    _GC200,
    name="bow",
    clock_hz=1.85e9,
    provenance={**_GC200.provenance, "clock_hz": Provenance("documents")},
)

_C600 = dataclasses.replace(
    _GC200,
    name="c600",
    # 280 TFLOPS of float16 on 1,472 tiles, of which each has 128 operations in a cycle.
    clock_hz=1.486e9,
    provenance={**_GC200.provenance, "clock_hz": Provenance("benchmark report")},
)

TARGETS: Mapping[str, Target] = {target.name: target for target in (_GC2, _GC200, _BOW, _C600)}
DEFAULT_TARGET = "gc200"


def target_named(name: str) -> Target:
    """Returns the target of a name.

    Args:
        name: One of `"gc2"` (Mk1), `"gc200"` (Mk2), `"bow"` and `"c600"` (a card for inference).

    Raises:
        ValueError: No target has that name.
    """
    if not isinstance(name, str) or name not in TARGETS:
        raise ValueError(f"`target` must be one of {', '.join(TARGETS)}. Received: target={name!r}")
    return TARGETS[name]


# How configurations call the generations. Those of TensorFlow know the first two only: to them a
# Bow is an 'ipu2', whose clock is slower.
VERSIONS = {"ipu1": "gc2", "ipu2": "gc200", "ipu21": "bow"}


def target_of_version(version: str, num_tiles: int = 0) -> Target:
    """Returns the target of a generation, as options of devices call it.

    Args:
        version: One of `"ipu1"`, `"ipu2"` and `"ipu21"`.
        num_tiles: Tiles of an IPU; 0 for as many as it has.

    Raises:
        ValueError: There is no such generation, or it has fewer tiles.

    Example:

    >>> target_of_version("ipu21").name
    'bow'
    """
    if version not in VERSIONS:
        raise ValueError(
            f"`version` must be one of {', '.join(VERSIONS)}. Received: version={version!r}"
        )
    whole = TARGETS[VERSIONS[version]]
    if not 0 <= num_tiles <= whole.num_tiles:
        raise ValueError(
            f"`num_tiles` must be at most {whole.num_tiles}, the tiles that an IPU of version "
            f"{version!r} has. Received: num_tiles={num_tiles}"
        )
    return whole.with_numbers(num_tiles=num_tiles) if num_tiles % whole.num_tiles else whole


_NEVER_ATTACHED = (DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE)


def emulated_target(config: Any, flags: PoplarFlags) -> Target:
    """Returns the hardware that an `IPUConfig`, complete and checked, is for."""
    if flags.use_ipu_model:
        whole = TARGETS[VERSIONS[config.ipu_model.version]]
        # The environment goes first, so that a script can be run with fewer tiles as it is.
        forced = flags.ipu_model_tiles
        tiles = forced or config.ipu_model.tiles_per_ipu or whole.num_tiles
        if tiles > whole.num_tiles:
            name = "ipu_model_tiles" if forced else "ipu_model.tiles_per_ipu"
            where = f" in {ENVIRONMENT_VARIABLE}" if forced else ""
            raise ValueError(
                f"`{name}`{where} must be at most {whole.num_tiles}, the tiles that an IPU of "
                f"`ipu_model.version` {config.ipu_model.version!r} has. Received: {name}={tiles}"
            )
        return target_of_version(config.ipu_model.version, tiles)
    # Only a configuration that never attaches says which hardware it is for; all others get the
    # emulated machine's.
    never = config.device_connection.type in _NEVER_ATTACHED
    return TARGETS[VERSIONS[config.device_connection.version if never else "ipu2"]]
