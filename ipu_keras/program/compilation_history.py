"""Why programs are compiled again."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ipu_keras.ir import TensorSpec
from ipu_keras.program import OutfeedMode

_LOGGER = logging.getLogger("ipu_keras")

# Which results reach the host.
_RESULTS = {
    OutfeedMode.ALL: "of all steps",
    OutfeedMode.LAST: "of the last step",
    OutfeedMode.LAST_OF_EACH: "of each replica's last step",
    OutfeedMode.SUM_OF_EACH: "of all steps, added up for each replica,",
}

# When nothing that the signature has differs.
_ANEW = "its step was made anew: `compile` was called, options were set, or another method runs it"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a compiled program is good for.

    Args:
        tensors: Names and types of what a step takes, such as `"data[0]"`.
        repeat_count: Steps per execution.
        outfeed_mode: Which results of the steps reach the host.
        compiled: Whether the user asked for XLA or ruled it out.
        values: Names and texts of what else a function is given, such as `"args[1]"` and `"3"`.
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
        program: Its name.
        reasons: What differs from the compiled one that is most like it, one
            sentence each without a full stop.
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
        """Why a program is compiled again, or `None` if it is compiled for the first time.

        Args:
            program: Its name.
            signature: Of what is compiled now.
        """
        before = self._signatures.get(program)
        if not before:
            return None
        # Of several that are as close the last one, which the user remembers best.
        found = min((differences(signature, old) for old in reversed(before)), key=len)
        return Recompilation(program, found or (_ANEW,))

    def recompilations(self, program: str) -> tuple[Recompilation, ...]:
        """Why programs of this name were compiled again, oldest first."""
        return tuple(self._recompilations.get(program, ()))

    def add(self, program: str, signature: Signature, again: Recompilation | None = None) -> None:
        """Remembers what was compiled.

        Args:
            program: Its name.
            signature: What it is good for.
            again: Why, if it had been compiled before.
        """
        self._signatures.setdefault(program, []).append(signature)
        if again is not None:
            self._recompilations.setdefault(program, []).append(again)


def differences(new: Signature, old: Signature) -> tuple[str, ...]:
    """What a program has that another one has not, one sentence each.

    Args:
        new: Signature of the one.
        old: Signature of the other one.
    """
    return tuple(_differences(new, old))


def log(recompilation: Recompilation) -> None:
    """Tells the user, who may have thought that it takes no time."""
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
    """What is given or not, or is another value, or is a tensor in place of one."""
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
