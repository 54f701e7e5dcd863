"""Finds out why programs are compiled again."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ipu_keras.ir import TensorSpec
from ipu_keras.program import OutfeedMode

_LOGGER = logging.getLogger("ipu_keras")

_RESULTS = {
    OutfeedMode.ALL: "of all steps",
    OutfeedMode.LAST: "of the last step",
    OutfeedMode.LAST_OF_EACH: "of each replica's last step",
    OutfeedMode.SUM_OF_EACH: "of all steps, added up for each replica,",
}

# The reason when no part of the signature differs.
_ANEW = (
    "its step was made anew: `compile` was called, options were set, the system was configured "
    "otherwise, or another method runs it"
)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a compiled program can be run with.

    Args:
        tensors: Names and types of a step's inputs, such as `"data[0]"`.
        compiled: Whether the user asked for XLA or ruled it out; `None` for neither.
        values: Names and texts of other arguments of a function, such as `"args[1]"` and `"3"`.
    """

    tensors: tuple[tuple[str, TensorSpec], ...]
    repeat_count: int
    outfeed_mode: OutfeedMode
    compiled: bool | None
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Recompilation:
    """One compilation of a program that had been compiled before.

    Args:
        reasons: What differs from the most similar earlier signature, one sentence each, without
            a full stop.
    """

    program: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"Program {self.program!r} is compiled again: {'; '.join(self.reasons)}"


class CompilationHistory:
    """The signatures of a model's compiled programs, by name.

    Example:

    >>> history = CompilationHistory()
    >>> def signature(*shape):
    ...     tensors = (("data", TensorSpec(shape, "float32")),)
    ...     return Signature(
    ...         tensors=tensors, repeat_count=1, outfeed_mode=OutfeedMode.LAST, compiled=None
    ...     )
    >>> history.add("predict", signature(8, 2))
    >>> print(history.recompilation("predict", signature(4, 2)))
    Program 'predict' is compiled again: data has the shape (4, 2) instead of (8, 2)
    """

    def __init__(self) -> None:
        self._signatures: dict[str, list[Signature]] = {}
        self._recompilations: dict[str, list[Recompilation]] = {}

    def recompilation(self, program: str, signature: Signature) -> Recompilation | None:
        """Returns why a program is compiled again, or `None` if it is the first time."""
        before = self._signatures.get(program)
        if not before:
            return None
        # Among equally similar ones the last, which the user remembers best.
        found = min((differences(signature, old) for old in reversed(before)), key=len)
        return Recompilation(program, found or (_ANEW,))

    def recompilations(self, program: str) -> tuple[Recompilation, ...]:
        """Returns why programs of this name were compiled again, oldest first."""
        return tuple(self._recompilations.get(program, ()))

    def add(self, program: str, signature: Signature, again: Recompilation | None = None) -> None:
        """Remembers the signature of a program, and why it was compiled again if it was."""
        self._signatures.setdefault(program, []).append(signature)
        if again is not None:
            self._recompilations.setdefault(program, []).append(again)


def differences(new: Signature, old: Signature) -> tuple[str, ...]:
    """Returns what differs between two signatures, one sentence each."""
    return tuple(_differences(new, old))


def log(recompilation: Recompilation) -> None:
    """Warns the user, since compiling takes time that nobody expects in a later call."""
    _LOGGER.warning("%s.", recompilation)


def _differences(new: Signature, old: Signature) -> Iterator[str]:
    yield from _changed_tensors(dict(new.tensors), dict(old.tensors))
    yield from _changed_arguments(new, old)
    if new.repeat_count != old.repeat_count:
        yield f"`steps_per_execution` is {new.repeat_count} instead of {old.repeat_count}"
    if new.outfeed_mode is not old.outfeed_mode:
        yield (
            f"the results {_RESULTS[new.outfeed_mode]} are returned "
            f"instead of those {_RESULTS[old.outfeed_mode]}"
        )
    if new.compiled is not old.compiled:
        yield f"XLA is {_asked(new.compiled)} instead of {_asked(old.compiled)}"


def _changed_tensors(new: dict[str, TensorSpec], old: dict[str, TensorSpec]) -> Iterator[str]:
    for name, spec in new.items():
        before = old.get(name, spec)
        if spec.shape != before.shape:
            yield f"{name} has the shape {spec.shape} instead of {before.shape}"
        if spec.dtype != before.dtype:
            yield f"{name} has the dtype {spec.dtype} instead of {before.dtype}"


def _changed_arguments(new: Signature, old: Signature) -> Iterator[str]:
    """Yields arguments that were added, left out, or have another value or kind."""
    now, before = map(_texts, (new, old))
    yield from (f"{name} is given, which was not before" for name in now if name not in before)
    yield from (f"{name} is not given, which was before" for name in before if name not in now)
    for name, text in now.items():
        if text != before.get(name, text):
            yield f"{name} is {text} instead of {before[name]}"


def _texts(signature: Signature) -> dict[str, str]:
    return {name: "a tensor" for name, _ in signature.tensors} | dict(signature.values)


def _asked(compiled: bool | None) -> str:
    return {True: "asked for", False: "ruled out", None: "chosen by the compiler"}[compiled]
