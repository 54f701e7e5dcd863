"""Operations that are computed as the nodes by which ONNX defines them."""

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import helper
from onnx.reference import ReferenceEvaluator

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.operations import expansion
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.operation import Operation

KINDS = sorted({each.kind for each in vars(expansion).values() if isinstance(each, Operation)})
RANDOM = np.random.default_rng(0)


def f32(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def model_of(kind, inputs, outputs, opset, **attributes):
    names = [f"x{i}" if each is not None else "" for i, each in enumerate(inputs)]
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if n
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    made = helper.make_node(kind, names, outputs, **attributes)
    graph = helper.make_graph([made], "graph", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def computed(model, inputs):
    feeds = {f"x{i}": each for i, each in enumerate(inputs) if each is not None}
    with tf.device("CPU:0"):
        results = outputs_of(load(model.SerializeToString()).model, feeds)
    expected = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(each) for each in results], expected


QUERY, KEY, VALUE = f32(1, 2, 3, 4), f32(1, 2, 5, 4), f32(1, 2, 5, 4)

CASES = {
    "window": ("HannWindow", [np.array(6)], 17, {"periodic": 0}),
    "attention": ("Attention", [QUERY, KEY, VALUE], 23, {"is_causal": 1}),
    "masked": ("Attention", [QUERY, KEY, VALUE, f32(3, 5)], 23, {"scale": 0.5}),
    "newer attention": ("Attention", [QUERY, KEY, VALUE], 25, {"left_window_size": 1}),
    "rotary": ("RotaryEmbedding", [QUERY, f32(1, 3, 2), f32(1, 3, 2)], 23, {"interleaved": 1}),
    "gated": ("SwiGLU", [f32(2, 3), f32(2, 3)], 28, {"alpha": 1.5}),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_reference(name):
    kind, inputs, opset, attributes = CASES[name]
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("The installed onnx does not describe it.")
    model = model_of(kind, inputs, ["y"], opset, **attributes)
    (result,), (expected,) = computed(model, inputs)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_results_between_may_be_left_out():
    inputs = [QUERY, KEY, VALUE]
    model = model_of("Attention", inputs, ["y", "", "", "scores"], 23)
    for result, expected in zip(*computed(model, inputs), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_an_input_that_is_missing_is_refused():
    model = model_of("RotaryEmbedding", [QUERY], ["y"], 23)
    with pytest.raises(popart_exception, match=r"invalid number of inputs 1\. Must be between 3"):
        computed(model, [QUERY])


def test_what_is_computed_as_a_whole_is_not_expanded():
    """Those with functions of their own cost less, and are not listed twice."""
    assert "LayerNormalization" not in KINDS
    assert {"Attention", "RotaryEmbedding"} <= set(KINDS)
