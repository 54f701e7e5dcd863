"""Computes the nodes of a graph, one after the other, while TensorFlow traces."""

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
from ipu_keras.popart.model.graph import Graph, Model, Node
from ipu_keras.popart.operations.expansion import expansion_of
from ipu_keras.popart.operations.operation import CONTEXT, Operation
from ipu_keras.popart.operations.sizes import axis_within, check_bytes
from ipu_keras.popart.operations.subgraph import Environment, Subgraph
from ipu_keras.popart.operations.table import defaults_of, operation_of
from ipu_keras.popart.operations.values import Order, Value, results_of, value_of

# In place of a result that nobody takes.
_NOTHING = Value(known=np.zeros(0, np.float32))

_NARROWED = {tf.int64: tf.int32, tf.uint64: tf.uint32, tf.float64: tf.float32}

# What is raised by inputs and attributes of a model that do not fit each other, or are too large.
_WRONG_NODE = (
    *(ValueError, TypeError, ArithmeticError, LookupError, MemoryError),
    tf.errors.OpError,
)


# Of so few, no operation that takes no sizes makes much.
_FEW_ELEMENTS = 2**14


def no_seed() -> tf.Tensor:
    """What gives random operations their seed where none may be.

    Raises:
        popart_exception: Always.
    """
    raise popart_exception("Random numbers are drawn in sessions only, which have a seed.")


@dataclass(frozen=True)
class Context:
    """What operations may ask about the node that they are.

    Args:
        node: It.
        opsets: Of its model.
        is_training: Whether the graph is trained.
        seed: Gives a new seed for `tf.random.stateless_*`, `(2,)` int32, at each call.
        order: Of the axes of the inputs, if the operation takes them in any.
        strides_groups: As of `Evaluation`.
        narrows: As of `Evaluation`.
        stable_softmax: As of `Evaluation`.
        logits: What the gradient of a loss goes to, past the softmax that made its probabilities;
            `None` if it goes to these.
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
        """How many results the node has."""
        return len(self.node.outputs)

    def is_needed(self, output: int) -> bool:
        """Whether anybody takes a result.

        Args:
            output: Its position.
        """
        return output < len(self.node.outputs) and bool(self.node.outputs[output])


@dataclass(frozen=True)
class Evaluation:
    """How the nodes of a model are computed.

    Args:
        opsets: Of the model.
        narrows: Whether 64-bit types become 32-bit ones, as devices have no others.
        is_training: Whether the graph is trained.
        seed: As of `Context`.
        around: Opened while a node is computed, as a context manager; takes the node.
        strides_groups: Whether each n-th channel belongs to a group of a normalisation, and not
            neighbours.
        stable_softmax: Whether softmax subtracts the largest number of a row first, so that
            nothing overflows.
        softmaxes: By the results of a loss, the softmax past which its gradient goes.
        folded: How many bytes were computed while tracing: one number, which grows.
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

    def run(self, graph: Graph, environment: Environment) -> None:
        """Computes all nodes of a graph.

        Args:
            graph: It.
            environment: Has its inputs, and what is around it; gets all other tensors.

        Raises:
            popart_exception: A node cannot be computed; the text names it.
        """
        for name, array in graph.initialisers.items():
            environment.setdefault(name, self.value_of(array))
        for node in graph.nodes:
            with_scope = self._evaluated if self.around is None else self._evaluated_within
            results = with_scope(node, environment)
            for name, result in zip(node.outputs, results, strict=False):
                if name:
                    environment[name] = result

    def value_of(self, result: Any) -> Any:
        """What a node or a user gives as a value in the types that there are.

        Args:
            result: A value, tensor or array; a list for a sequence.
        """
        value = value_of(result)
        return _narrowed(value) if self.narrows else value

    def silent(self) -> "Evaluation":
        """Itself for what never runs: it takes no seed, and opens nothing around nodes."""
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
            # TensorFlow's and NumPy's words for inputs and attributes that do not fit each other.
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
        if any(isinstance(each, Subgraph) for each in attributes.values()):
            return [_apart(each) for each in results_of(operation(*given, **attributes))]
        if _can_fold(operation, given):
            check_bytes(self.folded[0] + _bytes_of_results(operation, given, attributes))
            with tf.init_scope(), tf.device("CPU:0"):
                inputs = _as_wanted(operation, _in_full(given), Order.ONNX)
                returned = operation(*inputs, **attributes)
                values = results_of(returned, num_images=operation.num_images)
                results = [_known(one) for one in values]
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
        """The results of the nodes that ONNX defines a node by, which run where that does."""
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
        # What nobody needs may stay undefined.
        return [environment.get(name, _NOTHING) for name in graph.outputs]

    def _logits(self, node: Node, environment: Environment) -> tf.Tensor | None:
        """As of `Context`, if the softmax is over classes, which are the last axis."""
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
        """An attribute as operations take it: of a graph, what computes it."""
        return Subgraph(attribute, self, environment) if isinstance(attribute, Graph) else attribute


def _apart(value: Any) -> Any:
    """What a graph within a node hands on as a tensor of its own, as it is one to gradients."""
    if isinstance(value, list):
        return [_apart(one) for one in value]
    if value.is_static:
        return value
    return Value(tf.identity(value.in_order(value.order)), order=value.order)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.tensor if value.known is None else value.known


def _values(given: Iterable[Any]) -> list[Value]:
    return [value for value in given if isinstance(value, Value)]


def _tensors(operation: Operation, given: Sequence[Any]) -> list[Value]:
    """The inputs that an operation computes with, without those that only say how."""
    named = zip(_input_names(operation, given), given, strict=False)
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
    """Whether a node can be computed while tracing."""
    if operation.is_random or operation.has_effects:
        return False
    flat = [one for each in given for one in (each if isinstance(each, list) else [each])]
    if operation.sizes_by_values:
        # Of constant weights, too: a program of an IPU cannot compute it.
        return all(one is None or one.known is not None for one in flat)
    return all(one is None or one.is_static for one in flat)


def _bytes_of_results(
    operation: Operation, given: Sequence[Any], attributes: Mapping[str, Any]
) -> int:
    """How much memory the results will take of what is computed while tracing; 0 if that is
    certainly little, or not known before."""
    if any(isinstance(each, list) for each in given):
        return 0
    num_elements = sum(math.prod(value.shape) for value in _values(given))
    if not operation.static and num_elements < _FEW_ELEMENTS:
        return 0
    with new_trace().as_default():
        inputs = _as_wanted(operation, [_outlined(each) for each in given], Order.ONNX)
        results = results_of(operation(*inputs, **attributes), num_images=operation.num_images)
        return _num_bytes(results)


def _outlined(value: Value | None) -> Value | None:
    """What is known, without its elements if these are many."""
    if value is None or value.known is None or value.known.size <= _FEW_ELEMENTS:
        return None if value is None else Value(known=value.known)
    return Value(tf.compat.v1.placeholder(tf.as_dtype(value.known.dtype), value.known.shape))


def _num_bytes(results: Sequence[Any]) -> int:
    """Of tensors; 0 for those whose shape is not known."""
    flat = [each for each in tf.nest.flatten(list(results)) if isinstance(each, Value)]
    shapes = [(tuple(each.shape), each.dtype.size) for each in flat]
    return sum(math.prod(shape) * size for shape, size in shapes if None not in shape)


def _in_full(given: Any) -> Any:
    """What is known, in the types in which it is known."""
    if isinstance(given, list | tuple):
        return [_in_full(one) for one in given]
    return None if given is None else Value(known=given.known)


def _common_order(operation: Operation, values: Sequence[Value]) -> Order:
    """In which order an operation that takes several computes."""
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
    """Has an attribute or input that names axes name those of moved tensors; returns these."""
    names = [parameter.name for parameter in operation.inputs]
    if name not in names:
        # A reduction that names no axes takes all of them away, too.
        attributes[name] = _moved(attributes.get(name), permutation)
        return attributes[name]
    position = names.index(name)
    if position >= len(inputs) or inputs[position] is None:
        return None
    axes = _moved(inputs[position].tolist(), permutation)
    inputs[position] = np.array(axes, np.int64)
    return axes


def _moved(axes: Any, permutation: list[int]) -> Any:
    """An axis, or several of them, of the model as those of a tensor whose axes are moved."""
    if isinstance(axes, int):
        return permutation.index(axis_within(axes, len(permutation)))
    return axes and [_moved(axis, permutation) for axis in axes]


def _left(removed: Any, permutation: list[int]) -> list[int]:
    """The axes of the model that a moved tensor still has without some of its axes; all are
    removed, if none is named."""
    gone = [removed] if isinstance(removed, int) else removed or range(len(permutation))
    return [axis for position, axis in enumerate(permutation) if position not in gone]


def _as_in_model(result: Any, left: list[int], rank: int) -> Any:
    """A result that keeps its order if it has all axes, and else gets that of the model."""
    if not tf.is_tensor(result) or result.shape.rank == rank:
        return result
    ordered = sorted(left)
    moved = result if left == ordered else tf.transpose(result, [left.index(a) for a in ordered])
    return Value(moved)


def _as_wanted(
    operation: Operation, given: Sequence[Any], order: Order, rank: int = 0
) -> list[Any]:
    """The inputs of an operation as it wants them; `rank` is that of its largest tensor."""
    names = _input_names(operation, given)
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


def _array_of(name: str, value: Value) -> np.ndarray:
    """What has to be known; a tensor that nothing traces is."""
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
    """The results of an operation, whose gradients by name are not those of its inputs."""
    given = {id(one) for one in tf.nest.flatten(inputs)}

    def apart(one: Any) -> Any:
        return tf.identity(one) if tf.is_tensor(one) and id(one) in given else one

    return tuple(apart(one) for one in returned) if isinstance(returned, tuple) else apart(returned)


def _known(value: Any) -> Any:
    """A value that was computed while tracing."""
    if isinstance(value, list):
        return [_known(one) for one in value]
    if value.known is not None:
        return value
    # A tensor of rank 0 becomes a number.
    return Value(known=np.asarray(value.tensor.numpy()))


def _input_names(operation: Operation, given: Sequence[Any]) -> list[str]:
    names = [p.name for p in operation.inputs]
    if operation.recurs:
        names = names[:-1] * math.ceil(len(given) / (len(names) - 1))
    return names[: len(given)] + names[-1:] * (len(given) - len(names))


def _narrowed(value: Any) -> Any:
    if isinstance(value, list):
        return [_narrowed(one) for one in value]
    narrow = _NARROWED.get(value.dtype)
    if narrow is None or value.is_weight:
        return value
    if value.known is not None:
        # It keeps its own type until it meets what is not known.
        return Value(known=value.known, dtype=narrow)
    return Value(tf.cast(value.in_order(value.order), narrow), order=value.order)


def _words_of(error: Exception) -> str:
    """What TensorFlow says is wrong, without where in its code."""
    text = getattr(error, "message", None) or str(error)
    if isinstance(error, LookupError | MemoryError):
        # Nothing more than a key, or nothing at all.
        text = f"Its inputs or attributes do not fit each other: {type(error).__name__} {text}"
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*", "", text).strip()


def _located(error: popart_exception, node: Node) -> popart_exception:
    text = str(error)
    return error if text.startswith("In ") else popart_exception(f"In {node.title}: {text}")


def outputs_of(model: Model, inputs: Mapping[str, Any]) -> list[Any]:
    """What a model computes, as a function: without a device, and in its own types.

    Args:
        model: It.
        inputs: Tensors or arrays by name; lists of them for sequences. All are tensors while it
            is computed, as are those of a session; none is known.

    Returns:
        Its outputs: tensors, arrays where they are known, lists for sequences.

    Raises:
        popart_exception: A node cannot be computed; the text names it.
    """
    environment: Environment = {
        name: value_of(tf.nest.map_structure(tf.convert_to_tensor, given))
        for name, given in inputs.items()
    }
    Evaluation(model.opsets).run(model.graph, environment)
    return [_plain(environment[name]) for name in model.graph.outputs]
