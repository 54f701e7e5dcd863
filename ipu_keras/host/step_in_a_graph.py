"""Traces a step once and for all, as a part of a graph that is being built.

Steps of users' functions make variables and optimizers while they are traced, so step and
weight update, which the host needs apart, are taken out of one trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ipu_keras.host.rewrites.all_rewrites import Purpose
from ipu_keras.host.rewrites.replacement import undone
from ipu_keras.host.splitting import before_return
from ipu_keras.host.traced_step import TracedStep, rewriting
from ipu_keras.internals.tensorflow.functions import traced_where_variables_are_made
from ipu_keras.ir import TensorSpec
from ipu_keras.tracing.as_written import as_written
from ipu_keras.tracing.extraction import extract, feeds_of
from ipu_keras.tracing.replication import Shards, num_shards_of

_ACCUMULATED = "accumulated_gradient"


def accumulated(gradient: tf.Tensor) -> tf.Tensor:
    """Marks a gradient of one batch where the weight update takes the sum over batches."""
    return tf.identity(gradient, name=_ACCUMULATED)


@dataclass(frozen=True)
class StepInAGraph(TracedStep):
    """A step whose trace, `whole`, cannot be made again; step and update are parts of that."""

    whole: Any = None

    @classmethod
    def trace(
        cls,
        name: str,
        step: Callable[..., Any],
        given: Sequence[TensorSpec],
        *,
        purpose: Purpose,
        num_replicas: int,
        shards: Shards = "refused",
    ) -> "StepInAGraph":
        """Traces a step, which takes tensors and returns a structure of results.

        If it updates weights, it does so with gradients that it has passed to `accumulated`. A
        `ValueError` says that the update needs anything else of a batch.
        """
        specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in given]
        with rewriting(purpose, num_replicas, shards=shards) as found:
            whole = traced_where_variables_are_made(step, specs, f"{name}_step")
        return cls._of(whole, purpose, found.replaced)

    @classmethod
    def _of(cls, whole: Any, purpose: Purpose, replaced: Sequence[Any]) -> "StepInAGraph":
        if not purpose.accumulates:
            return cls(whole, purpose, replaced, whole=whole)
        function, update = _halves(whole)
        return cls(function, purpose, replaced, update=update, whole=whole)

    @property
    def results(self) -> Any:
        """A structure of what a step returns, without gradients and what it hands on."""
        returned = self.whole.structured_outputs
        return returned[0] if isinstance(returned, tuple) else returned

    @property
    def num_shards(self) -> int:
        return num_shards_of(self.whole.graph)

    @property
    def can_be_traced_again(self) -> bool:
        return False

    def as_written(self) -> Any:
        """Returns step and weight update without what was replaced, for XLA; or `None`."""
        if not self.purpose.for_xla:
            return None
        return as_written(self.whole, [one for _, one in self.replaced])

    def for_tensorflow(self) -> "StepInAGraph":
        """Returns the step without what is replaced for XLA alone, as far as that can be undone."""
        purpose = replace(self.purpose, for_xla=False)
        gone = [one for rewrite, one in self.replaced if not rewrite.applies(purpose)]
        kept = [pair for pair in self.replaced if pair[0].applies(purpose)]
        whole = undone(self.whole, gone)
        return self if whole is None else self._of(whole, self.purpose, kept)


def _halves(whole: Any) -> tuple[Any, Any]:
    """Cuts a trace at its accumulated gradients into the step that returns them, and the update."""
    operations = whole.graph.get_operations()
    borders = [op for op in operations if op.name.rpartition("/")[2].startswith(_ACCUMULATED)]
    after = _after(borders, operations)
    writes = whole.graph.control_outputs
    results = tf.nest.map_structure(before_return, whole.structured_outputs)
    gradients = [op.inputs[0] for op in borders]
    step = extract(
        whole,
        (results, gradients),
        controls=[op for op in writes if op.name not in after],
        without=after,
    )
    update = extract(
        whole,
        [],
        given=[op.outputs[0] for op in borders],
        controls=[op for op in writes if op.name in after],
        without={op.name for op in operations} - after,
    )
    if update.inputs:
        names = [feeds_of(whole)[k].op.name for k in update.inputs]
        raise ValueError(
            "A weight update takes gradients of several batches, and nothing else of a batch: "
            "pass what the optimizer needs, such as a learning rate, as `inputs`. Received: an "
            f"optimizer that needs {', '.join(names)}, which is different in each batch"
        )
    return step.function, update.function


def _after(borders: Sequence[tf.Operation], operations: Sequence[tf.Operation]) -> set[str]:
    """Returns the names of some operations, and of all that need them."""
    found = {op.name for op in borders}
    for op in operations:  # operations come after what they need
        before = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        if any(one.name in found for one in before):
            found.add(op.name)
    return found
