"""Loops within programs, which run a body many times before they return to the host."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.functions.graph_programs import (
    GraphWork,
    is_program_allowed,
    put_into_graph,
)
from ipu_keras.functions.loop_bodies import (
    call_with_element,
    checked_function,
    tensors_of,
    tensors_then_operations,
)
from ipu_keras.functions.place import current_place
from ipu_keras.internals.tensorflow.decorators import as_autograph_does, left_by_autograph
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue, check_infeed
from ipu_keras.settings.arguments import MOST, checked_switch, integer_in, noted
from ipu_keras.settings.arguments import converted as checked

_ORDER = "IPU loop body must return zero or more Tensor values followed by zero or more Operations."


@left_by_autograph
def repeat(
    n: Any,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> tf.Tensor | list[tf.Tensor] | tf.Operation:
    """Runs a function a fixed number of times in one program.

    Within a function, the host runs it as it runs the steps of a Keras model: compiled by XLA
    where that is faster, for all replicas of the device.

    Args:
        n: How often `body` runs, an integer. 0 leaves the infeed where it is. A tensor whose value
            is known only when the program runs makes a loop as `while_loop` does.
        body: A function that takes the tensors that are handed on, then the parts of an element of
            the infeed. It returns the tensors to hand on, then operations to run.
        inputs: A list of the tensors that the first call is handed.
        infeed_queue: The queue whose next element each call, of each replica, takes.
        use_while_v1: The kind of loop of TensorFlow, which makes no difference here.

    Returns:
        What the last call hands on: a tensor, or a list of several; if that is nothing, the
        operation that does all.

    Raises:
        TypeError: `body` cannot be called with so many arguments, or what it hands on is of
            another type than what it takes.
        ValueError: `body` returns an operation before a tensor, or what it hands on is of another
            shape than what it takes; or `n` is no count.
    """
    count = _count_or_tensor("n", n)
    carried = tensors_of("inputs", inputs)
    converted = as_autograph_does(checked_function("body", body))
    check_infeed(infeed_queue)
    checked_switch("use_while_v1", use_while_v1)
    # A loop of 0 turns is traced too, as its body may make variables and name queues.
    if not isinstance(count, int) or count == 0 or not is_program_allowed():
        return _plain_repeat(count, converted, carried, infeed_queue)
    element_spec = None if infeed_queue is None else infeed_queue._iterator.element_spec

    def step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        num_fed = len(tensors) - len(carried)
        element = () if num_fed == 0 else tf.nest.pack_sequence_as(element_spec, tensors[:num_fed])
        return _called(converted, tensors[num_fed:], element)

    place = current_place()
    handed = put_into_graph(
        GraphWork(
            name=getattr(body, "__name__", "loop").strip("<>"),
            step=step,
            num_steps=count,
            infeed=None if infeed_queue is None else infeed_queue._elements,
            carried=carried,
        ),
        place,
        place.num_replicas(),
    )
    return _handed_on(handed, tf.compat.v1.get_default_graph().get_operations()[-1])


@left_by_autograph
def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: int | None = None,
    use_while_v1: bool = True,
) -> tf.Tensor | list[tf.Tensor] | tf.Operation:
    """Runs a function as long as a condition holds.

    Args:
        condition: A function that takes the tensors that are handed on, and returns a scalar:
            whether to go on.
        body: A function as `repeat` takes it.
        inputs: A list of the tensors that the first call is handed.
        infeed_queue: The queue whose next element each call, of each replica, takes.
        maximum_iterations: How often `body` runs at most; `None` for no limit.
        use_while_v1: The kind of loop of TensorFlow, which makes no difference here.

    Returns:
        What the last call hands on, in the form in which `repeat` returns it.

    Raises:
        TypeError: `body` or `condition` cannot be called with so many arguments, or what is handed
            on is of another type than what is taken.
        ValueError: `body` returns an operation before a tensor, or what it hands on is of another
            shape than what it takes.
    """
    carried = tensors_of("inputs", inputs)
    converted_condition = as_autograph_does(checked_function("condition", condition))
    converted = as_autograph_does(checked_function("body", body))
    check_infeed(infeed_queue)
    checked_switch("use_while_v1", use_while_v1)
    most = None if maximum_iterations is None else _count("maximum_iterations", maximum_iterations)

    def go_on(*given: Any) -> Any:
        found = call_with_element("loop condition", converted_condition, given[1:])
        return checked("condition", tf.convert_to_tensor, found, tf.bool)

    def run(*given: Any) -> list[Any]:
        element = () if infeed_queue is None else infeed_queue._dequeue()
        return [given[0] + 1, *_called(converted, given[1:], element)]

    found = tf.while_loop(
        go_on,
        run,
        [tf.constant(0), *carried],
        parallel_iterations=1,
        maximum_iterations=most,
    )
    return _handed_on(found[1:], found[0].op)


def _plain_repeat(
    count: int | tf.Tensor,
    body: Callable,
    carried: list[tf.Tensor],
    infeed_queue: IPUInfeedQueue | None,
) -> tf.Tensor | list[tf.Tensor] | tf.Operation:
    """Makes a loop of TensorFlow, where there can be no program of its own."""

    def counting(index: tf.Tensor, *given: Any) -> list[Any]:
        element = () if infeed_queue is None else infeed_queue._dequeue()
        return [index + 1, *_called(body, given, element)]

    found = tf.while_loop(
        lambda index, *_: index < count,
        counting,
        [tf.constant(0), *carried],
        parallel_iterations=1,
        maximum_iterations=count,
    )
    return _handed_on(found[1:], found[0].op)


def _called(body: Callable, carried: Any, element: Any) -> list[tf.Tensor]:
    """Returns what a body hands on, once the operations that it returns have run."""
    returned = call_with_element("loop body", body, carried, element)
    tensors, operations = tensors_then_operations(returned, _ORDER)
    taken, handed = ([tensor.dtype for tensor in given] for given in (carried, tensors))
    if taken != handed:
        names = ([dtype.name for dtype in dtypes] for dtypes in (taken, handed))
        raise noted(
            TypeError(
                "Mismatch between input types and output types for loop body: {} vs {}.".format(
                    *names
                )
            ),
            "It must return as many tensors as it is handed, of the same types.",
        )
    for before, after in zip(carried, tensors, strict=True):
        if not before.shape.is_compatible_with(after.shape):
            raise ValueError(
                "What a loop body hands on must have the shape that it is handed, as IPU programs "
                f"are static. Received: the shape {after.shape} for {before.shape}"
            )
    with tf.control_dependencies(operations):
        return [tf.identity(tensor) for tensor in tensors]


def _count(argument: str, value: Any) -> int:
    count = integer_in(value)
    if count is None or not 0 <= count <= MOST:
        raise ValueError(
            f"`{argument}` must be an integer that is not negative, and at most {MOST}. "
            f"Received: {argument}={value!r}"
        )
    return count


def _count_or_tensor(argument: str, value: Any) -> int | tf.Tensor:
    """Returns a count, also that of a tensor if it is known, or else an int32 scalar."""
    given = value.read_value() if isinstance(value, tf.Variable) else value
    if not tf.is_tensor(given):
        return _count(argument, value)
    if not given.dtype.is_integer or not given.shape.is_compatible_with([]):
        raise ValueError(
            f"`{argument}` must be an integer, or a tensor of one. Received: {argument}={value!r}"
        )
    known = tf.get_static_value(given)
    return tf.cast(given, tf.int32) if known is None else _count(argument, known)


def _handed_on(
    tensors: Sequence[tf.Tensor], last: tf.Operation
) -> tf.Tensor | list[tf.Tensor] | tf.Operation:
    """Returns what a loop returns: a single tensor is in no list, so that users compute with it."""
    if not tensors:
        return last
    return tensors[0] if len(tensors) == 1 else list(tensors)
