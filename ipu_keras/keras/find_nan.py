"""Finds out where a model's step makes NaN or an infinity of numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from ipu_keras.host.exceptions import FoundException, in_words
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.program import Program

_PREDICT = "predict"
_MODES = ("train", "test", _PREDICT)


@dataclass(frozen=True)
class NanFinding:
    """Where the first number that is not finite came from; false if there is none.

    Its text says all of it in a sentence.

    Args:
        text: What was found, in words.
        part: `"data"`, `"weights"`, `"forward"`, `"gradient"`, `"optimizer"`, `"unknown"` if no
            operation that was seen makes it, or empty if there is none.
        kind: The exceptions that an IPU meets there, such as `"invalid operation (INV)"`.
        layer: Path of the layer or name scope that the operation is in; empty for none.
        operation: Name of the operation, of the weight, or of the array in the data.
        step: The step of the execution, counted from 0.
        replica: The replica, counted from 0.

    Example:

    >>> finding = NanFinding("Nothing was found.")
    >>> bool(finding), str(finding)
    (False, 'Nothing was found.')
    """

    text: str
    part: str = ""
    kind: str = ""
    layer: str = ""
    operation: str = ""
    step: int = 0
    replica: int = 0

    def __bool__(self) -> bool:
        return bool(self.part)

    def __str__(self) -> str:
        return self.text


def find_nan(model: keras.Model, batch: Any, *, mode: str | None = None) -> NanFinding:
    """Finds out which operation of a step first makes NaN or an infinity of numbers.

    The step runs operation by operation, which takes many times as long as usual, with the
    numbers of an IPU. Weights, the optimizer's state and metrics are as before when it is over.
    Options of `floating_point_behaviour` that stop executions need not be on. What a step masks,
    so that its results and all that it writes are finite, is not reported.

    Args:
        model: A model that was made in the scope of an `IPUStrategy`.
        batch: Data of one step as `fit` takes them from a dataset: `(x, y)`, `(x, y,
            sample_weight)` or `x`, of arrays or tensors whose first axis is the batch. Replicas,
            and steps whose gradients are accumulated, all take this batch.
        mode: `"train"`, `"test"` or `"predict"`. Defaults to `"train"` if the model is compiled
            and the batch is a tuple with labels, else `"predict"`.

    Returns:
        What was found, which prints as a sentence, and is false if all is finite. Data and
        weights that are not finite before the step are what was found, too.

    Raises:
        ValueError: The model was not made in the scope of an `IPUStrategy`, `mode` is none of
            these, or a model that is to be trained or tested is not compiled.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     model = keras.Sequential(
    ...         [keras.Input((1,)), keras.layers.Lambda(keras.ops.log, name="logarithm")], name="m"
    ...     )
    >>> finding = find_nan(model, np.zeros((2, 1), "float32"))
    >>> finding.part, finding.kind, finding.layer
    ('forward', 'division by zero (DIV0)', 'm/logarithm')
    """
    _check_model(model, "find_nan")
    mode = _mode(model, batch, mode)
    data = batch if isinstance(batch, tuple) else (batch,)
    if mode != _PREDICT:
        data = (*data, None, None)[:3]
    elif len(data) > 1:
        data = data[:1]
    data = model._ipu.batch(mode, data)
    wrong = _in_data(data)
    if wrong:
        return wrong
    if mode == "train" or (mode == "test" and not model.built):
        model._maybe_symbolic_build(data_batch=data)
    getattr(model, f"make_{mode}_function")()
    function = getattr(model, f"{mode}_function")
    wrong = _in_weights((v, v.value) for v in _states(model))
    if wrong:
        return wrong
    metrics = [(v, v.value.read_value()) for v in _of_metrics(model)]
    try:
        return _finding(model, function.first_not_finite(data, model.reset_metrics))
    finally:
        # A step need not write all of them.
        _assign(metrics)


class FindNan(keras.callbacks.Callback):
    """Stops `fit` when the loss is no longer finite, prints where that began, and keeps it.

    Before each execution it notes the variables, and copies of the data are kept; when the loss
    of an execution is NaN or infinite, the same steps run once more as those of `find_nan` do,
    from the variables that were before them. Variables stay as the execution left them.

    Attributes:
        finding: The `NanFinding` of the last call of `fit`; `None` if the loss stayed finite.

    Raises:
        ValueError: When `fit` begins, the model was not made in the scope of an `IPUStrategy`, or
            has asynchronous callbacks, which come after later executions.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)], name="m")
    >>> model.compile("sgd", "mse")
    >>> found = FindNan()
    >>> x = np.float32([[1], [1], [1e30], [1]])
    >>> _ = model.fit(x, x, batch_size=1, shuffle=False, verbose=0, callbacks=[found])
    ... # doctest: +ELLIPSIS
    The loss is not finite: overflow (OFLO) in the operation ...
    >>> found.finding.part
    'forward'
    """

    def __init__(self):
        super().__init__()
        self.finding: NanFinding | None = None
        self._before: list[tuple[Any, Any]] = []
        self._is_first = True

    def set_model(self, model: Any) -> None:
        """Takes the model, as Keras's callbacks do.

        Raises:
            ValueError: The model was not made in the scope of an `IPUStrategy`, or has
                asynchronous callbacks.
        """
        _check_model(model, "FindNan")
        if model._ipu.options.asynchronous_callbacks:
            raise ValueError(
                "FindNan repeats an execution from the variables that were before it, so callbacks "
                "must be called before the next one. Call `model.set_asynchronous_callbacks(False)`"
                f" first. Received: {model.name!r}, whose callbacks are asynchronous"
            )
        super().set_model(model)

    def on_train_begin(self, logs=None):
        self.finding = None

    def on_epoch_begin(self, epoch, logs=None):
        self.model.train_function.keep_data(True)

    def on_train_batch_begin(self, batch, logs=None):
        # TensorFlow writes to other memory as long as someone has these.
        variables = [*_states(self.model), *_of_metrics(self.model)]
        self._before = [(v, v.value.read_value()) for v in variables]

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss", 0.0)
        if self.finding is not None or math.isfinite(float(loss)):
            return
        states = {id(v) for v in _states(self.model)}
        wrong = _in_weights((v, value) for v, value in self._before if id(v) in states)
        if not wrong:
            function, before = self.model.train_function, self._before
            wrong = _finding(self.model, function.first_not_finite_of_last(lambda: _assign(before)))
        self.finding = wrong
        print(f"The loss is not finite: {wrong}")
        self.model.stop_training = True

    def on_train_end(self, logs=None):
        self._before = []
        if self.model.train_function is not None:
            self.model.train_function.keep_data(False)


def _check_model(model: Any, name: str) -> None:
    if not isinstance(model, ModelExtension):
        raise ValueError(
            f"{name} is for models that run as programs of an IPU. Make the model in the scope of "
            f"an IPUStrategy: `with strategy.scope():`. Received: {model!r}"
        )


def _mode(model: keras.Model, batch: Any, mode: str | None) -> str:
    if mode is None:
        return (
            "train" if model.compiled and isinstance(batch, tuple) and len(batch) > 1 else _PREDICT
        )
    if mode not in _MODES:
        raise ValueError(f"`mode` must be one of {', '.join(_MODES)}. Received: mode={mode!r}")
    if mode != _PREDICT and not model.compiled:
        raise ValueError(
            f"To {mode} a model it must be compiled: call `compile` first. "
            f"Received: mode={mode!r} for {model.name!r}"
        )
    return mode


def _states(model: keras.Model) -> list[Any]:
    """Returns the variables of layers and optimizer."""
    optimizer = getattr(model, "optimizer", None)
    metrics = {id(v) for v in _of_metrics(model)}
    found = [*model.variables, *([] if optimizer is None else optimizer.variables)]
    return [v for v in {id(v): v for v in found}.values() if id(v) not in metrics]


def _of_metrics(model: keras.Model) -> list[Any]:
    return [v for metric in model.metrics for v in metric.variables]


def _assign(values: Sequence[tuple[Any, Any]]) -> None:
    for variable, value in values:
        variable.assign(value)


def _in_data(data: Any) -> NanFinding | None:
    """Returns what is not finite in data; `None` if all is."""
    for path, leaf in keras.tree.flatten_with_path(data):
        array = None if leaf is None else np.asarray(leaf)
        if array is None or array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        name = "data" + "".join(f"[{part!r}]" for part in path)
        place = np.argwhere(~np.isfinite(array))[0].tolist()
        return NanFinding(
            f"{name} has {_kind_of(array)} before the step, first at {place}.",
            part="data",
            operation=name,
        )
    return None


def _in_weights(values: Iterable[tuple[Any, Any]]) -> NanFinding | None:
    """Returns the first of variables that is not finite; `None` if all are."""
    for variable, value in values:
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return NanFinding(
                f"The variable {variable.path!r} has {_kind_of(array)} before the step: an "
                "earlier one wrote it. Begin again from finite weights, with the callback "
                "FindNan in `fit`.",
                part="weights",
                operation=variable.path,
            )
    return None


def _kind_of(array: np.ndarray) -> str:
    return "NaN" if np.isnan(array).any() else "an infinity"


def _finding(
    model: keras.Model, searched: tuple[FoundException | None, bool, Program]
) -> NanFinding:
    found, is_finite, program = searched
    if is_finite:
        return NanFinding(f"The results of {program.title!r}, and all that it writes, are finite.")
    if found is None:
        return NanFinding(
            f"Results of {program.title!r}, or what it writes, are not finite, but no operation "
            "was seen that makes NaN or an infinity of finite numbers: one that draws, reads or "
            "receives numbers did.",
            part="unknown",
        )
    part = _part(model, found)
    where = ", which is of the optimizer" if part == "optimizer" else ""
    return NanFinding(
        f"{in_words(found, program)[:-1]}{where}.",
        part=part,
        kind=" and ".join(sorted(kind.value for kind in found.kinds)),
        layer=found.layer,
        operation=found.operation,
        step=found.step,
        replica=found.replica or 0,
    )


def _part(model: keras.Model, found: FoundException) -> str:
    # A train step that is not split opens no scope but the optimizer's own for the weight update.
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", None)
    names = {one.name for one in (optimizer, inner) if one is not None}
    if found.is_weight_update or found.layer.split("/")[0] in names:
        return "optimizer"
    return "gradient" if found.is_gradient else "forward"
