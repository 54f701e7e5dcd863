"""The cost model beside published measurements: exchange, links, collectives, host, vertices.

`comparisons` predicts the points of `hardware/calibration_points.csv` that have no matrix
product or convolution in them: those of the list that calibrates (V...), and further
ones of the same microbenchmarks (M...).
No point is left out because it is missed. Left out are only points for which the model
has nothing to say: programs on sixteen IPUs whose division is not published, and
exchanges of a third party's compiler, which are known as one sum.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from measured import Comparison

from ipu_keras.compiler import exchange, vertices
from ipu_keras.compiler.exchange import ExchangePhase
from ipu_keras.target import Target, target_named

POINTS = Path(__file__).resolve().parent / "hardware" / "calibration_points.csv"

WORD = 4
# As many bytes as make every fixed cost vanish.
LARGE = 10**10
# Cost of the cycle counter, which the measured addition contains (tessellate-ipu).
CYCLE_COUNTER = 45


@dataclass(frozen=True)
class Stencil:
    """A program that computes each cell of a grid from its neighbours, a thousand times.

    Args:
        num_cells: Of the grid.
        values: That are read for a cell, halo included.
        results: That are written for a cell.
        flops: Of a cell, in its update as usually written.
        dimensions: Of the grid.
    """

    num_cells: int
    values: int
    results: int
    flops: int
    dimensions: int


# Flops: c * (1 - 2 * d * a) + a * (sum of 2 * d neighbours) for d dimensions. The cardiac
# model adds two reaction terms, with a division, to that (7 + 9 + 13 operations).
STENCILS = {
    "V27": Stencil(8000**2, values=5, results=1, flops=6, dimensions=2),
    "V28": Stencil(360**3, values=7, results=1, flops=8, dimensions=3),
    "V29": Stencil(7000**2, values=6, results=2, flops=29, dimensions=2),
}
STENCIL_STEPS = 1000


def comparisons() -> list[Comparison]:
    """Compares every point that the model predicts, in the order of the data file.

    Returns:
        The comparisons; for the first generation's microbenchmarks on `"gc2"`, the
        stencils on `"gc200"`, and the addition on `"bow"`.
    """
    modelled = dict(_predictions())
    found = []
    with POINTS.open(newline="", encoding="utf-8") as file:
        for point in csv.DictReader(file):
            if point["id"] in modelled:
                category, value = modelled[point["id"]]
                found.append(_comparison(point, category, value))
    return found


def _comparison(point: dict[str, str], category: str, modelled: float) -> Comparison:
    return Comparison(
        id=point["id"],
        category=category,
        description=", ".join(filter(None, (point["workload"], point["config"]))),
        measured=float(point["value"]),
        modelled=modelled,
        unit=point["unit"],
        source=point["source"],
    )


def _predictions() -> Iterator[tuple[str, tuple[str, float]]]:
    """Category and figure, in the unit of the data file, of each point that is predicted."""
    gc2 = target_named("gc2")
    groups = {
        "on-chip exchange": _on_chip_exchange(gc2),
        "links": _links(gc2),
        "collectives": _collectives(gc2),
        "host": _host(gc2),
        "vertices": {**_vertices(gc2), **_stencils(target_named("gc200"))},
    }
    for category, values in groups.items():
        for name, value in values.items():
            yield name, (category, value)


def _on_chip_exchange(target: Target) -> dict[str, float]:
    every = target.num_tiles
    pair = exchange.exchange_cycles(target, ExchangePhase(LARGE, LARGE, num_tiles=2))
    to_one = exchange.broadcast_cycles(target, LARGE, num_tiles=1)
    to_all = exchange.broadcast_cycles(target, LARGE, num_tiles=every)
    return {
        # From a tile to one other, as a broadcast to two that are next to each other.
        "V06": _microseconds(target, exchange.broadcast_cycles(target, WORD, num_tiles=2)),
        "V10": _gigabytes(target, LARGE, pair),
        "V11": _gigabytes(target, every * LARGE, pair),
        "V14": _microseconds(target, exchange.broadcast_cycles(target, WORD, num_tiles=every)),
        "V15": _gigabytes(target, LARGE, to_all),
        "V16": _microseconds(target, exchange.gather_cycles(target, WORD, num_tiles=every)),
        "V17": _microseconds(target, exchange.scatter_cycles(target, WORD, num_tiles=every)),
        "V18": _microseconds(target, exchange.all_to_all_cycles(target, WORD, num_tiles=608)),
        "M01": _microseconds(target, exchange.broadcast_cycles(target, WORD, num_tiles=16)),
        "M02": _gigabytes(target, LARGE, to_one),
        "M03": _microseconds(target, exchange.gather_cycles(target, WORD, num_tiles=16)),
        "M04": _microseconds(target, exchange.gather_cycles(target, WORD, num_tiles=304)),
        "M05": _microseconds(target, exchange.scatter_cycles(target, WORD, num_tiles=2)),
        "M06": _microseconds(target, exchange.all_to_all_cycles(target, WORD, num_tiles=2)),
    }


def _links(target: Target) -> dict[str, float]:
    sync = exchange.sync_cycles(target, 2) / target.clock_hz

    def latency(hops: int, off_board: bool) -> float:
        return 1e6 * (sync + exchange.link_seconds(target, WORD, hops=hops, off_board=off_board))

    def bandwidth(off_board: bool) -> float:
        return LARGE / exchange.link_seconds(target, LARGE, hops=1, off_board=off_board) / 1e9

    return {
        "V07": latency(hops=1, off_board=False),
        "V08": latency(hops=1, off_board=True),
        "V09": latency(hops=2, off_board=True),
        "V12": bandwidth(off_board=False),
        "V13": bandwidth(off_board=True),
    }


def _collectives(target: Target) -> dict[str, float]:
    every = target.num_tiles
    found = {}
    for name, num_ipus in {"V19": 1, "V20": 2, "V21": 16}.items():
        cycles = _reduce_cycles(target, num_elements=1, num_ipus=num_ipus)
        found[name] = _microseconds(target, cycles)
    for name, num_ipus in {"M07": 2, "M08": 4, "M09": 8, "M10": 16}.items():
        cycles = exchange.broadcast_cycles(target, WORD, num_tiles=every, num_ipus=num_ipus)
        found[name] = _microseconds(target, cycles)
    for name, num_ipus in {"M11": 2, "M12": 16}.items():
        cycles = exchange.broadcast_cycles(target, LARGE, num_tiles=every, num_ipus=num_ipus)
        found[name] = _gigabytes(target, LARGE, cycles)
    for name, num_ipus in {"M13": 2, "M14": 16}.items():
        cycles = exchange.gather_cycles(target, WORD, num_tiles=every, num_ipus=num_ipus)
        found[name] = _microseconds(target, cycles)
    for name, num_ipus in {"M15": 2, "M16": 16}.items():
        cycles = exchange.scatter_cycles(target, WORD, num_tiles=every, num_ipus=num_ipus)
        found[name] = _microseconds(target, cycles)
    for name, num_ipus in {"M17": 1, "M18": 16}.items():
        cycles = _reduce_cycles(target, num_elements=25_000, num_ipus=num_ipus)
        found[name] = _gigabytes(target, num_ipus * every * 25_000 * WORD, cycles)
    return found


def _reduce_cycles(target: Target, *, num_elements: int, num_ipus: int) -> int:
    return exchange.reduce_cycles(
        target,
        dtype="float32",
        num_elements=num_elements,
        num_tiles=target.num_tiles,
        num_ipus=num_ipus,
    )


def _host(target: Target) -> dict[str, float]:
    ipus = {"V22": 1, "V23": 16, "M20": 2, "M21": 4}
    bandwidths = {
        name: LARGE / exchange.host_seconds(target, LARGE, num_ipus=num_ipus) / 1e9
        for name, num_ipus in ipus.items()
    }
    latency = 1e6 * exchange.host_seconds(target, WORD, num_ipus=1)
    return {**bandwidths, "M22": latency, "M23": latency}


def _vertices(target: Target) -> dict[str, float]:
    bow = target_named("bow")
    samples = 10**6
    drawn = vertices.random_uniform(target, dtype="float32", num_elements=samples).cycles
    added = vertices.elementwise(
        bow, operation="add", dtype="float32", num_elements=1024, num_operands=2
    )
    on_tile = exchange.reduce_cycles(target, dtype="float32", num_elements=1216, num_tiles=1)
    return {
        "V03": _terabytes_loaded(target, 2 * target.vector_bytes),
        "V04": _terabytes_loaded(target, target.vector_bytes),
        "V05": _terabytes_loaded(target, target.vector_bytes // 2),
        # Thousand million samples instead of bytes.
        "V24": _gigabytes(target, target.num_tiles * samples, drawn),
        "V26": bow.launch_cycles + added.cycles + CYCLE_COUNTER,
        "M19": _microseconds(target, on_tile),
    }


def _terabytes_loaded(target: Target, load_bytes: int) -> float:
    cycles = vertices.load(target, num_bytes=LARGE, load_bytes=load_bytes).cycles
    return _gigabytes(target, target.num_tiles * LARGE, cycles) / 1e3


def _stencils(target: Target) -> dict[str, float]:
    return {name: _stencil_seconds(target, stencil) for name, stencil in STENCILS.items()}


def _stencil_seconds(target: Target, stencil: Stencil) -> float:
    """All steps: the vertex is the author's own, so only what it reads and computes is known."""
    cells = -(-stencil.num_cells // target.num_tiles)
    computed = vertices.unknown(
        target,
        bytes_read=cells * stencil.values * WORD,
        bytes_written=cells * stencil.results * WORD,
        flops=cells * stencil.flops,
        dtype="float32",
    )
    side = cells ** (1 / stencil.dimensions)
    halo = round(2 * stencil.dimensions * side ** (stencil.dimensions - 1) * WORD)
    exchanged = exchange.exchange_cycles(target, ExchangePhase(halo, halo))
    # Before the exchange and before the compute set.
    sync = 2 * exchange.sync_cycles(target, 1)
    step = sync + exchanged + target.launch_cycles + computed.cycles
    return STENCIL_STEPS * step / target.clock_hz


def _microseconds(target: Target, cycles: int) -> float:
    return 1e6 * cycles / target.clock_hz


def _gigabytes(target: Target, num_bytes: int, cycles: int) -> float:
    """Gigabytes per second."""
    return num_bytes * target.clock_hz / cycles / 1e9
