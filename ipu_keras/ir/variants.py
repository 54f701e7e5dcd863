"""How else a model could be written, for advice: what is promised of a change is traced first."""

from collections.abc import Callable
from dataclasses import dataclass

from ipu_keras.ir.graph import Graph


@dataclass(frozen=True, kw_only=True)
class LayeredStep:
    """A step whose layer k was traced in the scope of stage k, for pipelines of any stages.

    Args:
        together: First and last layer of runs that may not be cut, as they share variables.
    """

    graph: Graph
    num_layers: int
    together: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Traces the step of a Keras model as it would be if the model were written in another way.

    Each function gives `None` if the model cannot be written so.

    Args:
        in_dtype: Gives the graph with layers of a dtype, by its name. Losses and what layers keep
            in float32 stay so, unlike in `with_precision`.
        by_layer: Gives the step by layer; of a dtype, or of that of the model for `None`.
    """

    in_dtype: Callable[[str], Graph | None]
    by_layer: Callable[[str | None], LayeredStep | None]
