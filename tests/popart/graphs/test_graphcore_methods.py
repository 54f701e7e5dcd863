"""Every method of ai.graphcore adds its operation."""

import inspect

import numpy as np
import onnx
import pytest
from graphcore_calls import GRAPHCORE_CALLS, graphcore_called, inputs

from ipu_keras.popart.builder import Builder
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.graphcore_methods import GRAPHCORE_METHODS
from ipu_keras.popart.graphs.opsets import AiGraphcoreOpset1
from ipu_keras.popart.model.graph import AI_GRAPHCORE
from ipu_keras.popart.operations.table import OPERATIONS
from ipu_keras.popart.options.enumerations import (
    CommGroupType,
    DataType,
    InitType,
    ReductionType,
)
from ipu_keras.popart.options.settings import CommGroup


def test_there_are_41_of_them():
    methods = {
        name
        for name, _ in inspect.getmembers(AiGraphcoreOpset1, inspect.isfunction)
        if not name.startswith("_") and name != "add_operation"
    }
    assert methods == {*GRAPHCORE_METHODS, "multiconv"} == set(GRAPHCORE_CALLS)
    assert len(methods) == 41


@pytest.mark.parametrize("name", GRAPHCORE_CALLS)
def test_each_makes_a_model(name):
    builder = Builder()
    results = graphcore_called(builder, name)
    kind = "MultiConv" if name == "multiconv" else GRAPHCORE_METHODS[name].kind
    assert results == [f"{kind}:{position}" for position in range(len(results))]
    if (AI_GRAPHCORE, kind) in OPERATIONS:
        shapes = [builder.getTensorShape(each) for each in results]
        assert shapes == GRAPHCORE_CALLS[name][1]
        for id_ in results:
            builder.addOutputTensor(id_)
        onnx.checker.check_model(builder.getModelProto())


@pytest.mark.parametrize("method", GRAPHCORE_METHODS.values(), ids=lambda each: each.name)
def test_operations_take_what_methods_write(method):
    for operation in OPERATIONS.get((method.domain, method.kind), ()):
        written = {each.name for each in (*method.attributes, *method.last)}
        assert written <= set(operation.attributes)


def test_a_word_of_python_as_an_argument():
    builder = Builder()
    (x,) = inputs(builder, (2, 3))
    results = [
        builder.aiGraphcore.l1loss([x], 0.5),
        builder.aiGraphcore.l1loss([x], lambda_=0.5),
        builder.aiGraphcore.l1loss([x], **{"lambda": 0.5}),
    ]
    assert {builder.getFloatNodeAttribute("lambda", {each}) for each in results} == {0.5}
    assert builder.getStringNodeAttribute("reduction", {results[0]}) == "Mean"


def test_two_names_of_one_argument():
    builder = Builder()
    (x,) = inputs(builder, (2, 3))
    builder.aiGraphcore.gelu([x], debugPrefix="a")
    builder.aiGraphcore.gelu([x], debugContext="b")
    assert [node.name for node in builder.draft.nodes] == ["a", "b"]
    with pytest.raises(popart_exception, match="`debugPrefix` is another name of `debugContext`"):
        builder.aiGraphcore.gelu([x], "a", debugPrefix="b")


def test_init_says_its_dtype_as_onnx_does():
    builder = Builder()
    aiGraphcore = builder.aiGraphcore
    first = aiGraphcore.init([2], DataType.INT32, InitType.NoInit, "name")
    second = aiGraphcore.init([2], onnx.TensorProto.INT32, InitType.NoInit, 0, "name")
    numbers = [builder.getInt64NodeAttribute("data_type", {id_}) for id_ in (first, second)]
    assert numbers == [onnx.TensorProto.INT32] * 2
    assert not builder.nodeHasAttribute("batch_axis", {first})
    assert builder.getInt64NodeAttribute("batch_axis", {second}) == 0
    assert [node.name for node in builder.draft.nodes] == ["name", "name"]


@pytest.mark.parametrize(
    ("name", "given", "arguments", "error", "text"),
    [
        ("gelu", [], {}, popart_exception, "Gelu has invalid number of inputs 0. Must be betw"),
        ("l1loss", [(2,)], {"lambda_": 1.0, "reduction": 1}, popart_exception, "ReductionType"),
        ("scatterreduce", [(2,), (2,)], {}, TypeError, "missing the argument 'axis_size'"),
        ("scale", [(2,)], {"scale": "a"}, popart_exception, "`scale` is a number"),
        ("ctcloss", [(2,)] * 4, {"outDataType": "X"}, popart_exception, "Unknown dtype 'X'"),
        ("multiconv", [(2,)], {}, popart_exception, "`args` of MultiConv has a list"),
    ],
)
def test_refused_calls(name, given, arguments, error, text):
    builder = Builder()
    ids = inputs(builder, *given)
    with pytest.raises(error, match=text):
        getattr(builder.aiGraphcore, name)(ids, **arguments)
    assert not builder.draft.nodes


def test_several_convolutions_are_written_one_after_the_other():
    builder = Builder()
    x, w = inputs(builder, (1, 2, 5, 5), (3, 2, 3, 3))
    results = builder.aiGraphcore.multiconv(
        [[x, w], [x, w]],
        strides=[[1, 1], [2, 2]],
        partialsTypes=["half", "float"],
        availableMemoryProportions=[0.1, 0.2],
        planType="serial",
        cycleBackOff=0.5,
    )
    (node,) = builder.draft.nodes
    assert list(node.input) == [x, w, "", x, w, ""]
    assert builder.getInt64VectorNodeAttribute("strides", results) == [1, 1, 2, 2]
    assert builder.getStringNodeAttribute("__plan_type", results) == "serial"
    assert set(builder.getAllNodeAttributeNames(results)) == {
        *("strides", "__partials_type", "__available_memory_proportion", "__plan_type"),
        "__cycle_back_off",
    }
    with pytest.raises(popart_exception, match="`pads` has to be empty, or to have an entry"):
        builder.aiGraphcore.multiconv([[x, w], [x, w]], pads=[[1, 1, 1, 1]])
    with pytest.raises(popart_exception, match="number of inputs 1 of a convolution"):
        builder.aiGraphcore.multiconv([[x]])
    with pytest.raises(popart_exception, match=r"must be in \(0,1\]\. Received: .*=\[1\.5\]"):
        builder.aiGraphcore.multiconv([[x, w]], availableMemoryProportions=[1.5])
    with pytest.raises(popart_exception, match=r"is 'float' or 'half'\. Received: .*=\['double'\]"):
        builder.aiGraphcore.multiconv([[x, w]], partialsTypes=["double"])


def test_losses_reduce_as_they_are_told():
    builder = Builder()
    (x,) = inputs(builder, np.ones((2, 3), np.float32))
    for reduction in ReductionType:
        loss = builder.aiGraphcore.identityloss([x], reduction)
        assert builder.getStringNodeAttribute("reduction", {loss}) == reduction.name


def test_groups_of_replicas_are_numbers_in_models():
    builder = Builder()
    (x,) = inputs(builder, (2,))
    y = builder.aiGraphcore.replicatedallreduce([x], CommGroup(CommGroupType.Orthogonal, 2))
    assert builder.getInt64VectorNodeAttribute("commGroup", {y}) == [2, 2]
