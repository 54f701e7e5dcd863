"""A step as the host runs it, traced as a function of its own."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ipu_keras.host.rewrites.fused_batch_norms import batch_norms
from ipu_keras.host.rewrites.late_tiles import late_tiles
from ipu_keras.host.rewrites.pooling import POOLING_GRADIENT, fast_pooling_gradients
from ipu_keras.host.rewrites.random_bits import RANDOM_UNIFORM, compilable_random
from ipu_keras.host.rewrites.replacement import undone
from ipu_keras.host.rewrites.summed_products import joint_summed_products
from ipu_keras.host.rewrites.wide_products import PRODUCT, wide_products
from ipu_keras.ir import TensorSpec
from ipu_keras.program import Program
from ipu_keras.tracing import layer_scopes, replicated, traced_for_xla
from ipu_keras.tracing.as_written import Replaced, as_written


def variables_of(functions: Iterable[Any]) -> tuple[TensorSpec, ...]:
    """The variables that traced functions read or write, each once.

    Args:
        functions: Each a `tf.ConcreteFunction`.
    """
    distinct = {id(v): v for function in functions for v in function.graph.variables}
    return tuple(TensorSpec(tuple(v.shape), v.dtype.name) for v in distinct.values())


@dataclass(frozen=True)
class TracedStep:
    """A step as the host runs it.

    Args:
        function: A `tf.ConcreteFunction`.
        for_xla: Whether it was traced for XLA.
        replaced: What was replaced in it for the host's speed.
        could_fuse: Whether it has batch normalizations that TensorFlow computes faster if it
            is traced for TensorFlow.
        update: The trace of the weight update, if the program has one.
    """

    function: Any
    for_xla: bool
    replaced: Sequence[Replaced] = ()
    could_fuse: bool = False
    update: Any = None

    @property
    def variables(self) -> tuple[TensorSpec, ...]:
        """Those of the step and of the weight update."""
        return variables_of(
            [self.function] if self.update is None else [self.function, self.update]
        )

    def as_written(self) -> Any:
        """The step without what was replaced, for XLA; `None` if there is no such trace.

        Returns:
            A `tf.ConcreteFunction`, or one `AsWritten`.
        """
        if not self.for_xla or self.update is not None:
            return None
        return as_written(self.function, self.replaced)

    def for_tensorflow(self, *, onednn: bool) -> "TracedStep | None":
        """The step without what is replaced for XLA alone; `None` if there is no such trace.

        Args:
            onednn: Whether TensorFlow computes with oneDNN, whose pooling needs no replacement.
        """
        needless = {RANDOM_UNIFORM, PRODUCT, *([POOLING_GRADIENT] if onednn else [])}
        gone = [one for one in self.replaced if one.result.op.type in needless]
        kept = [one for one in self.replaced if one.result.op.type not in needless]
        function = undone(self.function, gone)
        return None if function is None else replace(self, function=function, replaced=kept)


def trace(program: Program, for_xla: bool, *, onednn: bool = False) -> TracedStep:
    """Traces one step as a function of its own, which is called once per step.

    Args:
        program: Whose step it is.
        for_xla: Whether to write it as XLA likes it, or as TensorFlow does.
        onednn: Whether TensorFlow computes with oneDNN. Its gradients of pooling take half
            the time of what replaces those of others.
    """

    def step(*tensors):
        return program.step(program.unflatten(tensors))

    step.__name__ = f"{program.name}_step"
    # Gradients of many batches may be computed together, by what knows TensorFlow's products.
    alone = for_xla and program.update is None
    with (
        replicated(program.num_replicas),
        fast_pooling_gradients() if for_xla or not onednn else nullcontext([]) as pooled,
        compilable_random() if for_xla else nullcontext([]) as drawn,
        joint_summed_products() as summed,
        late_tiles() as tiled,
        wide_products() if alone else nullcontext([]) as wide,
        batch_norms(fused=program.fast_math and not for_xla) as norms,
        traced_for_xla() if for_xla else nullcontext(),
        layer_scopes(),
    ):
        concrete = _traced(step, [tf.TensorSpec(s.shape, s.dtype) for s in program.infeed])
        update = None
        if program.update is not None:
            _, gradients = concrete.structured_outputs
            update = _traced(_update_of(program.name, program.update), gradients)
    could_fuse = norms.found and program.fast_math and not norms.fused
    instead = (*pooled, *drawn, *summed, *tiled, *wide)
    return TracedStep(concrete, for_xla, instead, could_fuse, update)


def _update_of(name: str, update: Callable[[list], Any]) -> Callable:
    def run(*gradients):
        update(list(gradients))

    run.__name__ = f"{name}_update"
    return run


def _traced(function: Callable, tensors: Sequence[Any]) -> Any:
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    return tf.function(function, autograph=False).get_concrete_function(*specs)
