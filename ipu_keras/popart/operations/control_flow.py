"""If, Loop, Scan and Call: the operations with graphs among their attributes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.graphcore_effects import end_program
from ipu_keras.popart.operations.iteration import (
    Outline,
    as_tensor,
    elements_of,
    outline_of,
    repeated,
)
from ipu_keras.popart.operations.operation import graphcore_operation, operation
from ipu_keras.popart.operations.subgraph import Subgraph
from ipu_keras.popart.operations.values import LaidOutTensor
from ipu_keras.program import OUTLINED_SCOPE

# Exporters write this trip count, or more, for loops that end by their condition alone.
_MOST = 2**31 - 1

_NOT_IN_SCOPES = re.compile(r"[^A-Za-z0-9_]")


@graphcore_operation("Call")
def call(*inputs, callee):
    # Calls of one graph share its code on the tiles, as PopART's subgraphs do.
    with tf.name_scope(OUTLINED_SCOPE + (_NOT_IN_SCOPES.sub("", callee.graph.name) or "call")):
        return tuple(callee(*inputs))


@operation("If")
def if_(condition, *ignored, then_branch, else_branch, context):
    # PopART takes inputs behind the condition and ignores them: branches use the tensors around
    # them by name.
    branches = [then_branch, else_branch]
    counts = [len(branch.graph.outputs) for branch in branches]
    if counts[0] != counts[1]:
        raise popart_exception(
            "Both branches have to return as many tensors. Received: "
            f"{counts[0]} of `then_branch`, {counts[1]} of `else_branch`"
        )
    if condition.is_static:
        return tuple(branches[not condition.scalar()]())
    chosen = tf.reshape(condition.tensor, [])
    try:
        return tuple(tf.cond(chosen, *(lambda b=branch: _tensors(b()) for branch in branches)))
    except popart_exception as error:
        computed = _computable(branches, context.node.title, error)
        return tuple(tf.cond(chosen, *computed))


def _computable(
    branches: Sequence[Subgraph], title: str, error: popart_exception
) -> list[Callable[[], list[Any]]]:
    """Replaces the branch that cannot be computed for the shapes at hand by one that ends the run.

    Models have branches for different kinds of inputs, such as two sampling rates, and a program
    is compiled for the shapes of one kind. If neither or both fit, `error` is raised.
    """
    outlines: list[list[Any]] = []
    misfits: list[tuple[Subgraph, str]] = []
    for branch in branches:
        try:
            outlines.append(branch.outline())
        except popart_exception as reason:
            misfits.append((branch, str(reason)))
    if len(misfits) != 1:
        raise error
    ((misfit, why),) = misfits
    (like,) = outlines
    text = (
        f"The branch {misfit.graph.name!r} of {title} was taken, which cannot be computed for the "
        f"shapes that the program was compiled for. {why}"
    )

    def ended() -> list[tf.Tensor]:
        end_program(" ".join(text.split()))
        return [tf.zeros([size or 0 for size in each.shape], each.dtype) for each in like]

    def computed(branch: Subgraph) -> Callable[[], list[Any]]:
        return lambda: _tensors(branch())

    return [ended if each is misfit else computed(each) for each in branches]


@operation("Loop")
def loop(max_trip_count=None, condition=None, *initial, body):
    if max_trip_count is None and condition is None:
        raise popart_exception(
            "A loop without a maximum trip count and without a condition never ends: give it one."
        )
    carried = [as_tensor(value) for value in initial]
    index, goes_on = (_shaped_as(body, position) for position in range(2))
    # The body only runs while the condition holds.
    known_condition = goes_on(np.array(True))
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in carried]
    number = tf.TensorSpec(index(np.array(0)).shape, tf.int64)
    outline = outline_of(body, [number, known_condition], specs)
    if condition is None:
        outline = replace(outline, goes_on=True)
    starts, count = _starts(condition), _count(max_trip_count)
    if starts is False:
        count = 0
    elif outline.goes_on is False:
        # The body's condition is always false, and the body runs before it is read.
        count = 1 if count is None else _least(count, 1)
    elif outline.goes_on and count is None:
        raise popart_exception("The loop never ends, as its body says so: limit its trip count.")
    if not isinstance(starts, bool):
        outline = replace(outline, goes_on=None)

    def step(time, carried):
        results = body(index(tf.cast(time, tf.int64)), known_condition, *carried)
        keeps_on, *tensors = _tensors(results)
        keeps_on = None if outline.goes_on is not None else tf.reshape(keeps_on, [])
        return keeps_on, tensors[: len(carried)], tensors[len(carried) :]

    return tuple(repeated(step, carried, outline, count=count, starts=starts))


@operation("Scan", since=8)
def scan_8(sequence_lens=None, *values, body, num_scan_inputs, directions=None):
    # Version 8 alone has a batch as the first axis of all tensors, with a length of each sample.
    states, sequences = _split(values, num_scan_inputs)
    backward = _flags("directions", directions, len(sequences))
    count = _length([each.shape[1] for each in sequences], sequences[0], 1)
    lengths = None if sequence_lens is None else tf.cast(sequence_lens.tensor, tf.int32)
    specs = [tf.TensorSpec(each.shape[1:], each.dtype) for each in states]
    elements = [tf.TensorSpec(each.shape[2:], each.dtype) for each in sequences]
    outline = replace(outline_of(body, [], specs, elements), goes_on=True)
    samples = [elements_of(each) for each in [*states, *sequences]]

    def sample(number, _):
        own = [each.read(number) for each in samples]
        length = None if lengths is None else lengths[number]
        results = _scanned(
            body, own[: len(states)], own[len(states) :], outline, backward, count, length
        )
        return None, [], results

    stacked = [
        tf.TensorSpec((count if isinstance(count, int) else None, *e.shape), e.dtype)
        for e in outline.elements
    ]
    last = [tf.TensorSpec(s, e.dtype) for s, e in zip(outline.carried, states, strict=True)]
    batch = _length([each.shape[0] for each in [*states, *sequences]], sequences[0], 0)
    return tuple(repeated(sample, [], Outline(True, [], last + stacked), count=batch))


@operation("Scan", since=9)
def scan(
    *values,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    states, sequences = _split(values, num_scan_inputs)
    num_stacked = len(body.graph.outputs) - len(states)
    axes = _axes("scan_input_axes", scan_input_axes, [each.shape.rank for each in sequences])
    sequences = [_moved(s, axis, 0) for s, axis in zip(sequences, axes, strict=True)]
    count = _length([each.shape[0] for each in sequences], sequences[0], 0)
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in states]
    elements = [tf.TensorSpec(each.shape[1:], each.dtype) for each in sequences]
    outline = replace(outline_of(body, [], specs, elements), goes_on=True)
    results = _scanned(
        body,
        states,
        sequences,
        outline,
        _flags("scan_input_directions", scan_input_directions, len(sequences)),
        count,
        backward_out=_flags("scan_output_directions", scan_output_directions, num_stacked),
    )
    stacked = results[len(states) :]
    axes = _axes("scan_output_axes", scan_output_axes, [each.shape.rank for each in stacked])
    moved = [_moved(each, 0, axis) for each, axis in zip(stacked, axes, strict=True)]
    return (*results[: len(states)], *moved)


def _scanned(
    body: Subgraph,
    states: Sequence[tf.Tensor],
    sequences: Sequence[tf.Tensor],
    outline: Outline,
    backward: Sequence[bool],
    count: int | tf.Tensor,
    length: tf.Tensor | None = None,
    backward_out: Sequence[bool] = (),
) -> list[tf.Tensor]:
    """Scans sequences along their first axis; returns the last states, then what was stacked.

    Args:
        backward: Which sequences are read from their last element on.
        length: The number of elements to use of all `count`; `None` uses all of them.
        backward_out: Which results are stacked from their last element on.
    """
    arrays = [elements_of(each) for each in sequences]
    end = count if length is None else length

    def step(time, carried):
        places = [tf.maximum(end - 1 - time, 0) if reverses else time for reverses in backward]
        read = [array.read(place) for array, place in zip(arrays, places, strict=True)]
        results = _tensors(body(*carried, *read))
        then, elements = results[: len(carried)], results[len(carried) :]
        # A program is static, so short samples run all iterations and keep their states.
        if length is not None:
            is_used = time < length
            pairs = zip(then, carried, strict=True)
            then = [tf.where(is_used, after, before) for after, before in pairs]
            elements = [tf.where(is_used, each, tf.zeros_like(each)) for each in elements]
        return None, then, elements

    return repeated(step, states, outline, count=count, backward=backward_out)


def _split(
    values: Sequence[LaidOutTensor], num_scan_inputs: int
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Splits the inputs of a scan into states and sequences."""
    if not 1 <= num_scan_inputs <= len(values):
        raise popart_exception(
            "`num_scan_inputs` has to be 1 or more, and no more than there are inputs. Received: "
            f"num_scan_inputs={num_scan_inputs} of {len(values)} inputs"
        )
    tensors = [as_tensor(value) for value in values]
    return tensors[:-num_scan_inputs], tensors[-num_scan_inputs:]


def _length(sizes: Sequence[int | None], example: tf.Tensor, axis: int) -> int | tf.Tensor:
    """Returns the size that sequences share: a number if it is known, else that of `example`."""
    known = {size for size in sizes if size is not None}
    if len(known) > 1:
        raise popart_exception(
            "What a scan goes through has to have one size along the axis of the scan. "
            f"Received: sizes {list(sizes)}"
        )
    return known.pop() if known else tf.shape(example)[axis]


def _flags(name: str, given: Sequence[int] | None, count: int) -> list[bool]:
    directions = [0] * count if given is None else list(given)
    if len(directions) != count or not set(directions) <= {0, 1}:
        raise popart_exception(
            f"`{name}` has to have {count} directions, 0 for forward and 1 for backward. "
            f"Received: {name}={directions}"
        )
    return [bool(each) for each in directions]


def _axes(name: str, given: Sequence[int] | None, ranks: Sequence[int]) -> list[int]:
    axes = [0] * len(ranks) if given is None else list(given)
    fit = len(axes) == len(ranks)
    if not fit or any(not -r <= axis < r for axis, r in zip(axes, ranks, strict=True)):
        raise popart_exception(
            f"`{name}` has to have an axis for each of {len(ranks)} tensors, of the ranks "
            f"{list(ranks)}. Received: {name}={axes}"
        )
    return [axis % rank for axis, rank in zip(axes, ranks, strict=True)]


def _moved(tensor: tf.Tensor, axis: int, to: int) -> tf.Tensor:
    if axis == to:
        return tensor
    order = [each for each in range(tensor.shape.rank) if each != axis]
    order.insert(to, axis)
    return tf.transpose(tensor, order)


def _tensors(results: Sequence[Any]) -> list[Any]:
    """Returns values as tensors, and sequences as lists of them."""
    return [_tensors(each) if isinstance(each, list) else as_tensor(each) for each in results]


def _shaped_as(body: Subgraph, position: int) -> Any:
    """Returns a function that shapes scalars as a body declares an input.

    Exporters declare the iteration number and the condition as scalars, or as vectors of one.
    """
    inputs = body.graph.inputs
    shape = inputs[position].shape if position < len(inputs) else None
    is_vector = shape is not None and len(shape) == 1
    return lambda scalar: scalar[np.newaxis] if is_vector else scalar


def _starts(condition: LaidOutTensor | None) -> Any:
    """Whether there is a first iteration; a tensor if that is known only when the program runs."""
    if condition is None:
        return True
    if condition.is_static:
        return bool(condition.scalar())
    return tf.reshape(condition.tensor, [])


def _count(max_trip_count: LaidOutTensor | None) -> int | tf.Tensor | None:
    """Returns the most iterations that a loop may have; `None` means no limit."""
    if max_trip_count is None:
        return None
    if max_trip_count.is_static:
        count = max(0, int(max_trip_count.scalar()))
        return None if count >= _MOST else count
    count = tf.reshape(max_trip_count.tensor, [])
    return tf.cast(tf.clip_by_value(count, 0, _MOST), tf.int32)


def _least(count: int | tf.Tensor, other: int) -> int | tf.Tensor:
    return min(count, other) if isinstance(count, int) else tf.minimum(count, other)
