"""Small programs, modelled beside microbenchmarks: exchange, links, collectives, host, vertices.

`comparisons` models the points of `hardware/calibration_points.csv` that have no matrix product
or convolution in them: those of the list that calibrates (V...), and further ones of the same
microbenchmarks (M...). A point is left out if it is an input of the model, which its `input_of`
says; `NOT_MODELLED` has those that no program can stand for. No point is left out because it
is missed.
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hlo_programs import argument, model_of, operation, total
from measured import Comparison

from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.pipeline.shards import COPY_FAMILY
from ipu_keras.machine.target import TARGETS, Target
from ipu_keras.settings.pipeline_choices import SelectionOrder

POINTS = Path(__file__).resolve().parent / "hardware" / "calibration_points.csv"

EXCHANGE = "exchange of words on an IPU"
SUMS = "sums to one number, on up to 16 IPUs"
WORD_COPIES = "copies of a word to another IPU"
TILE_COPIES = "copies of a word of each tile to another IPU"
LARGE_COPIES = "large copies to another IPU"
HOST = "large copies with the host, of 2 to 16 IPUs"
RANDOM = "random numbers"

WORD = 4
# A tile has at least as many floats of a tensor that is spread.
FLOATS_PER_TILE = 32
# As many as the bandwidths of sums were measured with.
MANY_FLOATS = 25_000
# As many floats as make every fixed cost vanish.
LARGE = 10**9

# Why no program stands for a point.
NOT_MODELLED: Mapping[str, str] = {
    **dict.fromkeys(("V01", "V02"), "matrix products are in fidelity_convolutions"),
    **dict.fromkeys(("V03", "V04", "V05"), "no vertex of a program only loads"),
    **dict.fromkeys(("V16", "M04"), "sums of so many tiles meet in two exchanges, not in one"),
    **dict.fromkeys(("V17", "M05"), "no program deals out the words of a single tile"),
    "M06": "a matrix of two rows lies on one tile",
    "V25": "is one of hardware/amp1x1_bow.csv",
    **dict.fromkeys(
        ("M11", "M12", "M13", "M14", "M15", "M16"),
        "IPUs reduce, gather or copy for each other: no tile talks to all tiles of several",
    ),
    **dict.fromkeys(
        ("V27", "V28", "V29", "V30", "V31"),
        "the vertices are the author's own, and exchange halos: TensorFlow's program is another",
    ),
    **dict.fromkeys(("V32", "V33"), "a sum over exchanges of a third party's compiler"),
}


def comparisons() -> list[Comparison]:
    """Compares every point that is no input and has a program, in the order of the data file."""
    gc2 = TARGETS["gc2"]
    return [_comparison(gc2, point) for point in points() if point["id"] in _MODELLED]


def _comparison(gc2: Target, point: Mapping[str, str]) -> Comparison:
    kind, model = _MODELLED[point["id"]]
    measured, modelled = float(point["value"]), model(gc2)
    is_latency = point["unit"] == "us"
    return Comparison(
        id=point["id"],
        kind=kind,
        target="gc2",
        description=", ".join(filter(None, (point["workload"], point["config"]))),
        measured=measured,
        modelled=modelled,
        unit=point["unit"],
        cycles_off=(modelled - measured) * gc2.clock_hz / 1e6 if is_latency else None,
        input_of=point["input_of"],
    )


def points() -> list[dict[str, str]]:
    """The rows of the data file."""
    with POINTS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def modelled_points() -> frozenset[str]:
    """The ids of the points that a program stands for."""
    return frozenset(_MODELLED)


def _before_vertices(model: ModelledProgram) -> float:
    """Microseconds of the synchronization and the exchange of all compute sets."""
    cycles = sum(cost.exchange_cycles + cost.sync_cycles for cost in model.costs)
    return 1e6 * cycles / model.target.clock_hz


def _to_another_tile(gc2: Target) -> float:
    """The sum of two numbers, of which one comes from another tile."""
    program = [argument("a"), argument("b"), operation("y", "add", (), "a", "b")]
    return _before_vertices(model_of(gc2, program))


def _broadcast(num_tiles: int) -> Callable[[Target], float]:
    """A number that is added to what tiles have."""

    def model(gc2: Target) -> float:
        shape = (num_tiles, FLOATS_PER_TILE)
        program = [
            argument("x", *shape),
            argument("a"),
            operation("b", "broadcast", shape, "a", dimensions=()),
            operation("y", "add", shape, "x", "b"),
        ]
        return _before_vertices(model_of(gc2, program))

    return model


def _all_to_all(gc2: Target) -> float:
    """The transpose of a matrix of which each of 608 tiles has a row, and then a column."""
    shape = (608, 608)
    program = [
        argument("x", *shape),
        operation("y", "transpose", shape, "x", dimensions=(1, 0)),
    ]
    return _before_vertices(model_of(gc2.with_numbers(num_tiles=608), program))


def _gather(gc2: Target) -> float:
    """The sums of 16 tiles, which meet on one."""
    return _before_vertices(model_of(gc2, total(16, FLOATS_PER_TILE)))


def _sum_on_a_tile(gc2: Target) -> float:
    """Microseconds of a sum of 1216 numbers, on an IPU that has a single tile."""
    return 1e6 * model_of(gc2.with_numbers(num_tiles=1), total(1216)).compute_cycles / gc2.clock_hz


def sum_of_all(num_ipus: int, floats: int = FLOATS_PER_TILE) -> Callable[[Target], float]:
    """Microseconds of a sum over the tiles of replicas, which all have it in the end."""

    def model(gc2: Target) -> float:
        program = total(gc2.num_tiles, floats)
        if num_ipus > 1:
            program.append(operation("all", "all-reduce", (), "sum", num_replicas=num_ipus))
        return 1e6 * model_of(gc2, program).compute_cycles / gc2.clock_hz

    return model


def _copy_seconds(gc2: Target, num_floats: int, *, position: int, **options: Any) -> float:
    """A chain of layers, each on an IPU: what the one of a position takes over from the other."""
    shape, layers = (num_floats,), range(options["num_ipus"])
    program = [argument("y", *shape)]
    for layer in map("layer{}".format, layers):
        # Equal weights share the layers equally; elementwise operations alone would be fused.
        program += [
            operation(f"{layer}/w", "parameter", shape, role="variable"),
            operation(
                f"{layer}/wy", "multiply", shape, f"{layer}/w", program[-1].name, layer=layer
            ),
            operation(f"{layer}/y", "reverse", shape, f"{layer}/wy", layer=layer, dimensions=(0,)),
        ]
    model = model_of(gc2, program, **options)
    pairs = zip(model.program.compute_sets, model.costs, strict=True)
    copies = [cost for one, cost in pairs if one.family == COPY_FAMILY]
    return copies[position - 1].cycles / gc2.clock_hz


# The other IPU of a board, the next one on another board, and one that is two links away: where
# the layers of a model lie, by the numbering of IPUs.
ON_BOARD = {"num_ipus": 2, "position": 1}
OFF_BOARD = {"num_ipus": 4, "position": 1, "selection_order": SelectionOrder.HOOF}
INDIRECT = {"num_ipus": 4, "position": 2, "selection_order": SelectionOrder.ZIGZAG}


def _copy(num_floats: int, way: Mapping[str, Any]) -> Callable[[Target], float]:
    """Microseconds of a copy."""
    return lambda gc2: 1e6 * _copy_seconds(gc2, num_floats, **way)


def _copied_gigabytes(gc2: Target) -> float:
    """Gigabytes per second."""
    return LARGE * WORD / _copy_seconds(gc2, LARGE, **OFF_BOARD) / 1e9


def _fed_gigabytes(num_ipus: int) -> Callable[[Target], float]:
    """Gigabytes per second that replicas of one IPU are fed with, for a step."""

    def model(gc2: Target) -> float:
        program = total(LARGE)
        model = model_of(gc2, program, num_replicas=num_ipus)
        return num_ipus * LARGE * WORD / (model.host_cycles / gc2.clock_hz) / 1e9

    return model


def _samples(gc2: Target) -> float:
    """Thousand million samples per second."""
    num_samples = gc2.num_tiles * 10**6
    model = model_of(gc2, [operation("y", "rng", (num_samples,))])
    return num_samples * gc2.clock_hz / model.compute_cycles / 1e9


# The kind of each point, and its figure in the unit of the data file.
_MODELLED: Mapping[str, tuple[str, Callable[[Target], float]]] = {
    "V06": (EXCHANGE, _to_another_tile),
    "V14": (EXCHANGE, _broadcast(1216)),
    "V18": (EXCHANGE, _all_to_all),
    "M01": (EXCHANGE, _broadcast(16)),
    "M03": (EXCHANGE, _gather),
    "V19": (SUMS, sum_of_all(1)),
    "V20": (SUMS, sum_of_all(2)),
    "V21": (SUMS, sum_of_all(16)),
    "M19": (SUMS, _sum_on_a_tile),
    "V07": (WORD_COPIES, _copy(1, ON_BOARD)),
    "V08": (WORD_COPIES, _copy(1, OFF_BOARD)),
    "V09": (WORD_COPIES, _copy(1, INDIRECT)),
    "M24": (TILE_COPIES, _copy(1216, ON_BOARD)),
    "M25": (TILE_COPIES, _copy(1216, OFF_BOARD)),
    "M26": (TILE_COPIES, _copy(1216, INDIRECT)),
    "V13": (LARGE_COPIES, _copied_gigabytes),
    "M20": (HOST, _fed_gigabytes(2)),
    "M21": (HOST, _fed_gigabytes(4)),
    "V23": (HOST, _fed_gigabytes(16)),
    "V24": (RANDOM, _samples),
}
