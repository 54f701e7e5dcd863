"""ONNX graphs of several nodes, written by hand, and each way to compute them."""

import numpy as np
import tensorflow as tf
from differences import jacobians

from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, GraphInput, Node, OnnxGraph
from ipu_keras.popart.operations.evaluation import Evaluation
from ipu_keras.popart.operations.values import LaidOutTensor, value_of

WAYS = ("eager", "traced", "xla")


def onnx_node(kind, inputs, outputs, **attributes):
    """A node of ai.onnx; names of tensors are separated by spaces, `-` is for none."""
    return _node(AI_ONNX, kind, inputs, outputs, attributes)


def ipu_node(kind, inputs, outputs, **attributes):
    """A node of ai.graphcore."""
    return _node(AI_GRAPHCORE, kind, inputs, outputs, attributes)


def graph(nodes, inputs="", outputs="", name="main", **initialisers):
    """Nodes, with names of inputs and outputs separated by spaces, and initialisers by name."""
    return OnnxGraph(
        name,
        tuple(nodes),
        tuple(GraphInput(each) for each in inputs.split()),
        tuple(outputs.split()),
        {key: np.asarray(value) for key, value in initialisers.items()},
    )


def environment_of(main, inputs, opset=11, **options):
    """All tensors of a graph, as values by name, where tracing is now."""
    evaluation = Evaluation({AI_ONNX: opset, AI_GRAPHCORE: 1}, **options)
    environment = {name: evaluation.value_of(value_of(given)) for name, given in inputs.items()}
    evaluation.run(main, environment)
    return environment


def results_of(main, inputs, opset=11, **options):
    """The outputs of a graph as tensors, where tracing is now."""
    environment = environment_of(main, inputs, opset, **options)
    return [_tensor(environment[name]) for name in main.outputs]


def run(main, inputs, way="traced", opset=11, **options):
    """The outputs of a graph as arrays.

    Args:
        main: The graph.
        inputs: Arrays by name.
        way: One of `WAYS`.
        opset: Of ai.onnx.
        **options: Of the `Evaluation`.
    """
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    if way == "eager":
        results = results_of(main, tensors, opset, **options)
    else:
        function = tf.function(
            lambda given: results_of(main, given, opset, **options),
            autograph=False,
            jit_compile=way == "xla",
        )
        results = function(tensors)
    return [each.numpy() for each in results]


def one(kind, *inputs, outputs=1, way="traced", domain=AI_GRAPHCORE, known=(), **attributes):
    """The results of one node as arrays, of which a single one is no list.

    Args:
        kind: Of its operation.
        *inputs: Arrays; `None` for one that is left out.
        outputs: How many results it has.
        way: One of `WAYS`.
        domain: Of the operation.
        known: Positions of inputs that are initialisers.
        **attributes: Of the node; `options` are those of the `Evaluation`.
    """
    options = attributes.pop("options", {})
    main, given = _graph_of_one(kind, inputs, outputs, domain, known, attributes)
    results = run(main, given, way, **options)
    return results[0] if outputs == 1 else results


def check_gradient(kind, *inputs, domain=AI_GRAPHCORE, outputs=1, **attributes):
    """Holds gradients of a node's first result against differences, by inputs with fractions."""
    options = attributes.pop("options", {})
    exact = [x.astype(np.float64) if x is not None and _has_fractions(x) else x for x in inputs]
    known = [i for i, x in enumerate(exact) if x is not None and not _has_fractions(x)]
    main, given = _graph_of_one(kind, exact, outputs, domain, known, attributes)
    check_gradient_of(main, given, **options)


def check_gradient_of(main, inputs, **options):
    """Holds gradients of a graph's first result against differences.

    Args:
        main: The graph.
        inputs: Arrays by name, all with fractions.
        **options: As of `run`.
    """
    names = list(inputs)

    @tf.function(autograph=False)
    def function(*tensors):
        return results_of(main, dict(zip(names, tensors, strict=True)), **options)[0]

    tensors = [tf.constant(value, tf.float64) for value in inputs.values()]
    by_tape, by_differences = jacobians(function, tensors, 1e-4)
    for ours, differences in zip(by_tape, by_differences, strict=True):
        np.testing.assert_allclose(ours, differences, rtol=1e-5, atol=1e-6)


def gradients_of(main, inputs, way="traced"):
    """Gradients of a graph's first result by all of its inputs, in one function as steps have them.

    Args:
        main: The graph.
        inputs: Arrays by name, all with fractions.
        way: One of `WAYS`, but not eagerly.
    """

    @tf.function(autograph=False, jit_compile=way == "xla")
    def gradients(tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = results_of(main, tensors)[0]
        return tape.gradient(result, tensors)

    ours = gradients({name: tf.constant(value) for name, value in inputs.items()})
    return {name: gradient.numpy() for name, gradient in ours.items()}


def _node(domain, kind, inputs, outputs, attributes):
    def names(text):
        return tuple("" if name == "-" else name for name in text.split())

    return Node(kind, domain, names(inputs), names(outputs), attributes=attributes)


def _graph_of_one(kind, inputs, outputs, domain, known, attributes):
    names = ["-" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    arrays = {n: np.asarray(v) for n, v in zip(names, inputs, strict=True) if v is not None}
    results = " ".join(f"y{i}" for i in range(outputs))
    node = _node(domain, kind, " ".join(names), results, attributes)
    initialisers = {f"x{i}": arrays.pop(f"x{i}") for i in known}
    return graph([node], " ".join(arrays), results, **initialisers), arrays


def _has_fractions(array):
    return np.asarray(array).dtype.kind == "f"


def _tensor(value):
    assert isinstance(value, LaidOutTensor)
    return value.tensor
