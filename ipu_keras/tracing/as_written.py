"""Gives traced functions as users wrote them, without what was replaced for the host's speed."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import eager_context
from ipu_keras.internals.tensorflow.protos import FunctionDef, function_definition
from ipu_keras.tracing.definitions import (
    another_name,
    leave_out_unneeded,
    name_in_definition,
    take_instead,
)


@dataclass(frozen=True)
class Replaced:
    """A result as the user's code asked for it, and the other one that it got instead."""

    result: tf.Tensor
    other: tf.Tensor


def as_written(concrete: Any, replaced: Sequence[Replaced]) -> Any:
    """Undoes replacements in the definition of a function, as far as lowering needs it.

    No second graph is built, which would take ten times as long. If nothing was replaced, the
    function itself is returned; `None` if something was replaced in a function that it calls.
    """
    if not replaced:
        return concrete
    inside = all(one.result.graph is concrete.graph for one in replaced)
    return AsWritten(concrete, replaced) if inside else None


class AsWritten:
    """A traced function without replacements, for whoever lowers it or compares it with others.

    It has what they ask of a `tf.ConcreteFunction`. Its graph still has the replacements:
    tensors are renamed only in its definition. `instead` has the original of each replacement,
    by `ref()`.
    """

    def __init__(self, concrete: Any, replaced: Sequence[Replaced]):
        self.graph = concrete.graph
        self.inputs = concrete.inputs
        self.structured_outputs = concrete.structured_outputs
        self.captured_inputs = concrete.captured_inputs
        self.instead = {one.other.ref(): one.result for one in replaced}
        self._concrete = concrete

    @cached_property
    def function_def(self) -> FunctionDef:
        """The definition without replacements, under a name of its own."""
        definition = function_definition()
        definition.CopyFrom(self._concrete.function_def)
        definition.signature.name = another_name(definition.signature.name)
        pairs = [(reference.deref(), result) for reference, result in self.instead.items()]
        names = {name_in_definition(other): name_in_definition(result) for other, result in pairs}
        take_instead(definition, names)
        leave_out_unneeded(definition, needless={other.op.name for other, _ in pairs})
        return definition

    @property
    def name(self) -> bytes:
        return self.function_def.signature.name.encode()

    @contextlib.contextmanager
    def defined(self) -> Iterator[None]:
        """While this is open, TensorFlow knows the function by its name."""
        eager_context().add_function_def(self.function_def)
        try:
            yield
        finally:
            eager_context().remove_function(self.function_def.signature.name)
