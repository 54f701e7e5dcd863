"""Runs the body of an ONNX loop as a loop of TensorFlow.

Programs of IPUs are static, so whatever is known before a loop runs is used: XLA then knows the
number of iterations, and the size of what the loop stacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.subgraph import Subgraph
from ipu_keras.popart.operations.values import LaidOutTensor

Shape = tuple[int | None, ...]

# A step takes the number of the iteration and the carried tensors. It returns whether to go on
# (`None` if only the number of iterations counts), the carried tensors of the next iteration, and
# an element for each stacked result.
Step = Callable[[Any, list[Any]], tuple[Any, list[Any], list[Any]]]


@dataclass(frozen=True)
class Outline:
    """What is known of a loop's body before it runs.

    Args:
        goes_on: The condition that the body returns; `None` if it depends on values.
        carried: Shapes of the carried tensors, with `None` for sizes that change.
        elements: One iteration's share of each stacked result.
    """

    goes_on: bool | None
    carried: list[Shape]
    elements: list[tf.TensorSpec]


def outline_of(
    body: Subgraph, before: Sequence[Any], carried: Sequence[Any], after: Sequence[Any] = ()
) -> Outline:
    """Traces a body without running it, to learn the shapes and the condition that it returns.

    The body takes `before` (specs or known arrays), the `carried` specs and `after`, in this order.
    If `before` has any, the first result of the body is whether to go on.
    """
    first = 1 if before else 0
    names = body.graph.outputs[first : first + len(carried)]
    specs = list(carried)
    while True:
        results = body.outline(*before, *specs, *after)
        _check_results(body, results, first + len(carried))
        now = results[first : first + len(carried)]
        shapes = [_common(*each) for each in zip(names, specs, now, strict=True)]
        if shapes == [tuple(spec.shape) for spec in specs]:
            break
        # A size that changes from one iteration to the next becomes unknown for all, and may make
        # others unknown in turn, so the body is traced until nothing changes.
        specs = [tf.TensorSpec(s, spec.dtype) for s, spec in zip(shapes, specs, strict=True)]
    goes_on = results[0].known if before else None
    return Outline(
        None if goes_on is None else bool(goes_on.reshape(())),
        shapes,
        [tf.TensorSpec(each.shape, each.dtype) for each in results[first + len(carried) :]],
    )


def repeated(
    step: Step,
    carried: Sequence[tf.Tensor],
    outline: Outline,
    *,
    count: int | tf.Tensor | None,
    starts: Any = True,
    backward: Sequence[bool] = (),
) -> list[tf.Tensor]:
    """Returns the carried tensors after the last step, and those stacked along a new first axis.

    Args:
        count: The most iterations that there may be; `None` means no limit.
        starts: Whether there is a first iteration; a tensor if that is not known.
        backward: For each stacked result, whether the element of the last iteration comes first.
    """
    backward = backward or [False] * len(outline.elements)
    if isinstance(count, int) and count == 0:
        # XLA has no tensor arrays without elements.
        return [*carried, *(tf.zeros((0, *_closed(e)), e.dtype) for e in outline.elements)]
    is_counted = count is not None and outline.goes_on is not None
    size: Any = count if is_counted else 0
    arrays = [
        tf.TensorArray(e.dtype, size, dynamic_size=not is_counted, element_shape=e.shape)
        for e in outline.elements
    ]

    def goes_on(time, keeps_on, *_):
        if count is None:
            return keeps_on
        return time < count if is_counted else keeps_on & (time < count)

    def iteration(time, keeps_on, carried, arrays):
        keeps_on_then, carried, elements = step(time, carried)
        places = [size - 1 - time if reverses else time for reverses in backward]
        written = [
            array.write(place, element)
            for array, place, element in zip(arrays, places, elements, strict=True)
        ]
        keeps_on = keeps_on if keeps_on_then is None else keeps_on_then
        return time + 1, keeps_on, carried, written

    _, _, carried, arrays = tf.while_loop(
        goes_on,
        iteration,
        (tf.constant(0), tf.convert_to_tensor(starts), list(carried), arrays),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([]),
            [tf.TensorShape(shape) for shape in outline.carried],
            [tf.TensorShape(None) for _ in arrays],
        ),
        # XLA allocates what the gradient needs of each iteration, and so wants a bound.
        maximum_iterations=count if isinstance(count, int) else None,
    )
    return [*carried, *(array.stack() for array in arrays)]


def elements_of(sequence: tf.Tensor) -> tf.TensorArray:
    """Returns the elements along the first axis as an array to be read in a loop.

    Gradients of an array's elements are summed faster than those of slices.
    """
    size = sequence.shape[0]
    array = tf.TensorArray(
        sequence.dtype,
        tf.shape(sequence)[0] if size is None else size,
        # Backwards, a sample shorter than others reads its first element again.
        clear_after_read=False,
        element_shape=sequence.shape[1:],
    )
    return array.unstack(sequence)


def as_tensor(value: Any) -> tf.Tensor:
    """Returns a value of a graph as a tensor that a loop can carry, which no sequence is."""
    if not isinstance(value, LaidOutTensor):
        raise popart_exception(
            "Loops carry and stack tensors only. Received: a sequence of tensors; concatenate it "
            "before the loop, or within its body."
        )
    return value.tensor


def _check_results(body: Subgraph, results: Sequence[Any], least: int) -> None:
    if len(results) < least:
        raise popart_exception(
            f"The body {body.graph.name!r} has to return {least} tensors or more: of each that it "
            f"carries, what the next iteration is given. Received: {len(results)} outputs"
        )
    for each in results:
        if not isinstance(each, LaidOutTensor):
            as_tensor(each)


def _common(name: str, before: tf.TensorSpec, after: LaidOutTensor) -> Shape:
    """Returns the shape that a carried tensor has in all iterations, `None` where sizes differ."""
    if before.dtype != after.dtype or before.shape.rank != len(after.shape):
        raise popart_exception(
            f"A loop carries tensors of one type and rank. Received: {name!r} of "
            f"{after.dtype.name} and shape {list(after.shape)}, for what was "
            f"{before.dtype.name} of shape {before.shape.as_list()} before the iteration"
        )
    pairs = zip(before.shape.as_list(), after.shape, strict=True)
    return tuple(one if one == other else None for one, other in pairs)


def _closed(spec: tf.TensorSpec) -> list[int]:
    return [size or 0 for size in spec.shape.as_list()]
