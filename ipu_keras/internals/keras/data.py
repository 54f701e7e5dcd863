"""Keras's adapters, which its loop over data puts around what users give it."""

from typing import Any

import keras

from ipu_keras.internals.forms import Class, Function, PrivateName

_ADAPTER = PrivateName(
    "keras.src.trainers.data_adapters.data_adapter",
    "DataAdapter",
    Class("num_batches", members={"get_tf_dataset": Function("self")}),
)
_ARRAYS = PrivateName(
    "keras.src.trainers.data_adapters.array_data_adapter",
    "ArrayDataAdapter",
    Class("batch_size", "partial_batch_size", assigned=("_inputs", "_shuffle")),
)
_CAN_CONVERT = PrivateName(
    "keras.src.trainers.data_adapters.array_data_adapter",
    "can_convert_arrays",
    Function("arrays"),
)
_SLICEABLE = PrivateName(
    "keras.src.trainers.data_adapters.array_slicing",
    "convert_to_sliceable",
    Function("arrays", keywords=("target_backend",)),
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

# The base of all adapters.
DataAdapter: Any = _ADAPTER.get()

# The adapter of arrays.
ArrayDataAdapter: Any = _ARRAYS.get()

# The adapter of a `keras.utils.PyDataset`.
PyDatasetAdapter: Any = _PY_DATASET.get()


def train_validation_split(arrays: Any, share: float) -> tuple[Any, Any]:
    """Splits arrays into their first rows, and their last ones, which are the given share."""
    return _SPLIT.get()(arrays, share)


def are_arrays(data: Any) -> bool:
    """Whether Keras takes data to be arrays, or structures of arrays."""
    return _CAN_CONVERT.get()(data)


def sliced_arrays(adapter: Any) -> Any:
    """Returns the arrays and tensors that Keras slices into batches, structured like a batch."""
    arrays = _SLICEABLE.get()(adapter._inputs, target_backend="tensorflow")
    return keras.tree.lists_to_tuples(arrays)


def shuffle_of(adapter: Any) -> bool | str:
    """The `shuffle` that an adapter of arrays was made with."""
    return adapter._shuffle
