"""What every layer of ours has to pass: Keras's own battery, files, XLA, and the IPU."""

import contextlib
import os
import tempfile
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.testing import TestCase

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

PACKAGE = "ipu_addons"

# The shapes of what a layer takes: of one tensor, of several in a list, or by argument name.
Shapes = tuple | list | dict


@contextlib.contextmanager
def one_ipu():
    """A strategy on one IPU; the system is as if new before and after."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    try:
        yield IPUStrategy()
    finally:
        SYSTEM.reset()


def run_layer_battery(
    strategy: IPUStrategy,
    layer_class: type,
    arguments: dict[str, Any],
    *,
    input_shape: Shapes,
    expected_output_shape: Any,
    input_dtype: Any = None,
    call_arguments: dict[str, Any] | None = None,
    trainable: bool = True,
    **expectations: Any,
) -> None:
    """Holds a layer against all that a layer of Keras does.

    Args:
        strategy: Under which a model with the layer is trained.
        layer_class: The layer's.
        arguments: Of its constructor.
        input_shape: What the layer takes, with the batch size. A tuple is one tensor, a list
            several in a list, a dictionary several by the name of their argument; the layer's
            `build` and `compute_output_shape` take those with `_shape` after it.
        expected_output_shape: A shape, or a structure of shapes.
        input_dtype: In the structure of `input_shape`; float32 by default.
        call_arguments: Of each call, besides the tensors.
        trainable: Whether there is something to train: weights of the layer, or what is before
            it. A gradient must reach each of its weights and inputs of floating point numbers.
        **expectations: Further ones of Keras's `run_layer_test`, such as
            `expected_num_trainable_weights`, `supports_masking` or `run_mixed_precision_check`.
    """
    call_arguments = call_arguments or {}
    dtypes = _dtypes(input_shape, input_dtype)
    with warnings.catch_warnings():
        # Its training feeds a generator, which Keras then says that it will not shuffle.
        warnings.filterwarnings("ignore", "`shuffle=True` was passed", UserWarning)
        # It trains the layer alone, which may have nothing to train.
        warnings.filterwarnings("ignore", "The model does not have any trainable", UserWarning)
        TestCase().run_layer_test(
            layer_class,
            arguments,
            input_shape=_named(input_shape),
            input_dtype=_named(dtypes),
            call_kwargs=call_arguments,
            expected_output_shape=expected_output_shape,
            # Of several tensors it knows none.
            run_training_check=trainable and isinstance(input_shape, tuple),
            **expectations,
        )
    assert keras.saving.get_registered_name(layer_class) == f"{PACKAGE}>{layer_class.__name__}"
    data = _data(input_shape, dtypes)
    _check_computed_shape(layer_class(**arguments), input_shape, expected_output_shape)
    _check_file(_model(layer_class(**arguments), input_shape, dtypes, call_arguments), data)
    _check_compiled(layer_class(**arguments), data, call_arguments)
    if trainable:
        _check_training(
            strategy, lambda: layer_class(**arguments), input_shape, dtypes, call_arguments
        )


def _dtypes(shapes: Shapes, dtypes: Any) -> Any:
    if dtypes is not None:
        return dtypes
    if isinstance(shapes, dict):
        return dict.fromkeys(shapes, "float32")
    return ["float32"] * len(shapes) if isinstance(shapes, list) else "float32"


def _named(structure: Any) -> Any:
    """As Keras names the shapes of arguments."""
    if isinstance(structure, dict):
        return {f"{name}_shape": value for name, value in structure.items()}
    return structure


def _map(function, *structures: Any) -> Any:
    """Of a tensor, a list or a dictionary of them; shapes are leaves."""
    first = structures[0]
    if isinstance(first, dict):
        return {name: function(*(each[name] for each in structures)) for name in first}
    if isinstance(first, list):
        return [function(*leaves) for leaves in zip(*structures, strict=True)]
    return function(*structures)


def _data(shapes: Shapes, dtypes: Any) -> Any:
    random = np.random.default_rng(0)

    def array(shape, dtype):
        # Integers are counts or classes: 1 is one of either.
        is_float = np.issubdtype(np.dtype(dtype), np.floating)
        return (random.normal(size=shape) if is_float else np.ones(shape)).astype(dtype)

    return _map(array, shapes, dtypes)


def _call(layer: Any, inputs: Any, call_arguments: dict[str, Any]) -> Any:
    if isinstance(inputs, dict):
        return layer(**inputs, **call_arguments)
    return layer(inputs, **call_arguments)


def _model(layer: Any, shapes: Shapes, dtypes: Any, call_arguments: dict[str, Any]) -> Any:
    """A model of the layer alone."""

    def make(shape, dtype, name):
        return keras.Input(shape[1:], batch_size=shape[0], dtype=dtype, name=name)

    if isinstance(shapes, dict):
        inputs = _map(make, shapes, dtypes, {name: name for name in shapes})
    else:
        inputs = _map(lambda shape, dtype: make(shape, dtype, None), shapes, dtypes)
    return keras.Model(inputs, _call(layer, inputs, call_arguments))


def _check_computed_shape(layer: Any, shapes: Shapes, expected: Any) -> None:
    if isinstance(shapes, dict):
        computed = layer.compute_output_shape(**_named(shapes))
    else:
        computed = layer.compute_output_shape(shapes)
    assert computed == expected


def _check_file(model: Any, data: Any) -> None:
    """A model with the layer is the same after it was saved and loaded, without custom objects."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with warnings.catch_warnings():
            # Keras saves variables with np.array(), whose `copy` TensorFlow does not know yet.
            warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
            model.save(path)
        loaded = keras.models.load_model(path)
    _assert_equal(loaded(data, training=False), model(data, training=False), 0)


def _check_compiled(layer: Any, data: Any, call_arguments: dict[str, Any]) -> None:
    """XLA's results are TensorFlow's, where nothing is drawn."""
    tensors = _map(tf.constant, data)
    eager = _call(layer, tensors, {**_inference(layer), **call_arguments})
    compiled = tf.function(
        lambda inputs: _call(layer, inputs, {**_inference(layer), **call_arguments}),
        jit_compile=True,
    )
    _assert_equal(compiled(tensors), eager, 1e-5)


def _inference(layer: Any) -> dict[str, Any]:
    return {"training": False} if layer._call_has_training_arg else {}


class Trained(keras.Model):
    """Scales what it takes, element by element, calls a layer, and adds up what comes out."""

    def __init__(self, layer, shapes, dtypes, call_arguments):
        super().__init__()
        self._layer = layer
        self._call_arguments = call_arguments
        self._factors = keras.tree.flatten(_map(self._factor, shapes, dtypes))

    def _factor(self, shape, dtype):
        if not np.issubdtype(np.dtype(dtype), np.floating):
            return None
        return self.add_weight(shape=shape, initializer="ones", name="factor")

    def call(self, inputs, training=None):
        # Datasets have tuples for lists.
        inputs = list(inputs) if isinstance(inputs, tuple) else inputs
        flat = keras.tree.flatten(inputs)
        scaled = [
            x if factor is None else x * keras.ops.cast(factor, x.dtype)
            for x, factor in zip(flat, self._factors, strict=True)
        ]
        given = keras.tree.pack_sequence_as(inputs, scaled)
        arguments = {"training": training} if self._layer._call_has_training_arg else {}
        outputs = _call(self._layer, given, {**arguments, **self._call_arguments})
        for output in keras.tree.flatten(outputs):
            if keras.backend.is_float_dtype(output.dtype):
                # Different weights: sums and squares of normalized values are constants.
                weights = np.random.default_rng(1).normal(size=output.shape)
                self.add_loss(keras.ops.sum(output * keras.ops.cast(weights, output.dtype)))
        return outputs


def _check_training(strategy, layer, shapes, dtypes, call_arguments) -> None:
    """All weights learn on the IPU, also those before the layer."""
    # The weights are made when the layer is called: that is part of what is tested.
    with strategy.scope():
        model = Trained(layer(), shapes, dtypes, call_arguments)
        model.compile(optimizer=keras.optimizers.SGD(0.1))
    # Of batches as they are: not every layer has the batch as its first axis.
    inputs = _data(shapes, dtypes)
    inputs = tuple(inputs) if isinstance(inputs, list) else inputs
    data = tf.data.Dataset.from_tensors((inputs,)).repeat(2)
    losses, weights = [], []
    for _ in range(2):
        history = model.fit(data, steps_per_epoch=1, shuffle=False, verbose=0)
        losses.extend(history.history["loss"])
        weights.append([weight.numpy() for weight in model.trainable_weights])
    assert np.all(np.isfinite(losses))
    assert losses[0] != losses[1]
    for variable, before, after in zip(model.trainable_weights, *weights, strict=True):
        assert not np.array_equal(before, after), variable.path
    assert {weight.value.device for weight in model.weights} == {strategy.device.name}


def _assert_equal(actual: Any, expected: Any, tolerance: float) -> None:
    keras.tree.assert_same_structure(actual, expected)
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
