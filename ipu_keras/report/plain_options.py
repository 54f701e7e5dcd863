"""The options of a program as plain values, and the version of reports that have them."""

from dataclasses import asdict, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

# As in `compared`, which imports this.
if TYPE_CHECKING:
    from ipu_keras.cost.cost_options import CostOptions

# The version of the JSON form. It is raised when a reader of the last form could go wrong, as
# when comparisons need a key that older files lack.
SCHEMA_VERSION = 4

# These came after the first reports. Left out at their defaults, they change no report that was
# made before they existed, so such files can still be compared by `ipu-keras diff`.
_IF_GIVEN = (
    "convolution_options",
    "copies_seed",
    "gradient_accumulation_count",
    "gradient_accumulation_dtype",
    "io_tile_available_memory_proportion",
    "matmul_options",
    "maximum_cross_replica_sum_buffer_size",
    "maximum_reduce_scatter_buffer_size",
    "minimum_remote_tensor_size",
    "num_io_tiles",
    "num_replicas",
    "outlining",
    "own_updates",
    "pipeline",
    "place_ops_on_io_tiles",
    "selection_order",
    "stage_splits",
    "synthetic_infeed",
    "synthetic_outfeed",
)


def plain_options(options: "CostOptions") -> dict[str, Any]:
    """Returns names and values of options, as types that JSON has."""
    defaults = {field.name: field.default for field in fields(options)}
    return {
        name: _plain(value)
        for name, value in asdict(options).items()
        if name not in _IF_GIVEN or value != defaults[name]
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
