"""Computes the nodes of a graph, one after the other, while TensorFlow traces.

Whatever is known is computed at once and never becomes part of the program; what an operation
means is left to `table` and the families of operations.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import new_trace
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import Node, OnnxGraph, OnnxModel
from ipu_keras.popart.operations.expansion import expansion_of
from ipu_keras.popart.operations.operation import CONTEXT, Operation
from ipu_keras.popart.operations.sizes import axis_within, check_bytes
from ipu_keras.popart.operations.subgraph import Environment, Subgraph
from ipu_keras.popart.operations.table import defaults_of, operation_of
from ipu_keras.popart.operations.values import LaidOutTensor, Order, results_of, value_of

# Stands for a result that no node takes.
_NOTHING = LaidOutTensor(known=np.zeros(0, np.float32))

# An IPU has no types of 64 bits.
_NARROWED = {tf.int64: tf.int32, tf.uint64: tf.uint32, tf.float64: tf.float32}

# What NumPy, TensorFlow and Python raise if the inputs and attributes of a node do not fit each
# other, or are too large.
_WRONG_NODE = (
    *(ValueError, TypeError, ArithmeticError, LookupError, MemoryError),
    tf.errors.OpError,
)


# From so few elements no operation makes a large result, unless an input says how large it is.
_FEW_ELEMENTS = 2**14


def no_seed() -> tf.Tensor:
    """Refuses a seed to random operations outside of sessions, by a `popart_exception`."""
    raise popart_exception("Random numbers are drawn in sessions only, which have a seed.")


@dataclass(frozen=True)
class Context:
    """What operations may ask about their node; `Evaluation` explains what both have.

    `logits` is where a loss sends its gradient, past the softmax that made its probabilities, or
    `None` if the gradient goes to the probabilities.
    """

    node: Node
    opsets: Mapping[str, int]
    is_training: bool = False
    seed: Callable[[], tf.Tensor] = no_seed
    order: Order = Order.ONNX
    strides_groups: bool = False
    narrows: bool = False
    stable_softmax: bool = True
    logits: tf.Tensor | None = None

    @property
    def num_outputs(self) -> int:
        return len(self.node.outputs)

    def is_needed(self, output: int) -> bool:
        """Whether the node names the result at a position; ONNX leaves out others as `""`."""
        return output < len(self.node.outputs) and bool(self.node.outputs[output])


@dataclass(frozen=True)
class Evaluation:
    """Computes the nodes of a model under the options of its session.

    Args:
        opsets: The version of each domain that the model uses.
        narrows: Whether 64-bit types become 32-bit ones, as devices have no others.
        seed: Returns a new seed for `tf.random.stateless_*`, `(2,)` int32, at each call.
        around: Makes a context manager of a node, which is open while the node is computed.
        strides_groups: Whether every n-th channel, rather than neighbours, forms a group of a
            group normalisation.
        stable_softmax: Whether softmax subtracts the maximum of a row first, so that nothing
            overflows.
        softmaxes: By the outputs of a loss node, the softmax node that its gradient passes by.
        folded: The number of bytes computed while tracing so far, in a list that copies share.
    """

    opsets: Mapping[str, int]
    narrows: bool = False
    is_training: bool = False
    seed: Callable[[], tf.Tensor] = no_seed
    around: Callable[[Node], Any] | None = None
    strides_groups: bool = False
    stable_softmax: bool = True
    softmaxes: Mapping[tuple[str, ...], Node] = field(default_factory=dict)
    folded: list[int] = field(default_factory=lambda: [0])

    def run(self, graph: OnnxGraph, environment: Environment) -> None:
        """Computes all nodes of a graph; `environment` has its inputs, and gets the results."""
        for name, array in graph.initialisers.items():
            environment.setdefault(name, self.value_of(array))
        for node in graph.nodes:
            with_scope = self._evaluated if self.around is None else self._evaluated_within
            results = with_scope(node, environment)
            for name, result in zip(node.outputs, results, strict=False):
                if name:
                    environment[name] = result

    def value_of(self, result: Any) -> Any:
        """Returns a value, tensor or array, or a list of them, as values of types a device has."""
        value = value_of(result)
        return _narrowed(value) if self.narrows else value

    def silent(self) -> "Evaluation":
        """Returns a copy for tracing what never runs: it draws no seeds and opens no scopes."""
        return replace(self, around=None, seed=lambda: tf.zeros(2, tf.int32))

    def _evaluated_within(self, node: Node, environment: Environment) -> Sequence[Any]:
        assert self.around is not None
        with self.around(node):
            return self._evaluated(node, environment)

    def _evaluated(self, node: Node, environment: Environment) -> Sequence[Any]:
        operation = operation_of(node.domain, node.kind, self.opsets.get(node.domain, 1))
        given = [environment[name] if name else None for name in node.inputs]
        try:
            results = self._results(operation, node, given, environment)
        except popart_exception as error:
            raise _located(error, node) from error
        except _WRONG_NODE as error:
            raise _located(popart_exception(_words_of(error)), node) from error
        num_named = max((n for n, name in enumerate(node.outputs, 1) if name), default=0)
        if num_named > len(results):
            raise _located(
                popart_exception(
                    f"It has invalid number of outputs {num_named}. Must be at most {len(results)}."
                ),
                node,
            )
        return [self.value_of(each) for each in results]

    def _results(
        self, operation: Operation, node: Node, given: Sequence[Any], environment: Environment
    ) -> Sequence[Any]:
        _check_count(operation, given)
        attributes = self._attributes(operation, node, environment)
        tensors = _tensors(operation, given)
        if operation.is_expanded:
            return self._expanded(operation, node, given)
        order = _common_order(operation, tensors)
        if operation.wants_context:
            attributes[CONTEXT] = Context(
                node,
                self.opsets,
                self.is_training,
                self.seed,
                order,
                self.strides_groups,
                self.narrows,
                self.stable_softmax,
                self._logits(node, environment),
            )
        # Operations with graphs get values rather than tensors, as what is known must stay known
        # within the graphs.
        if any(isinstance(each, Subgraph) for each in attributes.values()):
            return [_apart(each) for each in results_of(operation(*given, **attributes))]
        if _can_fold(operation, given):
            check_bytes(self.folded[0] + _bytes_of_results(operation, given, attributes))
            with tf.init_scope(), tf.device("CPU:0"):
                inputs = _as_wanted(operation, _in_full(given), Order.ONNX)
                returned = operation(*inputs, **attributes)
                values = results_of(returned, num_images=operation.num_images)
                results = [_known(one) for one in values]
            # A `Constant` has no inputs; its size is bounded by that of the file.
            if node.inputs:
                self.folded[0] += _num_bytes(results)
            return results
        rank = max((value.rank for value in tensors), default=0)
        permutation = order.permutation(rank)
        inputs = _as_wanted(operation, given, order, rank)
        named = operation.axis if order is Order.IMAGES else None
        axes = named and _move_axes(operation, named, attributes, inputs, permutation)
        returned = _none_an_input(operation(*inputs, **attributes), inputs)
        if named:
            left = _left(axes, permutation)
            returned = tf.nest.map_structure(lambda one: _as_in_model(one, left, rank), returned)
        return results_of(returned, order, operation.num_images)

    def _expanded(self, operation: Operation, node: Node, given: Sequence[Any]) -> Sequence[Any]:
        """Computes a node by the nodes of ONNX's own definition, in the scope of the node."""
        graph, opsets = expansion_of(operation, node, given, self.opsets[node.domain])
        names = [each.name for each in graph.inputs]
        present = [each for each in given if each is not None]
        environment: Environment = dict(zip(names, present, strict=True))
        replace(self, opsets=opsets, around=None).run(graph, environment)
        missing = [
            position
            for position, name in enumerate(graph.outputs)
            if name not in environment and Context(node, self.opsets).is_needed(position)
        ]
        if missing:
            raise popart_exception(
                f"ONNX has no nodes for its output {missing[0]}. Leave it out in the model."
            )
        # ONNX's definitions leave out some optional outputs.
        return [environment.get(name, _NOTHING) for name in graph.outputs]

    def _logits(self, node: Node, environment: Environment) -> tf.Tensor | None:
        """Returns `Context.logits`; the softmax must be over the last axis, that of classes."""
        softmax = self.softmaxes.get(node.outputs)
        if softmax is None:
            return None
        version = self.opsets.get(softmax.domain, 1)
        operation = operation_of(softmax.domain, softmax.kind, version)
        axis = self._attributes(operation, softmax, environment)["axis"]
        logits = environment[softmax.inputs[0]]
        is_over_classes = axis in (-1, logits.rank - 1)
        return logits.tensor if is_over_classes and logits.known is None else None

    def _attributes(
        self, operation: Operation, node: Node, environment: Environment
    ) -> dict[str, Any]:
        version = self.opsets.get(node.domain, 1)
        arguments = {**defaults_of(operation, version), **node.arguments}
        parameters = operation.attributes
        unknown = sorted(node.arguments.keys() - parameters.keys())
        if unknown:
            raise popart_exception(
                f"Unknown attribute {unknown[0]!r}. It takes: "
                f"{', '.join(sorted(parameters)) or 'none'}."
            )
        missing = [
            name
            for name, parameter in parameters.items()
            if name not in arguments and parameter.default is inspect.Parameter.empty
        ]
        if missing:
            raise popart_exception(f"The attribute {missing[0]!r} is missing.")
        return {
            parameters[name].name: self._computed(value, environment)
            for name, value in arguments.items()
            if name in parameters
        }

    def _computed(self, attribute: Any, environment: Environment) -> Any:
        """Returns an attribute as operations take it: a graph becomes a `Subgraph`."""
        return (
            Subgraph(attribute, self, environment)
            if isinstance(attribute, OnnxGraph)
            else attribute
        )


def _apart(value: Any) -> Any:
    """Copies a result of a graph within a node, so that its gradient is not that of a tensor in it.

    A graph may return its own input, and an anchor `Gradient___x` must tell the two apart.
    """
    if isinstance(value, list):
        return [_apart(one) for one in value]
    if value.is_static:
        return value
    return LaidOutTensor(tf.identity(value.in_order(value.order)), order=value.order)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.tensor if value.known is None else value.known


def _values(given: Iterable[Any]) -> list[LaidOutTensor]:
    return [value for value in given if isinstance(value, LaidOutTensor)]


def _tensors(operation: Operation, given: Sequence[Any]) -> list[LaidOutTensor]:
    """Returns the inputs that an operation computes with, without its static ones."""
    named = zip(operation.input_names(len(given)), given, strict=False)
    return _values(value for name, value in named if name not in operation.static)


def _check_count(operation: Operation, given: Sequence[Any]) -> None:
    inputs = operation.inputs
    needed = sum(
        p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_POSITIONAL
        for p in inputs
    )
    is_variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in inputs)
    num_given = len(given)
    if num_given < needed or (num_given > len(inputs) and not is_variadic):
        most = "any number" if is_variadic else len(inputs)
        raise popart_exception(
            f"It has invalid number of inputs {num_given}. Must be between {needed}..{most}."
        )


def _can_fold(operation: Operation, given: Sequence[Any]) -> bool:
    """Whether a node can be computed at once, while tracing."""
    if operation.is_random or operation.has_effects:
        return False
    flat = [one for each in given for one in (each if isinstance(each, list) else [each])]
    if operation.sizes_by_values:
        # Even from weights, which may change: a static program could not compute it at all.
        return all(one is None or one.known is not None for one in flat)
    return all(one is None or one.is_static for one in flat)


def _bytes_of_results(
    operation: Operation, given: Sequence[Any], attributes: Mapping[str, Any]
) -> int:
    """Estimates the bytes of results that are to be computed while tracing.

    Returns 0 if that is certainly little, or cannot be known before.
    """
    if any(isinstance(each, list) for each in given):
        return 0
    num_elements = sum(math.prod(value.shape) for value in _values(given))
    if not operation.static and num_elements < _FEW_ELEMENTS:
        return 0
    with new_trace().as_default():
        inputs = _as_wanted(operation, [_outlined(each) for each in given], Order.ONNX)
        results = results_of(operation(*inputs, **attributes), num_images=operation.num_images)
        return _num_bytes(results)


def _outlined(value: LaidOutTensor | None) -> LaidOutTensor | None:
    """Returns a known value; if it is large, only its shape and type as a placeholder."""
    if value is None or value.known is None or value.known.size <= _FEW_ELEMENTS:
        return None if value is None else LaidOutTensor(known=value.known)
    return LaidOutTensor(
        tf.compat.v1.placeholder(tf.as_dtype(value.known.dtype), value.known.shape)
    )


def _num_bytes(results: Sequence[Any]) -> int:
    """Adds up the bytes of results, without those of unknown shape."""
    flat = [each for each in tf.nest.flatten(list(results)) if isinstance(each, LaidOutTensor)]
    shapes = [(tuple(each.shape), each.dtype.size) for each in flat]
    return sum(math.prod(shape) * size for shape, size in shapes if None not in shape)


def _in_full(given: Any) -> Any:
    """Returns known inputs in their own types, before a device's types narrow them.

    Models write `2**63 - 1` for "to the end", which 32 bits cannot hold.
    """
    if isinstance(given, list | tuple):
        return [_in_full(one) for one in given]
    return None if given is None else LaidOutTensor(known=given.known)


def _common_order(operation: Operation, values: Sequence[LaidOutTensor]) -> Order:
    """Returns the order of axes in which an operation that takes several is computed."""
    if not operation.keeps_order:
        return Order.ONNX
    ranks = {value.rank for value in values}
    if operation.axis is not None and len(ranks) > 1:
        return Order.ONNX
    are_images = any(value.order is Order.IMAGES and value.known is None for value in values)
    return Order.IMAGES if are_images else Order.ONNX


def _move_axes(
    operation: Operation,
    name: str,
    attributes: dict[str, Any],
    inputs: list[Any],
    permutation: list[int],
) -> Any:
    """Rewrites the attribute or input that names axes for moved tensors, and returns the axes."""
    names = [parameter.name for parameter in operation.inputs]
    if name not in names:
        attributes[name] = _moved(attributes.get(name), permutation)
        return attributes[name]
    position = names.index(name)
    if position >= len(inputs) or inputs[position] is None:
        return None
    axes = _moved(inputs[position].tolist(), permutation)
    inputs[position] = np.array(axes, np.int64)
    return axes


def _moved(axes: Any, permutation: list[int]) -> Any:
    """Translates one or more axes of the model to those of a tensor whose axes are moved."""
    if isinstance(axes, int):
        return permutation.index(axis_within(axes, len(permutation)))
    return axes and [_moved(axis, permutation) for axis in axes]


def _left(removed: Any, permutation: list[int]) -> list[int]:
    """Returns the model's axes that remain when axes of a moved tensor are removed.

    A reduction that names no axes removes all of them.
    """
    gone = [removed] if isinstance(removed, int) else removed or range(len(permutation))
    return [axis for position, axis in enumerate(permutation) if position not in gone]


def _as_in_model(result: Any, left: list[int], rank: int) -> Any:
    """Keeps the order of a result with all axes, and brings one with fewer into the model's."""
    if not tf.is_tensor(result) or result.shape.rank == rank:
        return result
    ordered = sorted(left)
    moved = result if left == ordered else tf.transpose(result, [left.index(a) for a in ordered])
    return LaidOutTensor(moved)


def _as_wanted(
    operation: Operation, given: Sequence[Any], order: Order, rank: int = 0
) -> list[Any]:
    """Returns the inputs in the form that an operation declares; `rank` is that of the largest."""
    names = operation.input_names(len(given))
    return [
        _wanted(operation, name, value, order, rank)
        for name, value in zip(names, given, strict=False)
    ]


def _wanted(operation: Operation, name: str, value: Any, order: Order, rank: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if name in operation.static:
        return _array_of(name, value)
    if name in operation.images:
        return value.in_order(Order.IMAGES)
    if name in operation.kernels:
        return value.in_order(Order.KERNEL)
    if order is Order.IMAGES and (operation.elementwise or value.rank == rank):
        return value.broadcast(rank, order)
    return value.tensor


def _array_of(name: str, value: LaidOutTensor) -> np.ndarray:
    """Returns the array of a static input, which an eager tensor has as well."""
    if value.known is not None:
        return value.known
    tensor = value.tensor
    if tf.is_symbolic_tensor(tensor):
        raise popart_exception(
            f"The input {name!r} has to be known before anything runs, as programs of IPUs "
            "are static: make it a constant or an initialiser."
        )
    return np.asarray(tensor.numpy())


def _none_an_input(returned: Any, inputs: Sequence[Any]) -> Any:
    """Copies results that are inputs, so that anchors of gradients tell the two apart.

    `Gradient___x` of an input counts all that uses it, that of a result only what follows.
    """
    given = {id(one) for one in tf.nest.flatten(inputs)}

    def apart(one: Any) -> Any:
        return tf.identity(one) if tf.is_tensor(one) and id(one) in given else one

    return tuple(apart(one) for one in returned) if isinstance(returned, tuple) else apart(returned)


def _known(value: Any) -> Any:
    """Returns a value that was computed eagerly as a known one."""
    if isinstance(value, list):
        return [_known(one) for one in value]
    if value.known is not None:
        return value
    # For a tensor of rank 0, `numpy()` returns a number rather than an array.
    return LaidOutTensor(known=np.asarray(value.tensor.numpy()))


def _narrowed(value: Any) -> Any:
    if isinstance(value, list):
        return [_narrowed(one) for one in value]
    narrow = _NARROWED.get(value.dtype)
    if narrow is None or value.is_weight:
        return value
    if value.known is not None:
        # A known value keeps all 64 bits until it meets one that is not known.
        return LaidOutTensor(known=value.known, dtype=narrow)
    return LaidOutTensor(tf.cast(value.in_order(value.order), narrow), order=value.order)


def _words_of(error: Exception) -> str:
    """Returns TensorFlow's message without the names of its own nodes."""
    text = getattr(error, "message", None) or str(error)
    if isinstance(error, LookupError | MemoryError):
        # Their text is no more than a key, or empty.
        text = f"Its inputs or attributes do not fit each other: {type(error).__name__} {text}"
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*", "", text).strip()


def _located(error: popart_exception, node: Node) -> popart_exception:
    text = str(error)
    return error if text.startswith("In ") else popart_exception(f"In {node.title}: {text}")


def outputs_of(model: OnnxModel, inputs: Mapping[str, Any]) -> list[Any]:
    """Computes the outputs of a model without a device, and in the model's own types.

    Inputs count as not known, as in a session. Outputs are tensors, arrays where they are known,
    and lists for sequences.
    """
    environment: Environment = {
        name: value_of(tf.nest.map_structure(tf.convert_to_tensor, given))
        for name, given in inputs.items()
    }
    Evaluation(model.opsets).run(model.graph, environment)
    return [_plain(environment[name]) for name in model.graph.outputs]
