"""Graphcore's operations that print, end a run, or exchange with replicas."""

import numpy as np
import pytest
import replicas
import tensorflow as tf
from popart_graphs import WAYS, graph, ipu_node, one, onnx_node, results_of, run

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER, device_for
from ipu_keras.host import host_program as host
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.popart.exceptions import popart_exception, poplar_exception
from ipu_keras.program import OutfeedMode, Program

every_way = pytest.mark.parametrize("way", WAYS)
# XLA neither prints nor asserts: programs that do are left to TensorFlow.
with_effects = pytest.mark.parametrize("way", WAYS[:2])
# TensorFlow makes an error of its own of what a graph raises.
ENDED = (tf.errors.UnknownError, poplar_exception)
TEXT = "The program was aborted, as its node Abort 'stop' asks for"


@pytest.fixture(scope="module")
def device():
    """/device:IPU:0 with two IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    yield device_for(0)
    SYSTEM.reset()


def program_of(main, **options):
    """Three batches `(2,)` for each replica, of which all results are kept."""
    return Program(
        name="work",
        step=lambda elements: tuple(results_of(main, {"x": elements[0]}, narrows=True)),
        infeed=(TensorSpec((2,), "float32"),),
        unflatten=tuple,
        repeat_count=3,
        outfeed_mode=OutfeedMode.ALL,
        **options,
    )


def aborting(inputs):
    node = ipu_node("Abort", inputs, "")
    node = node.__class__(node.kind, node.domain, node.inputs, (), name="stop")
    return graph([node, ipu_node("Scale", "x", "y", scale=2.0)], "", "y")


@with_effects
@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32])
def test_a_condition_to_end_for(dtype, way):
    main, x = aborting("end"), np.float32([1])
    assert run(main, {"x": x, "end": np.array([0, 0], dtype)}, way)[0] == 2
    with pytest.raises(ENDED, match=rf"{TEXT}\. Its input is not 0: 'end'"):
        run(main, {"x": x, "end": np.array([1, 0], dtype)}, way)


@with_effects
def test_nothing_to_go_on_for(way):
    with pytest.raises(ENDED, match=TEXT):
        run(aborting(""), {"x": np.float32([1])}, way)


def test_a_program_is_aborted_when_it_runs(device):
    """Not while it is traced, though the condition is known then; and none of it is left to XLA."""
    main = graph(aborting("one").nodes, "", "y", one=np.int32(1))
    executable = host.build(program_of(main), device)
    with pytest.raises(tf.errors.UnknownError, match=rf"poplar_exception: {TEXT}\. .*'one'"):
        executable.host([tf.ones((3, 2))])
    main = graph(aborting("zero").nodes, "", "y", zero=np.int32(0))
    (results,) = host.build(program_of(main), device).host([tf.ones((3, 2))])
    np.testing.assert_array_equal(results, 2 * np.ones((3, 2)))


@with_effects
def test_a_printed_tensor(way, capfd):
    main = graph(
        [
            ipu_node("PrintTensor", "x", "y", title="\x1b[31mweights"),
            ipu_node("PrintTensor", "z", "unused", print_gradient=0),
        ],
        "",
        "y",
        z=np.array([[1, 2], [3, 4]]),
    )
    assert run(main, {"x": np.float32([0.5, 2])}, way)[0].tolist() == [0.5, 2]
    assert capfd.readouterr().err.splitlines() == [
        r"\x1b[31mweights: [0.5 2]",
        "z: [[1 2]",
        " [3 4]]",
    ]


@pytest.mark.parametrize("print_gradient", [0, 1])
def test_a_printed_gradient(print_gradient, capfd):
    nodes = [
        ipu_node("PrintTensor", "x", "y", print_gradient=print_gradient),
        ipu_node("Scale", "y", "z", scale=3.0),
    ]
    main = graph(nodes, "", "z")

    @tf.function(autograph=False)
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = results_of(main, {"x": x})[0]
        return tape.gradient(z, x)

    assert function(tf.constant([1.0])) == 3
    expected = ["x: [1]", "Gradient___x: [3]"]
    assert capfd.readouterr().err.splitlines() == expected[: 1 + print_gradient]


def reducing(**attributes):
    return graph([ipu_node("ReplicatedAllReduce", "x", "y", **attributes)], "", "y")


@every_way
def test_a_replica_alone(way):
    x = np.float32([1, 2])
    for attributes in ({}, {"commGroup": [0, 0]}, {"commGroup": [1, 1]}):
        np.testing.assert_array_equal(run(reducing(**attributes), {"x": x}, way)[0], x)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("group", "groups"),
    [
        (None, [[0, 1, 2, 3]]),
        ([0, 0], [[0, 1, 2, 3]]),
        ([1, 2], [[0, 1], [2, 3]]),
        ([2, 2], [[0, 2], [1, 3]]),
        ([2, 4], [[0, 1, 2, 3]]),
    ],
)
def test_sums_over_replicas(group, groups, jit_compile):
    main = reducing(**({} if group is None else {"commGroup": group}))
    x = replicas.numbers(4, 2)
    results = replicas.run(lambda x: results_of(main, {"x": x})[0], x, jit_compile=jit_compile)
    for members in groups:
        for k in members:
            np.testing.assert_array_equal(results[k], x[members].sum(axis=0))


@pytest.mark.parametrize(("group", "members"), [([0, 0], [0, 1, 2, 3]), ([2, 2], [0, 2])])
def test_gradients_over_replicas(group, members):
    """Each replica's loss is its own number times the sum."""
    main = reducing(commGroup=group)

    def function(x, w):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(results_of(main, {"x": x})[0] * w)
        return tape.gradient(loss, x)

    x, w = replicas.numbers(4, 2), replicas.numbers(4, 2, seed=1)
    gradients = replicas.run(function, x, w)
    np.testing.assert_array_equal(gradients[0], w[members].sum(axis=0))


def test_a_program_of_two_replicas(device):
    """In a loop of the model's own: twice, the sum over replicas is added."""
    body = graph(
        [
            ipu_node("ReplicatedAllReduce", "c", "sum"),
            onnx_node("Add", "c sum", "next"),
        ],
        "time on c",
        "on next",
    )
    main = graph(
        [onnx_node("Loop", "most on x", "y", body=body)],
        "",
        "y",
        most=np.int64(2),
        on=np.array(True),
    )
    program = program_of(main, num_replicas=2)
    batches = replicas.numbers(6, 2)
    (results,) = host.build(program, device).host([tf.constant(batches)])
    for pair, ours in zip(batches.reshape(3, 2, 2), np.reshape(results, (3, 2, 2)), strict=True):
        total = pair.sum(axis=0)
        # The first sum adds a total to both replicas, and the second one three times that.
        np.testing.assert_array_equal(ours, pair + 4 * total)


@pytest.mark.parametrize("group", [[3, 1], [1], [2, 0]])
def test_groups_that_there_are_not(group):
    text = r"^In ReplicatedAllReduce 'y': `commGroup` has to be.*Received: commGroup=\["
    with pytest.raises(popart_exception, match=text):
        run(reducing(commGroup=group), {"x": np.float32([1])})


def test_groups_that_do_not_divide_replicas():
    with pytest.raises(popart_exception, match="`commGroup` must be a positive integer that div"):
        one("ReplicatedAllReduce", np.float32([1]), commGroup=[1, 3])
