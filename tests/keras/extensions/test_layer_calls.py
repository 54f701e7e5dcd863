import keras

from ipu_keras.keras.extensions import PipelineStage
from ipu_keras.keras.extensions.layer_calls import functional_calls, graph_of, sequential_calls


def dense(name):
    return keras.layers.Dense(2, name=name)


def described(calls):
    """(name, call, stage, names of the calls before) of each."""
    return [
        (
            call.operation.name,
            call.node_index,
            call.stage,
            [calls[position].operation.name for position in call.inbound],
        )
        for call in calls
    ]


def test_a_functional_model_with_a_shared_layer_and_a_skip_connection(strategy):
    #  inputs ─ a ─ b ─ a ─ add
    #           └────────────┘
    inputs, a, b = keras.Input([2]), dense("a"), dense("b")
    with strategy.scope(), PipelineStage(0):
        first = a(inputs)
    with strategy.scope(), PipelineStage(1):
        last = keras.layers.Add(name="add")([a(b(first)), first])
    assert described(functional_calls(keras.Model(inputs, last))) == [
        ("a", 0, 0, []),
        ("b", 0, 1, ["a"]),
        ("a", 1, 1, ["b"]),
        ("add", 0, 1, ["a", "a"]),
    ]


def test_a_call_beats_construction(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(1):
            a, b = dense("a"), dense("b")
        with PipelineStage(0):
            x = a(inputs)
        model = keras.Model(inputs, b(x))
    assert [call.stage for call in functional_calls(model)] == [0, 1]


def nested(called_in, strategy):
    with strategy.scope():
        inside = keras.Input([2])
        with PipelineStage(3):
            middle = dense("called")(inside)
            made = dense("made")
        model = keras.Model(inside, dense("bare")(made(middle)), name="model")
        inputs = keras.Input([2])
        if called_in is None:
            return keras.Model(inputs, dense("last")(model(dense("first")(inputs))))
        with PipelineStage(called_in):
            return keras.Model(inputs, model(inputs))


def test_layers_of_a_nested_model_take_its_place(strategy):
    assert described(functional_calls(nested(None, strategy))) == [
        ("first", 0, None, []),
        ("called", 0, 3, ["first"]),
        ("made", 0, 3, ["called"]),
        ("bare", 0, None, ["made"]),
        ("last", 0, None, ["bare"]),
    ]


def test_calling_a_model_assigns_all_its_layers(strategy):
    assert [call.stage for call in functional_calls(nested(1, strategy))] == [1, 1, 1]


def test_making_a_model_counts_least(strategy):
    with strategy.scope():
        inside, last = keras.Input([2]), dense("b")
        with PipelineStage(2):
            a = dense("a")
        middle = a(inside)
        outputs = last(middle)
        with PipelineStage(1):
            model = keras.Model(inside, outputs)
        outer = keras.Model(inputs := keras.Input([2]), model(inputs))
    assert [call.stage for call in functional_calls(outer)] == [2, 1]


def test_a_nested_model_that_is_called_twice():
    inside = keras.Input([2])
    model = keras.Model(inside, dense("a")(inside))
    inputs = keras.Input([2])
    calls = functional_calls(keras.Model(inputs, dense("b")(model(model(inputs)))))
    assert described(calls) == [("a", 0, None, []), ("a", 0, None, ["a"]), ("b", 0, None, ["a"])]
    assert [call.inbound for call in calls] == [(), (0,), (1,)]


def test_several_inputs_and_outputs_of_a_nested_model():
    left, right = keras.Input([2]), keras.Input([2])
    model = keras.Model([left, right], [dense("l")(left), dense("r")(right)])
    first, second = keras.Input([2]), keras.Input([2])
    one, other = model([dense("a")(first), dense("b")(second)])
    calls = functional_calls(keras.Model([first, second], [dense("x")(one), dense("y")(other)]))
    assert {name: before for name, _, _, before in described(calls)} == {
        "a": [],
        "b": [],
        "l": ["a"],
        "r": ["b"],
        "x": ["l"],
        "y": ["r"],
    }


def test_operations_that_are_no_layers(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        x = keras.ops.relu(dense("a")(inputs))
        with PipelineStage(1):
            x = x + 1.0
        calls = functional_calls(keras.Model(inputs, dense("b")(x)))
    assert [(call.is_layer, call.stage) for call in calls] == [
        (True, None),
        (False, None),
        (False, 1),
        (True, None),
    ]


class Own(keras.Sequential):
    def call(self, inputs):
        return super().call(inputs)


def test_what_counts_as_one_layer():
    inside = keras.Input([2])
    assert graph_of(keras.Model(inside, dense("a")(inside))) is not None
    assert graph_of(keras.Sequential([keras.Input([2]), dense("a")])) is not None
    assert graph_of(keras.Sequential([dense("a")])) is None  # not built
    assert graph_of(Own([keras.Input([2]), dense("a")])) is None
    assert graph_of(dense("a")) is None
    assert graph_of(keras.Operation()) is None


def test_a_sequential_model_in_a_functional_one(strategy):
    with strategy.scope():
        with PipelineStage(0):
            first, second = keras.Input([2]), dense("a")
        model = keras.Sequential([first, second])
        with PipelineStage(1):
            model.add(dense("b"))  # calls `a` again
        inputs = keras.Input([2])
        calls = functional_calls(keras.Model(inputs, model(inputs)))
    assert [(call.operation.name, call.stage) for call in calls] == [("a", 0), ("b", 1)]


def test_a_sequential_model(strategy):
    shared = dense("shared")
    with strategy.scope():
        with PipelineStage(0):
            first = dense("first")
        inner = keras.Sequential([keras.Input([2]), dense("inner")], name="nested")
        model = keras.Sequential([first, shared, inner, shared])
    expected = [
        ("first", 0, 0, []),
        ("shared", 0, None, ["first"]),
        ("nested", 0, None, ["shared"]),
        ("shared", 1, None, ["nested"]),
    ]
    assert described(sequential_calls(model)) == expected
    model.build((None, 2))
    assert described(sequential_calls(model)) == expected
