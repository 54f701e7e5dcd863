import collections
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same

from ipu_keras.keras.extensions import PipelineStage
from ipu_keras.keras.extensions.call_observer import attach_call_observer, in_stages, recorded_calls
from ipu_keras.keras.extensions.layer_calls import functional_calls


def dense(name, **options):
    return keras.layers.Dense(2, name=name, **options)


def functional():
    """Stages 0, 1, 2 with a shared layer, a nested model, an operation, and a skip connection."""
    inside = keras.Input([2])
    nested = keras.Sequential([keras.Input([2]), dense("c"), dense("d")], name="inner")
    outer = keras.Model(inside, nested(dense("b")(inside)), name="outer")
    inputs, shared = keras.Input([2]), dense("shared")
    with PipelineStage(0):
        first = dense("a")(shared(inputs))
    with PipelineStage(1):
        x = outer(keras.ops.multiply(first, 2.0))
    with PipelineStage(2):
        outputs = keras.layers.Add(name="add")([dense("last")(shared(x)), first])
    return keras.Model(inputs, outputs)


# How often layers are called in each stage. The first of each model takes its inputs.
FUNCTIONAL = {
    "shared": {0: 1, 2: 1},
    "a": {0: 1},
    "b": {1: 1},
    "c": {1: 1},
    "d": {1: 1},
    "last": {2: 1},
}


def sequential():
    shared = dense("shared")
    inner = keras.Sequential([dense("b"), dense("c")], name="inner")
    model = keras.Sequential([dense("a"), shared, inner, shared])
    model.build((None, 2))
    model.set_pipeline_stage_assignment([0, 0, 1, 2])
    return model


SEQUENTIAL = {"a": {0: 1}, "shared": {0: 1, 2: 1}, "b": {1: 1}, "c": {1: 1}}


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.shared = dense("a"), dense("shared")
        inside = keras.Input([2])
        self.nested = keras.Model(inside, dense("b")(inside))

    def call(self, inputs):
        with PipelineStage(0):
            x = self.shared(tf.nn.relu(self.a(inputs)))
        with PipelineStage(1):
            return self.nested(self.shared(x)) + inputs


SUBCLASS = {"a": {0: 1}, "shared": {0: 1, 1: 1}, "b": {1: 1}}


def subclass():
    model = Subclass()
    model(np.zeros((4, 2), np.float32))
    return model


@pytest.fixture
def made(strategy, request):
    """A model, and how often its layers are in each stage."""
    build, expected = request.param
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build()
        model.compile("sgd", "mse")
    return model, expected


models = pytest.mark.parametrize(
    "made",
    [(functional, FUNCTIONAL), (sequential, SEQUENTIAL), (subclass, SUBCLASS)],
    indirect=True,
    ids=["functional", "sequential", "subclass"],
)


def gradients(model, step):
    """A function of data: the outputs of a model and the gradients of its weights."""

    def outputs_and_gradients(x):
        with tf.GradientTape() as tape:
            outputs = step(x)
            loss = tf.reduce_sum(outputs**2)
        return outputs, tape.gradient(loss, model.trainable_weights)

    return tf.function(outputs_and_gradients, autograph=False)


def traced(model):
    function = gradients(model, model._ipu.in_stages(lambda x: model(x, training=True)))
    return function.get_concrete_function(tf.TensorSpec((4, 2))).graph


def stages_of(operations):
    """How often layers are in each stage, by the names of operations."""
    found = collections.defaultdict(collections.Counter)
    for operation in operations:
        match = re.search(
            r"(?:^|/)pipeline_stage_(\d+)/(?:inner_\d+/)?([a-z]+)(_\d+)?/", operation.name
        )
        assert match, operation.name
        found[match[2]][int(match[1])] += 1
    return found


def doubled(stages):
    return {
        layer: {stage: 2 * count for stage, count in counts.items()}
        for layer, counts in stages.items()
    }


@models
def test_every_product_and_its_gradients_are_in_the_stage_of_the_call(strategy, made):
    model, expected = made
    with strategy.scope():
        products = [op for op in traced(model).get_operations() if op.type == "MatMul"]
    backward = [op for op in products if op.name.startswith("gradient_tape/")]
    assert stages_of([op for op in products if op not in backward]) == expected
    # One of the weights and one of what came in, but for the inputs of the model.
    of_both = doubled(expected)
    of_both[next(iter(expected))][0] -= 1
    assert stages_of(backward) == of_both


@models
def test_numbers_and_names_stay(strategy, made):
    model, _ = made
    x = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
    before = [(variable.path, variable.value.name) for variable in model.variables]
    plain = gradients(model, model)
    staged = gradients(model, model._ipu.in_stages(model))
    expected, actual = (strategy.run(function, [x]) for function in (plain, staged))
    assert_same(actual, expected, tolerance=0)
    assert [(variable.path, variable.value.name) for variable in model.variables] == before


def test_operations_that_are_no_layers(strategy):
    with strategy.scope():
        graph = traced(functional())
    names = [op.name for op in graph.get_operations() if op.type == "Mul"]
    of_stage = [name for name in names if name.endswith("/pipeline_stage_1/Mul")]
    assert [name.startswith("gradient_tape/") for name in of_stage] == [False, True]


def test_what_surrounds_the_layer_is_in_its_stage(strategy):
    """A cast of the inputs and a loss of the activities, which are not part of its `call`."""
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(0):
            x = dense("a", activity_regularizer="l2")(inputs)
        with PipelineStage(1):
            model = keras.Model(inputs, dense("b", dtype="mixed_float16")(x))
        operations = traced(model).get_operations()
    casts = [op.name for op in operations if op.type == "Cast" and op.inputs[0].shape == (4, 2)]
    assert any("/pipeline_stage_1/Cast" in name for name in casts)
    assert any("/pipeline_stage_0/a" in op.name for op in operations if op.type == "Square")


def test_a_model_that_is_called_twice(strategy):
    with strategy.scope():
        model = functional()
        calls = functional_calls(model)

        @tf.function
        def twice(x):
            with in_stages(model, calls, [call.stage for call in calls]):
                return model(x) + model(x)

        graph = twice.get_concrete_function(tf.TensorSpec((4, 2))).graph
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    assert stages_of(products) == doubled(FUNCTIONAL)


class Repeating(keras.Model):
    def __init__(self):
        super().__init__()
        self.a = dense("a")

    def call(self, x, training=False):
        x = self.a(self.a(x))
        return self.a(x) if training else x


def test_a_call_that_was_not_known_is_in_the_last_known_stage(strategy):
    with strategy.scope():
        model = Repeating()
        model(np.zeros((4, 2), np.float32))
        model.set_pipeline_stage_assignment([0, 1])
        products = [op for op in traced(model).get_operations() if op.type == "MatMul"]
    forward = [op for op in products if not op.name.startswith("gradient_tape/")]
    assert stages_of(forward) == {"a": {0: 1, 1: 2}}


def test_without_stages_nothing_is_named(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        graph = traced(keras.Model(inputs, dense("a")(inputs)))
    assert not any("pipeline" in operation.name for operation in graph.get_operations())


# Recording


def recorded(model, **kwargs):
    calls = recorded_calls(model, (keras.KerasTensor((4, 2)),), kwargs)
    return [
        (
            call.operation.name,
            call.node_index,
            call.stage,
            [calls[position].operation.name for position in call.inbound],
        )
        for call in calls
    ]


def test_the_calls_of_a_subclass(strategy):
    with strategy.scope():
        assert recorded(subclass()) == [
            ("a", 0, 0, []),
            ("shared", 0, 0, ["a"]),
            ("shared", 1, 1, ["shared"]),
            ("b", 0, 1, ["shared"]),
        ]


class PassingOn(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = dense("a"), dense("b")
        self.dropout = keras.layers.Dropout(0.5, name="dropout")

    def call(self, inputs, training=False):
        x = self.a(inputs)
        return self.dropout(x, training=training), self.b(x)


@pytest.mark.parametrize("training", [False, True])
def test_a_layer_that_passes_its_input_on_is_no_maker_of_it(strategy, training):
    with strategy.scope():
        model = PassingOn()
        model(np.zeros((4, 2), np.float32))
    seed = [variable.numpy() for variable in model.dropout.variables]
    assert recorded(model, training=training) == [
        ("a", 0, None, []),
        ("dropout", 0, None, ["a"]),
        ("b", 0, None, ["a"]),
    ]
    np.testing.assert_array_equal(seed, [v.numpy() for v in model.dropout.variables])


class WithNested(keras.Model):
    def __init__(self):
        super().__init__()
        inside = keras.Input([2])
        with PipelineStage(0):
            x = dense("a")(inside)
        with PipelineStage(1):
            self.nested = keras.Model(inside, dense("b")(x))
        with PipelineStage(2):
            self.last = dense("c")

    def call(self, inputs):
        return self.last(self.nested(inputs))


def test_the_scopes_of_a_nested_model(strategy):
    with strategy.scope():
        model = WithNested()
        model(np.zeros((4, 2), np.float32))
        assert [entry[:3] for entry in recorded(model)] == [("a", 0, 0), ("b", 0, 1), ("c", 0, 2)]


class Wrapping(keras.layers.Layer):
    def __init__(self):
        super().__init__(name="wrapping")
        self.inner = dense("inner")

    def call(self, x):
        return self.inner(x)


class WithWrapping(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = Wrapping()

    def call(self, x):
        return self.layer(x)


def test_layers_in_layers_are_a_part_of_these(strategy):
    with strategy.scope():
        model = WithWrapping()
        model(np.zeros((4, 2), np.float32))
    assert recorded(model) == [("wrapping", 0, None, [])]


def test_attaching_twice_changes_nothing():
    before = keras.Layer.__call__, keras.Operation.__call__
    attach_call_observer()
    assert (keras.Layer.__call__, keras.Operation.__call__) == before
