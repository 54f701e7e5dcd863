"""Traces a step as the host runs it, as a function of its own."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ipu_keras.host.rewrites.all_rewrites import FUSED_BATCH_NORMS, Purpose, Rewrite, rewrites_for
from ipu_keras.host.rewrites.fused_batch_norms import batch_norms
from ipu_keras.host.rewrites.replacement import undone
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.world import World
from ipu_keras.program import Program
from ipu_keras.tracing import layer_scopes, replicated, traced_for_xla
from ipu_keras.tracing.as_written import Replaced, as_written
from ipu_keras.tracing.replication import Shards


def variables_of(functions: Iterable[Any]) -> tuple[TensorSpec, ...]:
    """Returns the variables that traced functions read or write, each once."""
    distinct = {id(v): v for function in functions for v in function.graph.variables}
    return tuple(TensorSpec(tuple(v.shape.as_list()), v.dtype.name) for v in distinct.values())


@dataclass(frozen=True)
class TracedStep:
    """A step as the host runs it, and the weight update, if the program has one.

    Args:
        replaced: What rewrites replaced in the traces.
        could_fuse: Whether it has batch normalizations that TensorFlow computes faster if they
            are traced for TensorFlow.
    """

    function: Any
    purpose: Purpose
    replaced: Sequence[tuple[Rewrite, Replaced]] = ()
    could_fuse: bool = False
    update: Any = None

    @property
    def all_variables(self) -> list[Any]:
        """The variables that step and weight update read or write; some may be there twice."""
        functions = [self.function] if self.update is None else [self.function, self.update]
        return [variable for function in functions for variable in function.graph.variables]

    @property
    def variables(self) -> tuple[TensorSpec, ...]:
        return variables_of(
            [self.function] if self.update is None else [self.function, self.update]
        )

    @property
    def can_be_traced_again(self) -> bool:
        return True

    def as_written(self) -> Any:
        """Returns the step without what was replaced, for XLA; `None` if there is no such trace.

        It is a `tf.ConcreteFunction`, or one `AsWritten`.
        """
        if not self.purpose.for_xla or self.update is not None:
            return None
        return as_written(self.function, [one for _, one in self.replaced])

    def for_tensorflow(self) -> "TracedStep | None":
        """Returns the step without what is replaced for XLA alone; `None` if it cannot be."""
        purpose = replace(self.purpose, for_xla=False)
        gone = [one for rewrite, one in self.replaced if not rewrite.applies(purpose)]
        kept = [pair for pair in self.replaced if pair[0].applies(purpose)]
        of_update = [one for one in gone if self._is_of_update(one)]
        function = undone(self.function, [one for one in gone if not self._is_of_update(one)])
        update = None if self.update is None else undone(self.update, of_update)
        if function is None or (update is None and self.update is not None):
            return None
        return replace(self, function=function, replaced=kept, update=update)

    def _is_of_update(self, one: Replaced) -> bool:
        return self.update is not None and one.result.graph is self.update.graph

    def for_executor(self, function: Any) -> Any:
        """Applies rewrites to a finished function that TensorFlow's executor would run."""
        for rewrite in rewrites_for(replace(self.purpose, for_xla=False)):
            if rewrite.rewrites is not None:
                function = rewrite.rewrites(function)
        return function


def trace(program: Program, for_xla: bool, *, onednn: bool = False) -> TracedStep:
    """Traces one step as a function of its own, which is called once per step.

    It is written as XLA likes it, or as TensorFlow does.
    """

    num_fed = len(program.infeed)

    def step(*tensors):
        handed = [list(tensors[num_fed:])] if program.carried else []
        return program.step(program.unflatten(tensors[:num_fed]), *handed)

    step.__name__ = f"{program.name}_step"
    purpose = Purpose(for_xla, onednn, program.fast_math, program.update is not None)
    world = SYSTEM.world if program.num_processes > 1 else None
    with rewriting(purpose, program.num_replicas, world=world) as found:
        given = (*program.infeed, *program.carried)
        concrete = _traced(step, [tf.TensorSpec(s.shape, s.dtype) for s in given])
        update = None
        if program.update is not None:
            _, gradients = concrete.structured_outputs
            update = _update_of(program.name, program.update, bool(program.update_modes))
            update = _traced(update, gradients)
    return TracedStep(concrete, purpose, found.replaced, found.could_fuse, update)


@dataclass
class Found:
    """What was found and done while something was traced, as in `TracedStep`, once that is over."""

    replaced: Sequence[tuple[Rewrite, Replaced]] = ()
    could_fuse: bool = False


@contextlib.contextmanager
def rewriting(
    purpose: Purpose,
    num_replicas: int,
    *,
    shards: Shards = "refused",
    world: World | None = None,
) -> Iterator[Found]:
    """While this is open, operations are traced as the host computes them best."""
    rewrites = rewrites_for(purpose)
    found = Found()
    # Callbacks of rewrites see an operation in the order in which they are opened, that of the
    # table.
    with ExitStack() as opened:
        opened.enter_context(replicated(num_replicas, shards=shards, world=world))
        replaced = [
            (rewrite, opened.enter_context(rewrite.replaces()))
            for rewrite in rewrites
            if rewrite.replaces is not None
        ]
        norms = opened.enter_context(batch_norms(fused=FUSED_BATCH_NORMS in rewrites))
        if purpose.for_xla:
            opened.enter_context(traced_for_xla())
        opened.enter_context(layer_scopes())
        yield found
    for_tensorflow = rewrites_for(replace(purpose, for_xla=False))
    found.could_fuse = norms.found and not norms.fused and FUSED_BATCH_NORMS in for_tensorflow
    found.replaced = [(rewrite, one) for rewrite, pairs in replaced for one in pairs]


def _update_of(name: str, update: Callable[[list], Any], wants_results: bool) -> Callable:
    def run(*gradients):
        # Keras's updates return what nobody wants.
        returned = update(list(gradients))
        return list(returned) if wants_results else []

    run.__name__ = f"{name}_update"
    return run


def _traced(function: Callable, tensors: Sequence[Any]) -> Any:
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    return tf.function(function, autograph=False).get_concrete_function(*specs)
