"""Cuts a traced step into what all steps can compute at once and what they do in turn."""

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.tracing.extraction import ExtractedPart, extract

# Both parts have these, which are cheaper to repeat than to keep for all steps.
_REPEATED = frozenset({"Const", "ReadVariableOp"})


def open_step(concrete: Any, opening_ops: Collection[str]) -> tuple[ExtractedPart, ExtractedPart]:
    """Cuts a step into its opening and the rest.

    The opening has the named operations, with all that they need, and returns a list of
    tensors. The rest takes that list after its inputs, and returns what the step returns.
    """
    operations = concrete.graph.get_operations()
    results = tf.nest.map_structure(before_return, concrete.structured_outputs)
    used = [t for op in operations if op.name not in opening_ops for t in op.inputs]
    used += tf.nest.flatten(results)
    given = {tensor.ref() for tensor in concrete.inputs}
    between = [
        tensor
        for tensor in {t.ref(): t for t in used}.values()
        if tensor.op.name in opening_ops and tensor.op.type != "Const"
        if tensor.ref() not in given and tensor.dtype != tf.resource
    ]
    written = concrete.graph.control_outputs
    first = [op for op in written if op.name in opening_ops]
    rest = [op for op in written if op.name not in opening_ops]
    return (
        extract(concrete, between, controls=first),
        extract(concrete, results, given=between, controls=rest, without=opening_ops),
    )


def split_step(
    concrete: Any,
    sequential_ops: Collection[str],
    results: Any,
    gradients: Sequence[tf.Tensor] = (),
) -> tuple[ExtractedPart, ExtractedPart]:
    """Cuts a step into two functions that together do what it does.

    The first returns a list of tensors, and a list of `gradients`. The second has the
    sequential operations, which include all that depends on any of them; it takes the former
    list after its inputs, and returns the `results`.
    """
    writes = [op for op in concrete.graph.control_outputs if op.name in sequential_ops]
    between = _between(concrete, sequential_ops, results, writes)
    second = extract(concrete, results, given=between, controls=writes)
    return extract(concrete, (between, list(gradients))), second


def before_return(tensor: tf.Tensor) -> tf.Tensor:
    """Returns what a function computes for one of its `structured_outputs`.

    TensorFlow returns an Identity of it, which waits for everything that the function writes. A
    part that only computes the result must not wait for that.
    """
    return tensor.op.inputs[0] if tensor.op.type == "Identity" else tensor


def _between(
    concrete, sequential_ops: Collection[str], results: Any, writes: Sequence[tf.Operation]
) -> list[tf.Tensor]:
    """Returns what the first part computes for the second, or for the step's results."""
    inputs = {tensor.ref() for tensor in concrete.inputs}
    used = tf.nest.flatten(results)
    # What the step returns from the first part does not count, though TensorFlow has it wait
    # for writes.
    pending = [*writes, *(t.op for t in used if t.op.name in sequential_ops)]
    seen = set(pending)
    while pending:
        op = pending.pop()
        used += op.inputs
        before = {*(t.op for t in op.inputs), *op.control_inputs} - seen
        pending += [each for each in before if each.name in sequential_ops]
        seen |= before
    found = {
        tensor.ref(): tensor
        for tensor in used
        if tensor.ref() not in inputs
        and tensor.op.name not in sequential_ops
        and tensor.op.type not in _REPEATED
    }
    return list(found.values())
