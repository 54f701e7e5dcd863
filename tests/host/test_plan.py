"""The choice of the host's execution, on graphs that are built by hand, and on models.

What is asked here holds for every choice there is: which of several right ones
is the fastest is measured in the benchmarks.
"""

import dataclasses
import itertools

import keras
import models
import pytest
import tensorflow as tf

from ipu_keras.host.operation_kinds import CONVOLUTIONS
from ipu_keras.host.plan import HostExecution, plan_host
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.program import OutfeedMode, Program
from ipu_keras.tracing import graph_of

# The weights that every operation uses, and that training writes.
WEIGHTS = Op("weights", "Placeholder", (TensorSpec((), "resource"),))
MATMUL = Op("dense/MatMul", "MatMul", inputs=("weights",))
CONVOLUTION = Op("conv2d/convolution", "Conv2D", inputs=("weights",))
CONVOLUTION_GRADIENT = Op("conv2d/gradient", "Conv2DBackpropFilter", inputs=("weights",))
BIAS = Op("conv2d/BiasAdd", "BiasAdd", inputs=("conv2d/convolution", "weights"))
# Two passes over the images, of which the first takes a number for each channel.
RSQRT = Op("batch_normalization/Rsqrt", "Rsqrt", inputs=("weights",))
SCALE = Op("batch_normalization/mul", "Mul", inputs=(BIAS.name, RSQRT.name))
SHIFT = Op("batch_normalization/add", "AddV2", inputs=(SCALE.name, "weights"))
NORMALIZATION = (BIAS, RSQRT, SCALE, SHIFT)
RELU = Op("conv2d/Relu", "Relu", inputs=(BIAS.name,))
ASSIGN = Op("assign", "AssignAddVariableOp", stateful=True, inputs=("weights",))

# Their steps may run in any order, so they carry nothing from one to the next.
OUT_OF_ORDER = {HostExecution.PARALLEL_LOOP}


def nested(*ops):
    """A graph with these operations in the body of a loop."""
    loop = Op("while", "While", body=("cond", "body"), inputs=("weights",))
    return Graph("step", (WEIGHTS, loop), {"cond": Graph("cond", ()), "body": Graph("body", ops)})


def flat(*ops):
    return Graph("step", (WEIGHTS, *ops))


def choose(graph, onednn=False, **options):
    arguments = {"name": "train", "step": print, "infeed": (), "unflatten": tuple}
    program = Program(**{**arguments, "repeat_count": 8, **options})
    return plan_host(program, graph, onednn=onednn)


EVERY_CASE = list(
    itertools.product(
        [flat, nested],
        [(MATMUL,), (CONVOLUTION,), (ASSIGN,), (MATMUL, ASSIGN), (CONVOLUTION, ASSIGN), ()],
        [None, True, False],
        list(OutfeedMode),
        [1, 3, 32],
    )
)


def test_every_case():
    for case in EVERY_CASE:
        build, ops, compiled, mode, repeat_count = case
        graph = build(*ops)
        chosen = choose(graph, compiled=compiled, outfeed_mode=mode, repeat_count=repeat_count)

        assert chosen.executions, case
        assert len(set(chosen.executions)) == len(chosen.executions), case
        assert chosen.reason, case
        # Something is left when XLA lacks an operation.
        assert not chosen.executions[-1].is_compiled, case
        if ASSIGN in ops:
            assert not OUT_OF_ORDER & set(chosen.executions), case
        if compiled is not None:
            assert chosen.executions[0].is_compiled is compiled, case
        if compiled is False:
            assert not any(execution.is_compiled for execution in chosen.executions), case
        # The rest of the value is handed on.
        assert chosen.graph is graph, case
        assert chosen.program.compiled is compiled, case


@pytest.mark.parametrize("build", [flat, nested])
def test_a_convolution_is_no_part_of_a_compiled_loop(build):
    chosen = choose(build(MATMUL, CONVOLUTION, ASSIGN))
    assert HostExecution.COMPILED_LOOP not in chosen.executions
    assert "convolution conv2d/convolution" in chosen.reason


@pytest.mark.parametrize("kind", sorted(CONVOLUTIONS))
def test_kinds_of_convolutions(kind):
    assert (
        HostExecution.COMPILED_LOOP
        not in choose(flat(Op("c", kind, inputs=("weights",)), ASSIGN)).executions
    )


@pytest.mark.parametrize("build", [flat, nested])
def test_training_without_convolution_is_compiled(build):
    chosen = choose(build(MATMUL, ASSIGN), repeat_count=32)
    assert chosen.executions[0].is_compiled
    assert "no convolution" in chosen.reason


@pytest.mark.parametrize("compiled", [True, False])
def test_what_was_asked_for_is_the_reason(compiled):
    assert f"jit_compile={compiled}" in choose(flat(CONVOLUTION), compiled=compiled).reason


def test_reads_and_calls_carry_no_state():
    read = Op("read", "ReadVariableOp")
    call = Op("call", "StatefulPartitionedCall", body=("f",))
    graph = Graph("step", (read, call), {"f": Graph("f", (MATMUL,))})
    assert set(choose(graph).executions) & OUT_OF_ORDER


def test_a_state_in_a_function_that_nothing_calls():
    graph = Graph("step", (MATMUL,), {"f": Graph("f", (ASSIGN,))})
    assert choose(graph) == choose(Graph("step", (MATMUL,), {"f": Graph("f", (ASSIGN,))}))
    assert set(choose(graph).executions) & OUT_OF_ORDER


@pytest.mark.parametrize("compiled", [None, True])
def test_a_compiled_convolution_stands_outside_of_loops(compiled):
    for ops in itertools.permutations([CONVOLUTION, ASSIGN, RSQRT]):
        chosen = choose(flat(*ops), compiled=compiled)
        assert HostExecution.COMPILED_LOOP not in chosen.executions


@pytest.mark.parametrize("build", [flat, nested])
def test_normalized_convolutions_are_compiled_for_inference_without_onednn(build):
    inference = build(CONVOLUTION, *NORMALIZATION)
    assert choose(inference).executions[0].is_compiled
    assert choose(inference).reason == "convolution conv2d/convolution and what follows it"
    assert not choose(inference, onednn=True).executions[0].is_compiled
    training = build(CONVOLUTION, *NORMALIZATION, CONVOLUTION_GRADIENT)
    assert not choose(training).executions[0].is_compiled


LONE_RSQRT = Op("lone", "Rsqrt", inputs=("dense/MatMul",))
PLAIN = Op("plain/convolution", "Conv2D", inputs=("weights",))
SIGMOID = Op("sigmoid", "Sigmoid", inputs=(BIAS.name,))
SWISH = Op("swish", "Mul", inputs=(BIAS.name, "sigmoid"))


@pytest.mark.parametrize(
    ("ops", "spares"),
    [
        # TensorFlow does these along with the convolution.
        ((CONVOLUTION, BIAS, RELU), False),
        # Of numbers that are no images.
        ((CONVOLUTION, BIAS, RELU, MATMUL, LONE_RSQRT), False),
        ((CONVOLUTION, BIAS, SIGMOID), True),
        ((CONVOLUTION, PLAIN, BIAS, SIGMOID), False),
        ((CONVOLUTION, PLAIN, BIAS, SIGMOID, SWISH), True),
    ],
    ids=["relu", "lone rsqrt", "one pass", "half a pass", "two in two"],
)
def test_passes_over_images_are_what_xla_spares(ops, spares):
    assert choose(flat(*ops)).executions[0].is_compiled is spares


def with_a_lone_rsqrt():
    features = models.cnn32()
    shrink = keras.layers.Lambda(lambda x: x * tf.math.rsqrt(1.0 + x * x))
    return keras.Model(features.inputs, shrink(features.outputs[0]))


@pytest.mark.parametrize(
    ("build", "compiled"),
    [
        (models.cnn28, False),
        (models.cnn32, False),
        (models.cnn32_batch_norm, True),
        (with_a_lone_rsqrt, False),
    ],
)
def test_inference_of_models_with_convolutions(build, compiled):
    model = build()
    spec = tf.TensorSpec((32, *model.inputs[0].shape[1:]))
    predict = tf.function(lambda x: model(x, training=False), autograph=False)
    graph = graph_of(predict.get_concrete_function(spec))
    assert choose(graph).executions[0].is_compiled is compiled
    assert not choose(graph, onednn=True).executions[0].is_compiled


def test_steps_without_state_are_not_kept_in_one_loop():
    assert choose(flat(MATMUL)).executions[0] is HostExecution.COMPILED_STEPS


def test_a_single_batch_is_one_program_of_xla():
    first = {n: choose(flat(MATMUL), repeat_count=1, num_replicas=n).executions[0] for n in (1, 2)}
    assert first == {1: HostExecution.COMPILED_LOOP, 2: HostExecution.COMPILED_STEPS}
    assert choose(flat(MATMUL, ASSIGN)).executions[0] is HostExecution.COMPILED_LOOP


# -- in two parts --------------------------------------------------------------

METRIC = Op("metric", "Placeholder", (TensorSpec((), "resource"),))
OUTPUTS = TensorSpec((4, 3), "float32")


def evaluation(*model, taken="dense/MatMul"):
    """A step whose metric adds up what a model computes."""
    add = Op("add", "AssignAddVariableOp", stateful=True, inputs=("metric", taken))
    read = Op("read", "ReadVariableOp", (OUTPUTS,), inputs=("metric",), after=("add",))
    return Graph("step", (WEIGHTS, METRIC, *model, add, read), {})


@pytest.mark.parametrize("compiled", [None, True, False])
def test_the_model_of_an_evaluation_runs_out_of_order(compiled):
    matmul = dataclasses.replace(MATMUL, outputs=(OUTPUTS,))
    chosen = choose(evaluation(matmul), compiled=compiled)
    assert chosen.sequential == {"add", "read"}
    assert HostExecution.PARALLEL_LOOP in chosen.executions
    assert HostExecution.COMPILED_LOOP not in chosen.executions


def test_a_step_is_split_only_for_heavy_operations_and_several_steps():
    matmul = dataclasses.replace(MATMUL, outputs=(OUTPUTS,))
    light = Op("dense/MatMul", "Tanh", (OUTPUTS,), inputs=("weights",))
    assert not choose(evaluation(light)).sequential
    assert not choose(evaluation(matmul), repeat_count=1).sequential


def test_a_heavy_operation_that_depends_on_the_metric():
    first = dataclasses.replace(MATMUL, outputs=(OUTPUTS,))
    second = Op("second", "MatMul", (OUTPUTS,), inputs=("dense/MatMul",), after=("add",))
    graph = evaluation(first)
    chosen = choose(dataclasses.replace(graph, ops=(*graph.ops, second)))
    assert not chosen.sequential
    assert not OUT_OF_ORDER & set(chosen.executions)


STATE = Op("state", "Placeholder", (TensorSpec((), "resource"),))


def dropout(*, after_seed):
    """A layer that drops at random; the generator's state waits for it unless `after_seed`."""
    seed = Op("seed", "ReadVariableOp", (OUTPUTS,), inputs=("state",))
    matmul = Op("dense/MatMul", "MatMul", (OUTPUTS,), inputs=("weights", "seed"))
    source = "seed" if after_seed else "dense/MatMul"
    advance = Op("advance", "AssignVariableOp", stateful=True, inputs=("state", source))
    return Graph("step", (WEIGHTS, STATE, seed, matmul, advance), {})


def test_random_numbers_are_drawn_before_anything_heavy():
    chosen = choose(dropout(after_seed=True))
    assert chosen.opening == {"state", "seed", "advance"}
    assert chosen.sequential == set()
    assert HostExecution.PARALLEL_LOOP in chosen.executions
    assert not choose(dropout(after_seed=True), repeat_count=1).opening


def test_a_state_that_waits_for_something_heavy():
    chosen = choose(dropout(after_seed=False))
    assert (chosen.opening, chosen.sequential) == (set(), set())
    assert not OUT_OF_ORDER & set(chosen.executions)


@pytest.mark.parametrize("build", [flat, nested])
@pytest.mark.parametrize("compiled", [None, True])
def test_what_runs_on_the_host_is_not_compiled(build, compiled):
    """Even if that was asked for, and in order, as nobody knows what else it does."""
    call = Op("user_op", "PyFunc", stateful=True, inputs=("weights",))
    chosen = choose(build(call), compiled=compiled)
    assert chosen.executions == (HostExecution.GRAPH_LOOP,)
    assert chosen.reason == "XLA lacks user_op"


def test_equal_programs_have_equal_plans():
    assert choose(flat(MATMUL, ASSIGN)) == choose(flat(MATMUL, ASSIGN))
    assert choose(flat(MATMUL, ASSIGN)) != choose(flat(MATMUL, ASSIGN), repeat_count=9)
