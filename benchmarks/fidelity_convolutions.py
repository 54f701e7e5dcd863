"""Convolutions and matrix products, modelled beside what was measured of them.

- A vertex of the matrix unit on every tile of a Bow, from tessellate-ipu's notebook "IPU Peak
  Flops" (`hardware/amp1x1_bow.csv`).
- Matrix products and convolutions of a GC2, from the microbenchmarks of arXiv:1912.03413
  (`hardware/convolutions_gc2.csv`, one row per layer and one column per batch size;
  `hardware/convolution_shapes_gc2.csv`). Its `MaxPool` rows are convolutions in their
  place. Padding is "same"; blanks were not measured.

Choices of the model were made with these data in view, so `input_of` is set where they are made.
Every other point of the vertex, and every other layer without groups, suffices to make two of
them: `refitted_weight_load_bytes` and `has_refitted_empty_compute_sets` do so. How pieces of three
channels are copied was chosen by all layers that have three, and how software 1.0 copies halves
beside zeros by the layer of 2 channels a group.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hlo_programs import argument, convolution, model_of, product
from measured import Comparison

from ipu_keras.cost.flat.flattening import flops_of
from ipu_keras.cost.products.convolution_costs import empty_compute_sets_cycles
from ipu_keras.ir import Op
from ipu_keras.machine.target import TARGETS, Target

HARDWARE = Path(__file__).parent / "hardware"

MATRIX_UNIT = "matrix unit, one vertex on each tile without launch"
PRODUCTS = "matrix products"
# By the cycles that were measured.
SMALL = "convolutions below 30,000 cycles"
MEDIUM = "convolutions of 30,000 to 100,000 cycles"
LARGE = "convolutions above 100,000 cycles"
# By the input channels of a group: one layer of each number, in several batch sizes.
GROUPS = {
    2: "grouped convolutions of 2 channels a group",
    4: "grouped convolutions of 4 channels a group",
    16: "grouped convolutions of 16 channels a group",
    32: "grouped convolutions of 32 channels a group",
}

# Bytes of weights that a tile may load in a cycle, by poplibs.
WEIGHT_LOAD_BYTES = (8, 16)


def _rows(name: str) -> list[dict[str, str]]:
    with (HARDWARE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def matrix_unit(bow: Target) -> list[Comparison]:
    """The points of one vertex on each tile.

    The time was taken of the vertex alone, so the launch of the compute set is left out.

    Args:
        bow: The target that they are modelled for.
    """
    return [_vertex(bow, row) for row in _rows("amp1x1_bow.csv")]


def _vertex(bow: Target, row: dict[str, str]) -> Comparison:
    positions = int(row["N_rows"])
    # Columns are what poplibs streams through the unit.
    left = argument("a", bow.num_tiles, 16, 16, dtype="float16")
    right = argument("b", bow.num_tiles, 16, positions, dtype="float16")
    halves = {"partialsType": "half"}
    model = model_of(bow, product(left, right, batched=True), matmul_options=halves)
    measured = float(row["derived_cycles_per_tile_at_1.85GHz"])
    modelled = float(model.compute_cycles - bow.launch_cycles)
    return Comparison(
        id=f"amp-1x1-{positions}",
        kind=MATRIX_UNIT,
        target="bow",
        description=f"[16, 16] x [16, {positions}] on each tile, float16",
        measured=measured,
        modelled=modelled,
        unit="cycles",
        cycles_off=modelled - measured,
        input_of=row["input_of"],
    )


def _products(gc2: Target) -> Iterator[Comparison]:
    for name, dtype, size, measured in (
        ("V01", "float32", 2944, 18.9),
        ("V02", "float16", 2688, 58.9),
    ):
        matrices = [argument(letter, size, size, dtype=dtype) for letter in "ab"]
        yield _of_throughput(
            gc2,
            product(*matrices),
            measured,
            id=name,
            kind=PRODUCTS,
            description=f"{size} x {size}, {dtype}, sums in float32",
        )


def convolutions(gc2: Target) -> list[Comparison]:
    """The points of all layers.

    Args:
        gc2: The target that they are modelled for.
    """
    return list(_convolutions(gc2))


def _convolutions(gc2: Target) -> Iterator[Comparison]:
    for run in runs():
        layer, groups = "-".join(run.layer), run.groups
        yield _of_throughput(
            gc2,
            run.program,
            run.measured,
            id=f"convolution-{layer}-{run.batch}",
            kind="" if groups == 1 else GROUPS[run.channels_of_group],
            description=f"{' '.join(run.layer)}, batch {run.batch}, float16",
            input_of=run.input_of,
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A layer that was measured with some batch size.

    Args:
        layer: Its network, and its name there.
        batch: Samples.
        groups: Of channels.
        channels_of_group: Input channels of each.
        program: What it computes.
        measured: Teraflops.
        input_of: As `Comparison` has it.
    """

    layer: tuple[str, str]
    batch: int
    groups: int
    channels_of_group: int
    program: list[Op]
    measured: float
    input_of: str


def runs() -> Iterator[Run]:
    """Every measurement of a convolution of a GC2."""
    shapes = {(row["net"], row["layer"]): row for row in _rows("convolution_shapes_gc2.csv")}
    for row in _rows("convolutions_gc2.csv"):
        layer = (row["net"], row["layer"])
        shape = shapes[layer]
        groups = int(shape["groups"])
        for column in (name for name in row if name.startswith("bs") and row[name]):
            batch = int(column.removeprefix("bs"))
            program = convolution(
                batch=batch,
                size=int(shape["input"]),
                kernel=int(shape["filter"]),
                in_channels=int(shape["in_ch"]),
                out_channels=int(shape["out_ch"]),
                stride=int(shape["stride"]),
                groups=groups,
            )
            yield Run(
                layer=layer,
                batch=batch,
                groups=groups,
                channels_of_group=int(shape["in_ch"]) // groups,
                program=program,
                measured=float(row[column]),
                input_of=row["input_of"],
            )


def _of_throughput(
    gc2: Target, program: list, measured: float, *, kind: str, **values: str
) -> Comparison:
    """A program of which teraflops were measured; without a kind, its size says which it is."""
    model = model_of(gc2, program)
    flops = _counted(program) or flops_of(model.program)
    cycles = flops * gc2.clock_hz / (measured * 1e12)
    return Comparison(
        kind=kind or _kind_of_size(cycles),
        target="gc2",
        measured=measured,
        modelled=flops / model.compute_cycles * gc2.clock_hz / 1e12,
        unit="TFLOPS",
        cycles_off=model.compute_cycles - cycles,
        **values,
    )


def _counted(program: list) -> int:
    """The operations of a convolution as who measured it counted them: padding is work, too."""
    *_, kernel, result = (op.outputs[0].shape for op in program)
    is_convolution = program[-1].kind == "convolution"
    return 2 * math.prod(result) * math.prod(kernel[:-1]) if is_convolution else 0


def _kind_of_size(cycles: float) -> str:
    if cycles < 30_000:
        return SMALL
    return MEDIUM if cycles < 100_000 else LARGE


def comparisons() -> list[Comparison]:
    """Every measurement of a convolution or matrix product, beside the model.

    Example:

    >>> peak = next(c for c in comparisons() if c.id == "V02")
    >>> peak.measured, peak.kind, -0.1 < peak.error < 0
    (58.9, 'matrix products', True)
    """
    gc2 = TARGETS["gc2"]
    return [*matrix_unit(TARGETS["bow"]), *_products(gc2), *convolutions(gc2)]


def refitted_weight_load_bytes() -> int:
    """What the points that are inputs make of a Bow's `weight_load_bytes`."""

    def error(num_bytes: int) -> float:
        bow = TARGETS["bow"].with_numbers(weight_load_bytes=num_bytes)
        return _error_of_inputs(matrix_unit(bow))

    return min(WEIGHT_LOAD_BYTES, key=error)


def has_refitted_empty_compute_sets() -> bool:
    """Whether compute sets without work take time, by the layers that are inputs of that."""
    gc2 = TARGETS["gc2"]
    points = [one for one in convolutions(gc2) if "without work" in one.input_of]
    small = [one for one in points if one.kind == SMALL]
    alone = empty_compute_sets_cycles(gc2)
    # Cycles that are off, of those that were measured.
    without = median(abs((one.cycles_off - alone) * one.error / one.cycles_off) for one in small)
    return _error_of_inputs(small) < without


def _error_of_inputs(points: list[Comparison]) -> float:
    return median(abs(one.error) for one in points if one.input_of)
