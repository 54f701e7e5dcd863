"""A report as plain values, for JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ipu_keras.machine.target import SOURCES, Target
from ipu_keras.report.figures import Figures
from ipu_keras.report.layers import Layer
from ipu_keras.report.plain_options import SCHEMA_VERSION, plain_options
from ipu_keras.report.rows import Row


def plain_report(report: Figures) -> dict[str, Any]:
    """Returns the report as types that JSON has, in a fixed order."""
    model, memory = report.model, report.model.memory
    return {
        "schema": SCHEMA_VERSION,
        "name": report.name,
        "target": _target_dict(model.target),
        "num_ipus": report.num_ipus,
        "note": report.note,
        "remarks": list(report.remarks),
        "options": plain_options(model.options),
        "cycles": {
            "per_step": report.cycles_per_step,
            "per_execution": report.cycles_per_execution,
            "ipu": report.compute_cycles,
            "host": report.host_cycles,
            **({"hidden_host": model.hidden_host_cycles} if model.io_tile_bytes else {}),
        },
        "seconds_per_step": report.seconds_per_step,
        "seconds_per_execution": report.seconds_per_execution,
        "batch_size": report.batch_size,
        "samples_per_second": report.samples_per_second,
        "throughput_range": report.throughput_range and list(report.throughput_range),
        "flops_per_step": report.flops_per_step,
        "peak_flops": report.peak_flops,
        "utilisation": report.utilisation,
        "bound": report.bound,
        "guessed_share": report.guessed_share,
        "unknown_loops": model.program.num_unknown_loops,
        "not_lowered": list(report.not_lowered),
        "not_modelled": list(report.not_modelled),
        "recompilations": [list(one.reasons) for one in report.recompilations],
        "memory": {
            "fits": memory.fits,
            "verdict": report.verdict,
            "error": report.memory_error,
            "fullest_tile_range": list(report.fullest_tile_range),
            "tile_bytes": memory.tile_bytes,
            "num_ipus": memory.num_ipus,
            "max_tile_bytes": memory.max_tile_bytes,
            "worst_tile": memory.worst_tile,
            "worst_ipu": memory.worst_ipu,
            "worst_tile_by_region": memory.bytes_by_region,
            "total_bytes": memory.total_bytes,
            "always_live_by_category": memory.always_live_by_category,
            "not_always_live_by_category": memory.not_always_live_by_category,
            "peak_by_tile": _plain(memory.peak_by_tile),
            "live_by_position": _plain(memory.live_by_position),
        },
        "layers": [_plain_layer(layer) for layer in report.layers],
        "fixes": [asdict(fix) for fix in report.fixes],
        "error_bands": report.error_bands.to_dict(),
        "rows": [_plain_row(row, has_parts=model.options.has_parts) for row in report.rows],
        **({} if report.pipeline is None else {"pipeline": report.pipeline.to_dict()}),
    }


def _plain_row(row: Row, *, has_parts: bool) -> dict[str, Any]:
    plain = {**asdict(row), "cycles": row.cycles}
    # Steps without parts keep the form that they had before pipelines were modelled.
    if not has_parts:
        del plain["stage"], plain["weight_update"]
    return plain


def _plain_layer(layer: Layer) -> dict[str, Any]:
    names = ("parameters", "flops", "variable_bytes", "activation_bytes", "peak_bytes", "cycles")
    return {"name": layer.name, **{name: getattr(layer, name) for name in names}}


def _target_dict(target: Target) -> dict[str, Any]:
    numbers = {name: _number(getattr(target, name)) for name in target.provenance}
    sources = {
        name: [SOURCES[p.source], p.confidence.value] for name, p in target.provenance.items()
    }
    return {"name": target.name, "numbers": numbers, "sources": sources}


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        # JSON has no tuples as keys: `("float16", "float32")` becomes "float16/float32".
        return {"/".join(key): number for key, number in value.items()}
    return value


def _plain(array: np.ndarray) -> list[int]:
    # The json module refuses NumPy's integers.
    return [int(number) for number in array]
