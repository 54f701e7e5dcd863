"""The adapters in which Keras's loop over data has what users give it."""

from typing import Any

from ipu_keras.internals.forms import Class, Function, PrivateName

_ADAPTER = PrivateName(
    "keras.src.trainers.data_adapters.data_adapter",
    "DataAdapter",
    Class("num_batches", members={"get_tf_dataset": Function("self")}),
)
_ARRAYS = PrivateName(
    "keras.src.trainers.data_adapters.array_data_adapter",
    "ArrayDataAdapter",
    Class("batch_size", "partial_batch_size"),
)
_PY_DATASET = PrivateName(
    "keras.src.trainers.data_adapters.py_dataset_adapter",
    "PyDatasetAdapter",
    Class(
        "num_batches",
        members={
            "_standardize_batch": Function("self", "batch"),
            "get_numpy_iterator": Function("self"),
        },
        assigned=("enqueuer", "py_dataset"),
    ),
)
_SPLIT = PrivateName(
    "keras.src.trainers.data_adapters.array_slicing",
    "train_validation_split",
    Function("arrays", "validation_split"),
)

# Of any data.
DataAdapter: Any = _ADAPTER.get()

# Of arrays.
ArrayDataAdapter: Any = _ARRAYS.get()

# Of a `keras.utils.PyDataset`.
PyDatasetAdapter: Any = _PY_DATASET.get()


def train_validation_split(arrays: Any, share: float) -> tuple[Any, Any]:
    """The first rows of arrays, and the last ones, which are a share of them."""
    return _SPLIT.get()(arrays, share)
