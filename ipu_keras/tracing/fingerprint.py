"""Tells whether two traced functions are the same to XLA, in whatever process they were traced."""

import hashlib
import os
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import eager_context
from ipu_keras.internals.tensorflow.functions import make_functions_known
from ipu_keras.internals.tensorflow.operations import definition_of
from ipu_keras.store.canonical_json import to_json
from ipu_keras.tracing.hlo import plain_name
from ipu_keras.tracing.lowering import inputs_of, is_known

# TensorFlow numbers the parts of loops and branches by what the process has traced before.
_COUNTER = re.compile(rb"(?<=_body)_\d+|(?<=_cond)_\d+|(?<=_true)_\d+|(?<=_false)_\d+")

# Attributes whose value is only such a number.
_COUNTERS = frozenset({"_gradient_op_type"})


def fingerprint(concrete) -> str:
    """Digests all that XLA's module of a function follows from.

    That is the function with all that it calls, its inputs, captured values, and the version
    and flags of XLA. Numbers in names that only count what the process traced before are left
    out, so that the digest can be a key in a store that processes share.

    Example:

    >>> import tensorflow as tf
    >>> spec = tf.TensorSpec((3,))
    >>> def trace(scale):
    ...     return tf.function(lambda x: x * scale).get_concrete_function(spec)
    >>> fingerprint(trace(2.0)) == fingerprint(trace(2.0)) != fingerprint(trace(3.0))
    True
    """
    found = hashlib.sha256()
    for part in _parts(concrete):
        found.update(b"%d:" % len(part) + part)
    return found.hexdigest()


def _parts(concrete) -> Iterator[bytes]:
    inputs = inputs_of(concrete)
    yield to_json((tf.__version__, os.environ.get("XLA_FLAGS", ""), inputs)).encode()
    captures = inputs[len(inputs) - len(concrete.captured_inputs) :]
    for given, capture in zip(captures, concrete.captured_inputs, strict=True):
        # A captured value can be a shape or an axis, which XLA reads while it lowers.
        if given.role == "capture" and is_known(capture):
            yield np.asarray(capture).tobytes()
    yield plain_name(concrete.function_def.signature.name).encode()
    make_functions_known(concrete.graph)
    functions = _Functions()
    yield from functions.parts(concrete.function_def)
    yield from functions.called()


class _Functions:
    """Numbers the functions that a function calls in the order in which they are seen.

    The number stands for the name, which may differ between processes.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def called(self) -> Iterator[bytes]:
        """Yields the parts of all functions seen so far, and of those that they call."""
        done = 0
        while done < len(self._numbers):
            name = list(self._numbers)[done]
            done += 1
            yield from self.parts(eager_context().get_function_def(name))

    def parts(self, function) -> Iterator[bytes]:
        """Yields the bytes that say what a function does."""
        for argument in function.signature.input_arg:
            yield _plain(f"{argument.name} {argument.type}")
        for node in function.node_def:
            yield self._operation(node.op)
            yield _plain(f"{node.name} {' '.join(node.input)}")
            for name in sorted(node.attr):
                if name not in _COUNTERS:
                    yield name.encode()
                    yield self._attribute(node.attr[name])
        for result in function.signature.output_arg:
            yield _plain(function.ret[result.name])
        for result in function.signature.control_output:
            yield _plain(function.control_ret[result])

    def _operation(self, kind: str) -> bytes:
        is_function = definition_of(kind) is None
        return self._number(kind) if is_function else kind.encode()

    def _attribute(self, attribute) -> bytes:
        if attribute.HasField("func"):
            return self._number(attribute.func.name)
        if attribute.list.func:
            return b" ".join(self._number(function.name) for function in attribute.list.func)
        return attribute.SerializeToString(deterministic=True)

    def _number(self, function: str) -> bytes:
        number = self._numbers.setdefault(function, len(self._numbers))
        return f"function {number} {plain_name(function)}".encode()


def _plain(text: str) -> bytes:
    return _COUNTER.sub(b"", text.encode())
