"""Changes of a program that does not fit, and how sentences name them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.advice import durations
from ipu_keras.ir import Graph

# Options of pipelines that put values into remote memory.
OFFLOADED = ("offload_activations", "offload_weight_update_variables")


@dataclass(frozen=True, kw_only=True)
class Fix:
    """A change of a program that needs less memory.

    Args:
        changes: Arguments to give `profile` besides, by name: options of `CostOptions`,
            `batch_size`, `pipeline_stages`, the number of stages to ask `suggest_pipeline` for, or
            options of that `Pipeline`.
        max_tile_bytes: Bytes on the fullest tile.
        seconds_per_sample: Time of a step by the samples of its batch.
        is_close: Whether the bytes are too close to those of a tile to say, by the model's errors,
            if it fits.
        excess_code_bytes: Bytes of instructions that find no room where a tile can execute them,
            however few bytes the tile needs in all.
    """

    changes: Mapping[str, Any]
    max_tile_bytes: int
    fits: bool
    seconds_per_sample: float
    excess_code_bytes: int = 0
    is_close: bool = False

    @property
    def clearly_fits(self) -> bool:
        return self.fits and not self.is_close

    @property
    def name(self) -> str:
        """The changes in words.

        Example:

        >>> Fix(
        ...     changes={"dtype": "float16", "num_ipus": 2},
        ...     max_tile_bytes=600_000,
        ...     fits=True,
        ...     seconds_per_sample=1e-4,
        ... ).name
        'float16 and the layers on 2 IPUs'
        """
        return in_words(self.changes)

    def __str__(self) -> str:
        verdict = "fits" if self.fits else "does not fit either"
        if self.is_close:
            verdict = f"{verdict}, but too closely to say"
        if self.excess_code_bytes:
            verdict = f"{verdict} ({self.excess_code_bytes:,} bytes of code are too many)"
        return (
            f"{self.name}: {verdict}, {self.max_tile_bytes:,} bytes on the fullest tile, "
            f"{durations.in_words(self.seconds_per_sample)} per sample"
        )


def is_mostly_single(graph: Graph) -> bool:
    """Whether more bytes of what a step reads are float32 than float16."""
    sizes = Counter[str]()
    for op in graph.ops:
        if op.kind == "parameter":
            sizes.update({spec.dtype: spec.nbytes for spec in op.outputs})
    return sizes["float32"] > sizes["float16"]


def is_training_step(graph: Graph) -> bool:
    """Whether a step has a gradient."""
    return any(op.backward for op in graph.ops)


def num_layers(graph: Graph) -> int:
    """Returns the layers with weights, which can be on IPUs of their own; 0 if none is known.

    In a step that trains, layers have a gradient: optimizers and metrics, which have variables
    too, have none.
    """
    variables = {
        op.name
        for op in graph.ops
        if op.kind == "parameter" and op.attributes.get("role") == "variable"
    }
    readers = {op.layer for op in graph.ops if op.layer and not variables.isdisjoint(op.inputs)}
    trained = {op.layer for op in graph.ops if op.backward}
    return len(readers & trained if trained else readers)


def in_words(changes: Mapping[str, Any]) -> str:
    """Returns changes of a program, of which there is at least one, as a sentence names them."""
    *first, last = filter(None, [_in_words(name, value) for name, value in changes.items()])
    return f"{', '.join(first)} and {last}" if first else last


def _in_words(name: str, value: Any) -> str:
    words = {
        "place_ops_on_io_tiles": "",
        "infeed_dtype": f"data in {value}",
        "num_io_tiles": f"{value} tiles for input and output",
        "available_memory_proportion": f"availableMemoryProportion {value}",
        "batch_size": f"batch size {value}",
        "dtype": str(value),
        "gradient_accumulation_count": f"{value} steps between weight updates",
        "offload_activations": "activations in remote memory",
        "offload_weight_update_variables": "the optimizer's state in remote memory",
        "num_ipus": f"the layers on {value} IPUs",
        "pipeline_stages": f"a pipeline of {value} stages",
        "recomputation": "recomputation" if value else "no recomputation",
        "stage_splits": f"{value} stages in place of each",
        "steps_per_execution": f"{value} steps per execution",
    }
    return words[name]
