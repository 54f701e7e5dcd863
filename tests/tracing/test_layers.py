"""Which layer an operation's name belongs to."""

import pytest

from ipu_keras.ir import Op
from ipu_keras.tracing.layers import (
    LayerNames,
    LayerPlace,
    operation_path,
    with_inherited_places,
    with_place_of_caller,
)

# What a trace of the names below has, besides registered operations.
OPERATIONS = frozenset(
    {
        "mul",
        "model/conv/convolution",
        "model/dense/add",
        "model/rnn/while",
        "pipeline_stage_0/model/conv/convolution",
    }
)


@pytest.mark.parametrize(
    ("op_name", "path"),
    [
        ("model/dense/MatMul", "model/dense/MatMul"),
        ("while/StatefulPartitionedCall/model/dense/MatMul", "model/dense/MatMul"),
        ("PartitionedCall_3/StatelessPartitionedCall/dense/MatMul", "dense/MatMul"),
        ("model/dense/Softmax;while/StatefulPartitionedCall/model/dense/Softmax", None),
        ("StatefulPartitionedCall", "StatefulPartitionedCall"),
        ("XLA_Args", ""),
        ("XLA_Retvals", ""),
        ("", ""),
    ],
)
def test_calls_around_an_operation(op_name, path):
    assert operation_path(op_name) == (op_name.partition(";")[0] if path is None else path)


@pytest.mark.parametrize(
    ("path", "layer", "backward"),
    [
        ("sequential_1/dense_2_1/MatMul", "sequential_1/dense_2_1", False),
        ("adam/Mul_9", "adam", False),
        ("MatMul", "", False),
        # Scopes of the parts of a step are no layers.
        (
            "gradient_tape/pipeline_stage_0/model/conv/convolution/Conv2DBackpropFilter",
            "model/conv",
            True,
        ),
        ("weight_update/adam/Mul_9", "adam", False),
        ("gradient_tape/model/conv/convolution/Conv2DBackpropInput", "model/conv", True),
        # A registered operation, and one of the trace, are no layers...
        ("gradient_tape/model/dense/BiasAdd/BiasAddGrad", "model/dense", True),
        ("gradient_tape/model/dense/add/Sum_1", "model/dense", True),
        ("model/norm/batchnorm/mul_1", "model/norm", False),
        ("model/norm/moments/SquaredDifference", "model/norm", False),
        ("metrics/top/in_top_k/InTopKV2", "metrics/top", False),
        # ...but layers may have the names of operations elsewhere, and large letters.
        ("model/add/add", "model/add", False),
        ("model/Conv1/convolution", "model/Conv1", False),
        ("model/dropout_1/stateless_dropout/SelectV2", "model/dropout_1", False),
        # Cells are layers within a loop.
        ("model/rnn/while/cell_1/MatMul", "model/rnn/cell_1", False),
        ("model/rnn/while/TensorArrayV2Write_2/TensorListSetItem", "model/rnn", False),
        ("gradient_tape/model/rnn/while/model/rnn/while_grad/while", "model/rnn", True),
        (
            "gradient_tape/model/rnn/while/gradients/model/rnn/while/cell_1/MatMul_grad/MatMul_1",
            "model/rnn/cell_1",
            True,
        ),
        (
            "gradient_tape/model/rnn/while/gradients/model/rnn/while/cell/Tanh_1_0_grad/TanhGrad",
            "model/rnn/cell",
            True,
        ),
        ("model/block/cond/dense/Relu", "model/block/dense", False),
    ],
)
def test_layers_of_names(path, layer, backward):
    place = LayerNames(OPERATIONS).place(path)
    assert (place.layer, place.backward) == (layer, backward)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("model/dense/MatMul", LayerPlace("model/dense")),
        ("pipeline_stage_2/mul", LayerPlace("", stage=2)),
        # The scope of a stage is entered again.
        ("pipeline_stage_0_1/model/dense/MatMul", LayerPlace("model/dense", stage=0)),
        ("model/pipeline_stage_12_3/dense/MatMul", LayerPlace("model/dense", stage=12)),
        (
            "gradient_tape/pipeline_stage_1/model/dense/MatMul/MatMul_1",
            LayerPlace("model/dense", backward=True, stage=1),
        ),
        (
            "gradient_tape/pipeline_stage_1/rnn/while/pipeline_stage_1/rnn/while_grad/while",
            LayerPlace("rnn", backward=True, stage=1),
        ),
        ("weight_update/Add", LayerPlace("", weight_update=True)),
        ("weight_update_1/sgd/Sub_1", LayerPlace("sgd", weight_update=True)),
        # An operation of that name is no scope.
        ("dense/weight_update", LayerPlace("dense")),
        ("dense/pipeline_stage_1", LayerPlace("dense")),
    ],
)
def test_parts_of_a_step(path, place):
    assert LayerNames(OPERATIONS).place(path) == place


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        # The place of a loop's body is that of the loop, which is handed down.
        ("body_He4wU6CkfJ8/add", ""),
        ("body_He4wU6CkfJ8/ReduceLogSumExp_1/Max", ""),
        ("loss/body_He4wU6CkfJ8/scan/Max", "loss/scan"),
        # Another scope, and an operation, may have such a name.
        ("body_of_model/dense/MatMul", "body_of_model/dense"),
        ("dense/body_He4wU6CkfJ8", "dense"),
    ],
)
def test_functions_of_loops_are_no_layers(path, layer):
    names = LayerNames(OPERATIONS, functions={"body_He4wU6CkfJ8", "cond_Mxoz55ZgkIA"})
    assert names.place(path).layer == layer


def op(name, *inputs, kind="add", layer="", backward=False):
    return Op(name, kind, inputs=inputs, layer=layer, backward=backward)


def places(ops):
    return {o.name: (o.layer, o.backward) for o in ops}


def test_inherited_layers():
    #  x ---> r1 -> a (dense) ---> r2 -> out
    #               |
    #  w ---> a     +-> g (dense, backward) -> u (sgd)
    #  w ------------------------------------> u
    ops = (
        op("x", kind="parameter"),
        op("w", kind="parameter"),
        op("unused", kind="parameter"),
        op("r1", "x"),
        op("a", "r1", "w", layer="dense"),
        op("r2", "a"),
        op("g", "a", layer="dense", backward=True),
        op("both", "a", "g"),
        op("only_backward", "g:1", "g:0"),
        op("torn", "g", "other"),
        op("other", layer="loss"),
        op("u", "g", "w", layer="sgd"),
    )
    ordered = (*ops[:9], ops[10], ops[9], ops[11])
    unnamed = {"x", "w", "unused", "r1", "r2", "both", "only_backward", "torn"}
    inherited = with_inherited_places(ordered, unnamed)
    assert [o.name for o in inherited] == [o.name for o in ordered]
    assert places(inherited) == {
        "x": ("dense", False),
        "w": ("dense", False),  # its first user counts, not the optimizer
        "unused": ("", False),
        "r1": ("dense", False),
        "a": ("dense", False),
        "r2": ("dense", False),
        "g": ("dense", True),
        "both": ("dense", False),
        "only_backward": ("dense", True),
        "torn": ("", False),  # its operands disagree, and it has no users
        "other": ("loss", False),
        "u": ("sgd", False),
    }
    # A name without a scope is an answer too.
    assert with_inherited_places(ordered, ()) == ordered


def test_inherited_stages():
    ops = (
        op("w", kind="parameter"),
        Op("a", "add", inputs=("w",), layer="shared", stage=0),
        Op("b", "add", inputs=("w",), layer="shared", stage=1),
        op("of_a", "a"),
        op("of_both", "a", "b"),
        Op("u", "add", inputs=("of_both",), weight_update=True),
        op("of_update", "u"),
    )
    inherited = with_inherited_places(ops, {"w", "of_a", "of_both", "of_update"})
    assert {o.name: (o.layer, o.stage, o.weight_update) for o in inherited} == {
        "w": ("shared", 0, False),
        "a": ("shared", 0, False),
        "b": ("shared", 1, False),
        "of_a": ("shared", 0, False),
        "of_both": ("shared", None, False),
        "u": ("", None, True),
        "of_update": ("", None, True),
    }


def test_called_graphs_are_in_the_stage_that_calls_them():
    body = (op("a"), op("b", layer="cell"), Op("c", "add", layer="cell", stage=1))
    caller = Op("while", "while", layer="rnn", stage=2, weight_update=True)
    found = with_place_of_caller(body, caller)
    assert [(o.layer, o.stage, o.weight_update) for o in found] == [
        ("rnn", 2, True),
        ("cell", 2, True),
        ("cell", 1, True),
    ]


def test_called_graphs_belong_to_the_layer_that_calls_them():
    body = (op("a"), op("b", "a", layer="rnn/cell"), op("c", "b"))
    caller = op("while", kind="while", layer="rnn", backward=True)
    assert places(with_place_of_caller(body, caller)) == {
        "a": ("rnn", True),
        "b": ("rnn/cell", False),
        "c": ("rnn", True),
    }
