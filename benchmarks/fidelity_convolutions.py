"""What the cost model says of convolutions and matrix products that were measured on IPUs.

- AMP 1x1: one vertex on every tile of a Bow, from tessellate-ipu's notebook "IPU Peak
  Flops" (`hardware/amp1x1_bow.csv`).
- GEMM peaks and convolutions: a GC2, from the microbenchmarks of arXiv:1912.03413
  (`hardware/convolutions_gc2.csv`, one row per layer and one column per batch size;
  `hardware/convolution_shapes_gc2.csv`). Its `MaxPool` rows are convolutions in their
  place. Padding is "same"; blanks were not measured.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from measured import Comparison

from ipu_keras.compiler.convolution_planner import plan
from ipu_keras.compiler.convolution_vertices import amp_1x1
from ipu_keras.compiler.convolutions import Convolution, matmul
from ipu_keras.target import TARGETS, Target

HARDWARE = Path(__file__).parent / "hardware"


def _rows(name: str) -> list[dict[str, str]]:
    with (HARDWARE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _amp_1x1() -> Iterator[Comparison]:
    bow = TARGETS["bow"]
    for row in _rows("amp1x1_bow.csv"):
        positions = int(row["N_rows"])
        cycles = amp_1x1(
            bow,
            dtype="float16",
            partials_dtype="float16",
            field_elements=positions,
            in_groups=1,
            out_groups=1,
        )
        yield Comparison(
            id=f"amp-1x1-{positions}",
            category="AMP 1x1",
            description=f"[{positions}, 16] x [16, 16] per tile, float16",
            measured=float(row["derived_cycles_per_tile_at_1.85GHz"]),
            modelled=float(cycles),
            unit="cycles",
            source="tessellate",
        )


def _teraflops(target: Target, convolution: Convolution) -> float:
    seconds = plan(target, convolution).cycles / target.clock_hz
    return convolution.flops / seconds / 1e12


def _gemm_peaks() -> Iterator[Comparison]:
    for name, dtype, size, measured in (
        ("V01", "float32", 2944, 18.9),
        ("V02", "float16", 2688, 58.9),
    ):
        yield Comparison(
            id=name,
            category="GEMM peaks",
            description=f"{size} x {size} matrices, {dtype}, float32 partials",
            measured=measured,
            modelled=_teraflops(TARGETS["gc2"], matmul(1, size, size, size, dtype)),
            unit="TFLOPS",
            source="microbenchmarks",
        )


def _convolution(shape: dict[str, str], batch: int) -> Convolution:
    kernel, stride = int(shape["filter"]), int(shape["stride"])
    size = -(-int(shape["input"]) // stride)
    return Convolution(
        batch=batch,
        field=(size, size),
        kernel=(kernel, kernel),
        in_channels=int(shape["in_ch"]),
        out_channels=int(shape["out_ch"]),
        groups=int(shape["groups"]),
        strides=(stride, stride),
    )


def _convolutions() -> Iterator[Comparison]:
    shapes = {(row["net"], row["layer"]): row for row in _rows("convolution_shapes_gc2.csv")}
    for row in _rows("convolutions_gc2.csv"):
        layer = (row["net"], row["layer"])
        for column in (name for name in row if name.startswith("bs") and row[name]):
            batch = int(column.removeprefix("bs"))
            yield Comparison(
                id=f"convolution-{'-'.join(layer)}-{batch}",
                category="convolutions",
                description=f"{' '.join(layer)}, batch {batch}, float16",
                measured=float(row[column]),
                modelled=_teraflops(TARGETS["gc2"], _convolution(shapes[layer], batch)),
                unit="TFLOPS",
                source="microbenchmarks",
            )


def comparisons() -> list[Comparison]:
    """Every measurement of a convolution or matrix product, beside the model.

    Example:

    >>> peak = next(c for c in comparisons() if c.id == "V02")
    >>> peak.measured, abs(peak.error) < 0.1
    (58.9, True)
    """
    return [*_amp_1x1(), *_gemm_peaks(), *_convolutions()]
