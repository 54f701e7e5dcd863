"""What to write where the data of `fit`, `evaluate` or `predict` does not suit an IPU.

Programs have static shapes and few types, so the first lines of many scripts are refused. The
errors keep the texts of IPU software, which scripts match, and which know nothing of the script's
own data. What is wrong is found here from the data alone, and becomes a note of the error.
"""

import keyword
import math
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.feeds.dataset_feed import dtype_of
from ipu_keras.internals.tensorflow.datasets import Batched, steps_of
from ipu_keras.program.data_types import FEED_DTYPES
from ipu_keras.settings.arguments import divisors

_BATCH_SIZE = 32  # Keras's own default
_TEXT = (
    "texts become numbers outside of the program: take the layer that does so out of the model, "
    "and write "
)
_AXES = (
    "give the other open axes a length, for instance with `output_sequence_length` of "
    "`TextVectorization`, `padded_batch(..., padded_shapes=...)` or `tf.image.resize`"
)


def data_advice(model: keras.Model, method: str, arguments: Mapping[str, Any]) -> str | None:
    """Returns what to write so that the data of a call suits an IPU; `None` if nothing is found.

    Args:
        method: `"fit"`, `"evaluate"` or `"predict"`.
        arguments: What was given for its parameters, by name.
    """
    data = arguments.get("x")
    if isinstance(data, tf.data.Dataset):
        lines = _of_dataset(model, data, method)
    elif isinstance(data, keras.utils.PyDataset):
        lines = _of_py_dataset(data)
    elif isinstance(data, Iterator):
        lines = _of_generator(model, data, method)
    else:
        lines = _of_arrays(model, method, arguments)
    found = "; ".join(lines)
    return found and f"What to write: {found}. See the guide 'Data' (docs/how-to/data.md)."


def _of_arrays(model: Any, method: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    arrays = {name: arguments[name] for name in ("x", "y") if arguments.get(name) is not None}
    for name, value in arrays.items():
        for path, leaf in _leaves(name, value):
            yield from _of_array(path, leaf)
    samples = {len(leaf) for value in arrays.values() for _, leaf in _leaves("", value)}
    if len(samples) == 1:
        yield from _of_sizes(model, method, arguments, *samples)
    yield from _of_validation(arguments)


def _of_validation(arguments: Mapping[str, Any]) -> Iterator[str]:
    data = arguments.get("validation_data")
    size = arguments.get("validation_batch_size") or arguments.get("batch_size") or _BATCH_SIZE
    if not isinstance(data, tuple) or not data:
        return
    for path, leaf in _leaves("validation_data", data):
        yield from _of_array(path, leaf)
    samples = len(next(_leaves("", data))[1])
    better = _divisor(samples, size, 1)
    if samples % size and better is not None:
        yield f"`validation_batch_size={better}`, a divisor of the number of samples, {samples:,}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the arrays of an argument, each with the expression for it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{path}[{key!r}]", part)
    elif isinstance(value, (list, tuple)) and any(hasattr(part, "shape") for part in value):
        for index, part in enumerate(value):
            yield from _leaves(f"{path}[{index}]", part)
    elif hasattr(value, "__len__") and not isinstance(value, str):
        yield path, value


def _of_array(path: str, leaf: Any) -> Iterator[str]:
    if isinstance(leaf, (list, tuple)):
        yield f'`{path} = np.array({path}, "float32")`, or "int32" for whole numbers'
        return
    name = str(getattr(leaf, "dtype", ""))
    if tf.is_tensor(leaf):
        name = leaf.dtype.name
    if name.startswith(("str", "<U", "|S", "object")):
        yield f"{_TEXT}`{path} = layer({path}).numpy().astype('int32')`"
    elif _is_wide_integer(dtype_of(leaf)):
        cast = "tf.cast({0}, tf.int32)" if tf.is_tensor(leaf) else '{0}.astype("int32")'
        yield f"`{path} = {cast.format(path)}`"


def _of_sizes(model: Any, method: str, arguments: Mapping[str, Any], samples: int) -> Iterator[str]:
    asked = arguments.get("batch_size") or _BATCH_SIZE
    split = arguments.get("validation_split") or 0.0
    trained = math.floor(samples * (1.0 - split))
    held_back = samples - trained
    # Executions of all replicas take so many batches.
    on_ipu = getattr(model, "_ipu", None)
    steps = (model.steps_per_execution or 1) * (1 if on_ipu is None else on_ipu.num_replicas)
    if not trained % (asked * steps) and not held_back % (asked * steps):
        return
    # One size for both parts, if there is one.
    size = _divisor(math.gcd(trained, held_back), asked, steps)
    if size is not None:
        parts = f"{trained:,}" + (f", and of {held_back:,} for validation" if split else "")
        yield f"`batch_size={size}`, a divisor of the number of samples, {parts}"
    elif method == "predict":
        whole = math.ceil(samples / asked) * asked
        yield (
            f"`np.resize(x, ({whole}, *x.shape[1:]))` in place of `x`, which repeats samples to "
            f"fill the last batch, and `[:{samples}]` behind `predict(...)`"
        )
    elif split:
        yield (
            f"validation data of your own, `x[:{trained // asked * asked}]` for training and "
            f"`validation_data=(x[-{max(held_back // asked * asked, asked)}:], ...)`"
        )
    else:
        whole = samples // asked * asked
        rest = samples - whole
        yield f"`x[:{whole}], y[:{whole}]`, which leaves {rest} samples out"


def _divisor(samples: int, asked: int, steps: int) -> int | None:
    """Returns the size of whole batches nearest to the one that was asked for.

    `None` if it would be over four times smaller or larger, unless there are fewer samples.

    Args:
        steps: Batches of an execution, which the number of batches must be a multiple of.
    """
    least = 1 if samples < asked else max(asked // 4, 1)
    whole = [
        size
        for size in sorted(divisors(samples))
        if least <= size <= 4 * asked and samples % (size * steps) == 0
    ]
    return min(whole, key=lambda size: abs(math.log(size / asked)), default=None)


def _of_dataset(model: Any, dataset: tf.data.Dataset, method: str) -> Iterator[str]:
    spec = dataset.element_spec
    leaves = tf.nest.flatten(spec)
    if not all(isinstance(leaf, tf.TensorSpec) for leaf in leaves):
        return
    if any(leaf.shape.rank is None for leaf in leaves):
        yield (
            "`output_signature=(tf.TensorSpec(shape, dtype), ...)` in place of `output_types`, "
            "with the shape of a batch"
        )
        return
    sizes = {leaf.shape[0] for leaf in leaves if leaf.shape.rank}
    if sizes == {None}:
        yield _of_open_batches(model, method, dataset)
    elif _lacks_batches(model, leaves):
        yield f"`dataset = dataset.batch({_BATCH_SIZE}, drop_remainder=True)`"
    known = max(filter(None, sizes), default=None) if None in sizes else None
    mended = _mended(spec, known)
    if mended:
        yield f"`dataset = dataset.map({mended})`"
    if any(leaf.dtype == tf.string for leaf in leaves):
        yield (
            "`layer` is the one that makes texts numbers, which cannot be in the model, and "
            "`length` its `output_sequence_length`"
        )
    if any(None in leaf.shape[1:] for leaf in leaves):
        yield _AXES


def _of_open_batches(model: Any, method: str, dataset: tf.data.Dataset) -> str:
    batched = next((step for step in steps_of(dataset) if isinstance(step, Batched)), None)
    size = batched.size if batched else _BATCH_SIZE
    if getattr(model, "preprocessor", None) is None:
        batches = int(dataset.cardinality())
        # Batches that are made anew are not counted by TensorFlow; all but the last are whole.
        whole = batched.samples // size if batched and batched.samples > 0 else 0
        counted = f".apply(tf.data.experimental.assert_cardinality({whole}))"
        return (
            f"`dataset = dataset.rebatch({size}, drop_remainder=True)"
            f"{counted if batches - whole in (0, 1) else ''}`, or `drop_remainder=True` where it "
            "is batched"
        )
    # Models of KerasHub batch what they are given, and keep a smaller last batch.
    return (
        f"`dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch({size}, "
        f"drop_remainder=True).map(model.preprocessor)`, `model.preprocessor = None` and "
        f"`model.{method}(dataset)`, as the model's preprocessor keeps a last smaller batch"
    )


def _lacks_batches(model: Any, leaves: list[tf.TensorSpec]) -> bool:
    inputs: Any = getattr(model, "inputs", None)
    return bool(inputs) and leaves[0].shape.rank == len(inputs[0].shape) - 1


def _mended(spec: Any, batch_size: int | None) -> str:
    """Returns a function for `map` that casts, and states sizes of batches; empty if not needed.

    Args:
        batch_size: The first axis of tensors that do not say it; `None` to leave them.
    """
    names: tuple[str, ...] = ("x", "y", "sample_weight") if isinstance(spec, tuple) else ("x",)
    parts = spec if isinstance(spec, tuple) else (spec,)
    if len(parts) > len(names):
        return ""
    names = names[: len(parts)]
    wanted = [_expression(name, part, batch_size) for name, part in zip(names, parts, strict=True)]
    if wanted == list(names):
        return ""
    results = ", ".join(wanted)
    return f"lambda {', '.join(names)}: " + (f"({results})" if len(wanted) > 1 else results)


def _expression(name: str, spec: Any, batch_size: int | None) -> str:
    if isinstance(spec, Mapping):
        parts = {
            key: _expression(f"{name}[{key!r}]", part, batch_size) for key, part in spec.items()
        }
        changed = [f"{key!r}: {part}" for key, part in parts.items() if part != f"{name}[{key!r}]"]
        return f"{{**{name}, {', '.join(changed)}}}" if changed else name
    if isinstance(spec, tuple):
        members = [_expression(f"{name}[{i}]", part, batch_size) for i, part in enumerate(spec)]
        same = [f"{name}[{i}]" for i in range(len(spec))]
        return name if members == same else f"({', '.join(members)},)"
    if spec.dtype == tf.string:
        batch = batch_size or (spec.shape[0] if spec.shape.rank else None) or _BATCH_SIZE
        return f"tf.ensure_shape(tf.cast(layer({name}), tf.int32), ({batch}, length))"
    result = f"tf.cast({name}, tf.int32)" if _is_wide_integer(spec.dtype) else name
    if batch_size is not None and spec.shape.rank and spec.shape[0] is None:
        result = f"tf.ensure_shape({result}, {(batch_size, *spec.shape[1:])})"
    return result


def _is_wide_integer(dtype: tf.DType) -> bool:
    return dtype.is_integer and dtype.name not in FEED_DTYPES


def _of_py_dataset(dataset: keras.utils.PyDataset) -> Iterator[str]:
    names = ("x", "y", "sample_weight")
    first, last = (dataset[index] for index in (0, len(dataset) - 1))
    parts = first if isinstance(first, tuple) else (first,)
    found = [leaf for name, part in zip(names, parts, strict=False) for leaf in _leaves(name, part)]
    for path, leaf in found:
        if _is_wide_integer(dtype_of(leaf)):
            yield f'`{path} = {path}.astype("int32")` in `__getitem__`'
    lasts = last if isinstance(last, tuple) else (last,)
    ends = [leaf for name, part in zip(names, lasts, strict=False) for leaf in _leaves(name, part)]
    if found and ends and len(found[0][1]) != len(ends[0][1]):
        yield f"`return len(samples) // {len(found[0][1])}` in `__len__`, which leaves the rest out"


def _of_generator(model: Any, data: Any, method: str) -> Iterator[str]:
    inputs: Any = getattr(model, "inputs", None) or ()
    shape = (_BATCH_SIZE, *inputs[0].shape[1:]) if len(inputs) == 1 else f"({_BATCH_SIZE}, ...)"
    made_by = getattr(data, "__name__", "make_batches")
    made_by = (
        made_by if made_by.isidentifier() and not keyword.iskeyword(made_by) else "make_batches"
    )
    signature = f"tf.TensorSpec({shape}, tf.float32)"
    if method != "predict":
        signature = f"({signature}, tf.TensorSpec(({_BATCH_SIZE},), tf.int32))"
    steps = "steps_per_epoch" if method == "fit" else "steps"
    yield (
        f"`dataset = tf.data.Dataset.from_generator({made_by}, output_signature={signature})`, "
        f"with the shapes and types of your batches, and `model.{method}(dataset, {steps}=...)`"
    )
