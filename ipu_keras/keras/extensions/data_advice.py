"""What to write where the data of `fit`, `evaluate` or `predict` does not suit an IPU.

Programs have static shapes and few types, so the first lines of many scripts are refused. The
errors keep the texts of IPU software, which scripts match, and which know nothing of the script's
own data. What is wrong is found here from the data alone, and becomes a note of the error.
"""

import inspect
import keyword
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.feeds.dataset_feed import dtype_of
from ipu_keras.internals.tensorflow.datasets import Batched, steps_of
from ipu_keras.program.data_types import FEED_DTYPES
from ipu_keras.settings.arguments import divisors

_BATCH_SIZE = 32  # Keras's own default
# The arguments that say how many batches to take.
_STEPS = {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}
_TEXT = (
    "texts become numbers outside of the program: take the layer that does so out of the model, "
    "and write "
)
# Keys of labels in the dictionaries that datasets of whole records give.
_LABELS = ("label", "labels", "target", "targets", "y")
# Types of pandas with missing values, and those of feeds for them.
_NULLABLE = {
    **dict.fromkeys(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"), "int32"),
    **dict.fromkeys(("Float32", "Float64"), "float32"),
    **{"UInt64": "int32", "boolean": "bool"},
}
_TENSORS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)
_AXES = (
    "give other open axes, and rows of different lengths, one length with "
    "`output_sequence_length` of `TextVectorization`, `padded_batch(..., padded_shapes=...)` or "
    "`tf.image.resize`"
)


def data_advice(model: keras.Model, method: str, arguments: Mapping[str, Any]) -> str | None:
    """Returns what to write so that the data of a call suits an IPU; `None` if nothing is found.

    Args:
        method: `"fit"`, `"evaluate"` or `"predict"`.
        arguments: What was given for its parameters, by name.
    """
    data = arguments.get("x")
    if isinstance(data, tf.data.Dataset):
        is_sized = arguments.get(_STEPS[method]) is not None
        lines = _of_dataset(model, data, method, "dataset", is_sized=is_sized)
    elif isinstance(data, keras.utils.PyDataset):
        lines = _of_py_dataset(data)
    elif isinstance(data, Iterator) or inspect.isgeneratorfunction(data):
        lines = _of_generator(model, data, method)
    elif _gives_batches(data):
        lines = _of_loader(model, data, method)
    else:
        lines = _of_arrays(model, method, arguments)
    found = "; ".join([*lines, *_of_validation(model, arguments)])
    return found and f"What to write: {found}. See the guide 'Data' (docs/how-to/data.md)."


def _of_arrays(model: Any, method: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    names = ("x", "y", "sample_weight")
    arrays = {name: arguments[name] for name in names if arguments.get(name) is not None}
    shape, x = _input_shape(model), arrays.get("x")
    if shape is not None and isinstance(x, list | tuple) and len(x) > 1 and hasattr(x[0], "shape"):
        if len(x) == 2 and "y" not in arrays and method != "predict":
            yield "`x, y = x`"
            return
        yield "`x = np.stack(x)`, as a list has an array for each input"
        arrays["x"] = np.stack(x)
    elif shape is not None and tuple(getattr(x, "shape", ())) == shape != (1,):
        yield "`x = x[None]`, a batch of one sample, and `batch_size=1`"
        return
    for name, value in arrays.items():
        for path, leaf in _leaves(name, value):
            yield from _of_array(path, leaf)
    samples = {_rows(leaf) for value in arrays.values() for _, leaf in _leaves("", value)}
    if len(samples) == 1:
        yield from _of_sizes(model, method, arguments, *samples)


def _input_shape(model: Any) -> tuple[int | None, ...] | None:
    """Returns the shape of a sample; `None` of a model that has not one input."""
    inputs: Any = getattr(model, "inputs", None) or ()
    return tuple(inputs[0].shape[1:]) if len(inputs) == 1 else None


def _of_validation(model: Any, arguments: Mapping[str, Any]) -> Iterator[str]:
    data, name = arguments.get("validation_data"), "validation_data"
    if isinstance(data, tf.data.Dataset):
        is_sized = arguments.get("validation_steps") is not None
        yield from _of_dataset(model, data, "evaluate", name, is_sized=is_sized)
    if not isinstance(data, tuple) or not data:
        return
    members = [f"{name}[{place}]" for place in range(len(data))]
    wanted = list(members)
    for place, (member, part) in enumerate(zip(members, data, strict=True)):
        for path, leaf in _leaves(member, part):
            if path == member:
                wanted[place] = _as_array(path, leaf)
            else:
                yield from _of_array(path, leaf)
    if wanted != members:
        yield f"`{name} = ({', '.join(wanted)})`"
    size = arguments.get("validation_batch_size") or arguments.get("batch_size") or _BATCH_SIZE
    samples = _rows(next(_leaves("", data))[1])
    better = _divisor(samples, size, 1)
    if samples % size and better is not None:
        yield f"`validation_batch_size={better}`, a divisor of the number of samples, {samples:,}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the arrays of an argument, each with the expression for it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{path}[{key!r}]", part)
    elif isinstance(value, (list, tuple)) and any(np.ndim(part) for part in _arrays_in(value)):
        for index, part in enumerate(value):
            yield from _leaves(f"{path}[{index}]", part)
    elif (hasattr(value, "shape") or hasattr(value, "__len__")) and not isinstance(value, str):
        yield path, value


def _arrays_in(parts: Sequence[Any]) -> Iterator[Any]:
    return (part for part in parts if hasattr(part, "shape"))


def _rows(leaf: Any) -> int:
    return int(leaf.shape[0]) if getattr(leaf, "shape", ()) else len(leaf)


def _of_array(path: str, leaf: Any) -> Iterator[str]:
    columns = list(_of_columns(path, leaf)) if hasattr(leaf, "columns") else []
    if columns:
        yield from columns
        return
    wanted = _as_array(path, leaf)
    if wanted != path:
        yield f"{_TEXT if 'layer(' in wanted else ''}`{path} = {wanted}`"


def _of_columns(path: str, frame: Any) -> Iterator[str]:
    """Yields what makes numbers of the columns of a data frame that have none."""
    for name, dtype in frame.dtypes.items():
        column = f"{path}[{name!r}]"
        if dtype.kind == "M":
            seconds = f"({column} - {column}.min()).dt.total_seconds()"
            yield f'`{column} = {seconds}.astype("float32")`'
        elif dtype.kind == "O" and not _holds_numbers(frame[name]):
            yield f'`{column} = {column}.astype("category").cat.codes.astype("float32")`'
    kinds = {dtype.kind for dtype in frame.dtypes if dtype.kind != "M"}
    is_nullable = any(type(dtype).__module__.startswith("pandas") for dtype in frame.dtypes)
    # An array of all columns would be one of objects.
    if (kinds - {"O"} and is_nullable) or (len(kinds) > 1 and "b" in kinds) or "O" in kinds:
        yield f'`{path} = {path}.astype("float32")`'


def _holds_numbers(column: Any) -> bool:
    """Whether the objects of a column are numbers."""
    return all(isinstance(value, numbers.Number) for value in column)


def _as_array(path: str, leaf: Any) -> str:
    """Returns the expression for what suits an IPU in place of an array, which may be its path."""
    if isinstance(leaf, tf.SparseTensor):
        return f"tf.sparse.to_dense({path})"
    if isinstance(leaf, tf.RaggedTensor):
        return f"{path}.to_tensor()"
    if hasattr(leaf, "toarray"):  # of SciPy's sparse arrays
        return f"{path}.toarray()"
    if isinstance(leaf, list | tuple):
        try:
            kind = np.array(leaf).dtype.kind
        except ValueError:  # rows of different lengths
            return f'keras.utils.pad_sequences({path}, dtype="float32", padding="post")'
        if kind in "US":
            return _of_texts(path)
        return f'np.array({path}, "{ {"f": "float32", "b": "bool"}.get(kind, "int32") }")'
    name = str(getattr(leaf, "dtype", ""))
    if tf.is_tensor(leaf):
        name = leaf.dtype.name
    if getattr(getattr(leaf, "dtype", None), "names", None):
        return f'np.stack([{path}[name] for name in {path}.dtype.names], axis=-1).astype("float32")'
    if name == "object" and not isinstance(first := np.asarray(leaf).flat[0], str | bytes):
        return f"np.stack({path})" if np.ndim(first) else f'{path}.astype("float32")'
    if name in _NULLABLE:
        return f'{path}.astype("{_NULLABLE[name]}")'
    if name.startswith(("category", "str", "<U", "|S", "object")):
        return _of_texts(path)
    if _is_wide_integer(dtype_of(leaf)):
        cast = "tf.cast({0}, tf.int32)" if tf.is_tensor(leaf) else '{0}.astype("int32")'
        return cast.format(path)
    return path


def _of_texts(path: str) -> str:
    if path in ("y", "validation_data[1]"):
        return f'np.unique({path}, return_inverse=True)[1].astype("int32")'
    return f"layer({path}).numpy().astype('int32')"


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


def _of_dataset(
    model: Any, dataset: tf.data.Dataset, method: str, name: str, *, is_sized: bool
) -> Iterator[str]:
    """Yields what to write for a dataset of the name that it has in these lines.

    `is_sized` says whether it was given how many batches to take.
    """
    lines = list(_of_elements(model, dataset, method, name))
    yield from lines
    is_known = dataset.cardinality() != tf.data.UNKNOWN_CARDINALITY
    is_counted = any("assert_cardinality" in line for line in lines)
    # Batches that are made anew are not counted by TensorFlow.
    is_lost = any(".rebatch(" in line for line in lines)
    if is_sized or is_counted or (is_known and not is_lost):
        return
    steps = "validation_steps" if name == "validation_data" else _STEPS[method]
    yield (
        f"`{name} = {name}.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in {name})))`,"
        f" which reads the data once, or `{steps}=...`, also for data that never end"
    )


def _of_elements(model: Any, dataset: tf.data.Dataset, method: str, name: str) -> Iterator[str]:
    """Yields what to write so that the elements of a dataset suit an IPU."""
    spec = dataset.element_spec
    leaves = tf.nest.flatten(spec)
    if not all(isinstance(leaf, _TENSORS) for leaf in leaves):
        return
    if all(leaf.shape.rank is None for leaf in leaves):
        yield (
            "`output_signature=(tf.TensorSpec(shape, dtype), ...)` in place of `output_types`, "
            "with the shape of a batch"
        )
        return
    sizes = {leaf.shape[0] if leaf.shape.rank else None for leaf in leaves if leaf.shape.rank != 0}
    known = max(filter(None, sizes), default=None) if None in sizes else None
    shape = _input_shape(model)
    if sizes == {None}:
        size, line = _of_open_batches(model, method, dataset, name)
        yield line
        spec = tf.nest.map_structure(lambda leaf: _resized(leaf, size), spec)
    elif _lacks_batches(model, leaves if isinstance(spec, Mapping) else leaves[:1]):
        yield f"`{name} = {name}.batch({_BATCH_SIZE}, drop_remainder=True)`"
        spec = tf.nest.map_structure(lambda leaf: _batched(leaf, _BATCH_SIZE), spec)
    mending = _Mending(known, shape)
    mended = mending.of_pair(spec) if method != "predict" else ""
    mended = mended or mending.of(spec)
    if mended:
        yield f"`{name} = {name}.map({mended})`"
    inputs: Any = getattr(model, "inputs", None) or ()
    if len(inputs) > 1 and isinstance(spec, tuple) and len(spec) == len(inputs) + 1 == len(leaves):
        yield f"`{name} = {name}.map(lambda *parts: (parts[:-1], parts[-1]))`"
    if any(leaf.dtype == tf.string for leaf in leaves):
        yield (
            "`layer` is the one that makes texts numbers, which cannot be in the model (for "
            "labels `keras.layers.StringLookup(vocabulary=..., num_oov_indices=0)`), and `length` "
            "its `output_sequence_length`"
        )
    known_ranks = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec) and leaf.shape.rank]
    if any(None in leaf.shape[1:] for leaf in known_ranks):
        yield _AXES


def _resized(spec: Any, size: int) -> Any:
    """Returns the spec of a tensor whose first axis is known."""
    if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
        return spec
    return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)


def _batched(spec: Any, size: int) -> Any:
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.TensorSpec([size, *spec.shape], spec.dtype)


def _of_open_batches(
    model: Any, method: str, dataset: tf.data.Dataset, name: str
) -> tuple[int, str]:
    """Returns the size of batches that are made anew, and what to write for them."""
    batched = next((step for step in steps_of(dataset) if isinstance(step, Batched)), None)
    size = batched.size if batched else _BATCH_SIZE
    if getattr(model, "preprocessor", None) is not None:
        # Models of KerasHub batch what they are given, and keep a smaller last batch.
        return size, (
            f"`dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch({size}, "
            f"drop_remainder=True).map(model.preprocessor)`, `model.preprocessor = None` and "
            f"`model.{method}(dataset)`, as the model's preprocessor keeps a last smaller batch"
        )
    samples = batched.samples if batched else 0
    # Batches that are made anew are not counted by TensorFlow; all but the last are whole.
    is_counted = samples > 0 and int(dataset.cardinality()) - samples // size in (0, 1)
    if is_counted and method != "fit":  # whose results are to be of all samples
        size = _divisor(samples, size, 1) or size
    count = f".apply(tf.data.experimental.assert_cardinality({samples // size}))"
    return size, (
        f"`{name} = {name}.rebatch({size}, drop_remainder=True){count if is_counted else ''}`, or "
        "`drop_remainder=True` where it is batched"
    )


def _lacks_batches(model: Any, features: list[Any]) -> bool:
    """Whether some of the features are single samples of the model's first input, and none more."""
    inputs: Any = getattr(model, "inputs", None)
    # Of a text, a layer makes a row of numbers.
    ranks = {
        leaf.shape.rank + (leaf.dtype == tf.string)
        for leaf in features
        if leaf.shape.rank is not None
    }
    return bool(inputs) and bool(ranks) and max(ranks) == len(inputs[0].shape) - 1


@dataclass(frozen=True)
class _Mending:
    """What `map` has to do so that the elements of a dataset suit an IPU.

    Args:
        batch_size: The first axis of tensors that do not say it; `None` to leave them.
        input_shape: The shape of a sample of the model's only input; `None` if it has several.
    """

    batch_size: int | None
    input_shape: tuple[int | None, ...] | None

    def of(self, spec: Any) -> str:
        """Returns a function that casts, and states shapes; empty if not needed."""
        names: tuple[str, ...] = ("x", "y", "sample_weight") if isinstance(spec, tuple) else ("x",)
        parts = spec if isinstance(spec, tuple) else (spec,)
        if len(parts) > len(names):
            return ""
        names = names[: len(parts)]
        wanted = [self.expression(name, part) for name, part in zip(names, parts, strict=True)]
        if wanted == list(names):
            return ""
        results = ", ".join(wanted)
        return f"lambda {', '.join(names)}: " + (f"({results})" if len(wanted) > 1 else results)

    def of_pair(self, spec: Any) -> str:
        """Returns a function that takes features and labels from one dictionary; empty if none."""
        if not isinstance(spec, Mapping) or self.input_shape is None:
            return ""
        keys = [key for key in spec if key in _LABELS]
        features = [
            key
            for key, part in spec.items()
            if key not in _LABELS and part.shape[1:].is_compatible_with(self.input_shape)
        ]
        if not keys or not features:
            return ""
        parts = (self.expression(f"x[{key!r}]", spec[key]) for key in (features[0], keys[0]))
        return f"lambda x: ({', '.join(parts)})"

    def expression(self, name: str, spec: Any) -> str:
        """Returns what an element, or a part of it, becomes; the name itself if it may stay."""
        if isinstance(spec, Mapping):
            parts = {key: self.expression(f"{name}[{key!r}]", part) for key, part in spec.items()}
            changed = [
                f"{key!r}: {part}" for key, part in parts.items() if part != f"{name}[{key!r}]"
            ]
            return f"{{**{name}, {', '.join(changed)}}}" if changed else name
        if isinstance(spec, tuple):
            members = [self.expression(f"{name}[{i}]", part) for i, part in enumerate(spec)]
            same = [f"{name}[{i}]" for i in range(len(spec))]
            return name if members == same else f"({', '.join(members)},)"
        shape = self._shape(name, spec)
        words = f"({', '.join('length' if size is None else str(size) for size in shape)})"
        if isinstance(spec, tf.RaggedTensorSpec):
            return f"{name}.to_tensor(shape={words})"
        if isinstance(spec, tf.SparseTensorSpec):
            return f"tf.ensure_shape(tf.sparse.to_dense({name}), {words})"
        if spec.dtype == tf.string:
            numbers = f"tf.cast(layer({name}), tf.int32)"
            if name == "y":
                return numbers
            batch = (spec.shape[0] if spec.shape.rank else None) or self.batch_size or _BATCH_SIZE
            return f"tf.ensure_shape({numbers}, ({batch}, length))"
        result = f"tf.cast({name}, tf.int32)" if _is_wide_integer(spec.dtype) else name
        if spec.shape.rank is None:
            return f"tf.ensure_shape({result}, {shape or 'shape'})"
        if None in spec.shape and None not in shape:
            result = f"tf.ensure_shape({result}, {shape})"
        return result

    def _shape(self, name: str, spec: Any) -> tuple[int | None, ...]:
        """Returns a shape with what is known of its open axes."""
        if spec.shape.rank is None and name == "x" and self.input_shape is not None:
            return (self.batch_size or _BATCH_SIZE, *self.input_shape)
        if not spec.shape.rank:
            return ()
        batch, *axes = spec.shape
        if name == "x" and self.input_shape is not None and len(axes) == len(self.input_shape):
            axes = [
                size if axis is None else axis
                for axis, size in zip(axes, self.input_shape, strict=True)
            ]
        return (self.batch_size if batch is None else batch, *axes)


def _is_wide_integer(dtype: tf.DType) -> bool:
    return dtype.is_integer and dtype.name not in FEED_DTYPES


def _of_py_dataset(dataset: keras.utils.PyDataset) -> Iterator[str]:
    names = ("x", "y", "sample_weight")
    first, last = (dataset[index] for index in (0, len(dataset) - 1))
    parts = first if isinstance(first, tuple) else (first,)
    found = [leaf for name, part in zip(names, parts, strict=False) for leaf in _leaves(name, part)]
    for path, leaf in found:
        wanted = _as_array(path, leaf)
        if wanted != path:
            yield f"`{path} = {wanted}` in `__getitem__`"
    lasts = last if isinstance(last, tuple) else (last,)
    ends = [leaf for name, part in zip(names, lasts, strict=False) for leaf in _leaves(name, part)]
    if found and ends and len(found[0][1]) != len(ends[0][1]):
        yield f"`return len(samples) // {len(found[0][1])}` in `__len__`, which leaves the rest out"


def _gives_batches(data: Any) -> bool:
    """Whether it is an object that gives batches one after the other, such as a loader."""
    is_array = hasattr(data, "__array__") or hasattr(data, "shape")
    return (
        isinstance(data, Iterable)
        and not isinstance(data, list | tuple | Mapping | str | set)
        and not is_array
    )


def _of_loader(model: Any, data: Any, method: str) -> Iterator[str]:
    made_by = "lambda: map(tuple, x)" if method != "predict" else "lambda: x"
    steps = str(len(data)) if isinstance(data, Sized) else "..."
    yield from _from_generator(model, made_by, method, steps)


def _of_generator(model: Any, data: Any, method: str) -> Iterator[str]:
    made_by = getattr(data, "__name__", "make_batches")
    made_by = (
        made_by if made_by.isidentifier() and not keyword.iskeyword(made_by) else "make_batches"
    )
    yield from _from_generator(model, made_by, method, "...")


def _from_generator(model: Any, made_by: str, method: str, steps: str) -> Iterator[str]:
    inputs: Any = getattr(model, "inputs", None) or ()
    shape = (_BATCH_SIZE, *inputs[0].shape[1:]) if len(inputs) == 1 else f"({_BATCH_SIZE}, ...)"
    signature = f"tf.TensorSpec({shape}, tf.float32)"
    if method != "predict":
        signature = f"({signature}, tf.TensorSpec(({_BATCH_SIZE},), tf.int32))"
    yield (
        f"`dataset = tf.data.Dataset.from_generator({made_by}, output_signature={signature})`, "
        f"with the shapes and types of your batches, and `model.{method}(dataset, "
        f"{_STEPS[method]}={steps})`"
    )
