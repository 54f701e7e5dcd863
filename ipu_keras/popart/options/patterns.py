"""Which patterns are enabled: rewrites of a graph that leave its results as they are."""

import warnings
from collections.abc import Iterable
from typing import Any, Self

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import PatternsLevel, PreAliasPatternType
from ipu_keras.popart.options.values import BOOL

# Those without which PopART could not run some operations: it has no code for what they replace.
_MINIMAL = (
    "SubtractArg1GradOp",
    "MulArgGradOp",
    "ReciprocalGradOp",
    "SinGradOp",
    "CosGradOp",
    "TanToSinOverCos",
    "DivArg0GradOp",
    "DivArg1GradOp",
    "PowArg0GradOp",
    "PowArg1GradOp",
    "Atan2Arg0GradOp",
    "Atan2Arg1GradOp",
    "SqrtGradOp",
    "ExpGradOp",
    "Expm1GradOp",
    "LogGradOp",
    "Log1pGradOp",
    "FmodArg0GradOp",
    "CoshOp",
    "MatMulOp",
    "MatMulLhsGradOp",
    "MatMulRhsGradOp",
    "ConvDataGrad",
    "MultiConvDataGrad",
    "ConvFlipWeightsGradOp",
    "SplitGradOpToConcat",
    "SplitOp",
    "SumToAdd",
    "UpsampleToResize",
    "LSTMOp",
    "InitAccumulate",
    "RandomNormalLikeOpPattern",
    "RandomUniformLikeOpPattern",
    "ZerosLikeOpPattern",
    "DepthToSpaceOpPattern",
    "SpaceToDepthOpPattern",
    "ScanToLoop",
    "LoopScanOut",
    "ExpandCast",
)
_DEFAULT = (
    "PreUniRepl",
    "PostNRepl",
    "SoftMaxGradDirect",
    "NlllWithSoftMaxGradDirect",
    "OpToIdentity",
    "NegativeOneScale",
    "SplitGather",
    "PadSum",
    "ViewSimplify",
    "ContiguateIpuCopyIndices",
    "ConvFlipWeightsDoubleFlip",
    "SparseAccumulate",
    "AllReduceToIdentityPattern",
    "RemoveUnnecessaryLossGradCast",
    "UpdateInplacePrioritiesForIpu",
    "InPlace",
)
_ON_REQUEST = ("DecomposeBinaryConstScalar", "TiedGather", "TiedGatherAccumulate")

_LEVELS = {
    PatternsLevel.NoPatterns: (),
    PatternsLevel.Minimal: _MINIMAL,
    PatternsLevel.Default: (*_MINIMAL, *_DEFAULT),
    PatternsLevel.All: (*_MINIMAL, *_DEFAULT, *_ON_REQUEST),
}
# Attributes, names and numbers of a pattern differ in upper and lower case.
_NAMES = {name.lower(): name for name in _LEVELS[PatternsLevel.All]}


class Patterns:
    """Which patterns are enabled.

    Patterns are rewrites of a graph that leave its results as they are. Sessions take a choice of
    them, and no choice changes what is computed: the emulator rewrites by rules of its own.

    Args:
        patterns: A level, or names of the only ones that are enabled.

    Example:

    >>> patterns = Patterns(PatternsLevel.Minimal).enablePattern("PreUniRepl", True)
    >>> patterns.InPlace = True
    >>> patterns.PreUniRepl, patterns.isPatternEnabled("InPlace"), patterns.PostNRepl
    (True, True, False)
    """

    def __init__(
        self,
        patterns: PatternsLevel | Iterable[str | PreAliasPatternType] = PatternsLevel.Default,
    ):
        if isinstance(patterns, PatternsLevel):
            names: Iterable[str] = _LEVELS[patterns]
        elif isinstance(patterns, Iterable) and not isinstance(patterns, str):
            names = map(_known, patterns)
        else:
            raise TypeError(
                "`patterns` must be a PatternsLevel or a list of names. "
                f"Received: patterns={patterns!r}"
            )
        vars(self).update(_enabled=set(names), _runtime_asserts=True)

    def isPatternEnabled(self, pattern: str | PreAliasPatternType) -> bool:
        """Whether a pattern is enabled.

        Args:
            pattern: Its name or number.

        Raises:
            popart_exception: There is no such pattern.
        """
        return _known(pattern) in self._enabled

    def enablePattern(self, pattern: str | PreAliasPatternType, enabled: bool) -> Self:
        """Enables or disables a pattern.

        Args:
            pattern: Its name or number.
            enabled: Whether it is enabled from now on.

        Returns:
            These patterns.

        Raises:
            popart_exception: There is no such pattern.
        """
        change = self._enabled.add if BOOL.taken("enabled", enabled) else self._enabled.discard
        change(_known(pattern))
        return self

    def enableRuntimeAsserts(self, enabled: bool) -> Self:
        """Says whether operations that need a pattern may fail without it. None does here.

        Args:
            enabled: Whether they may.

        Returns:
            These patterns.
        """
        vars(self)["_runtime_asserts"] = BOOL.taken("enabled", enabled)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.lower() not in _NAMES:
            raise AttributeError(f"'Patterns' has no pattern {name!r}")
        return self.isPatternEnabled(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.lower() not in _NAMES:
            raise AttributeError(f"'Patterns' has no pattern {name!r}")
        self.enablePattern(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_NAMES.values()]

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Patterns) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Patterns([{', '.join(map(repr, sorted(self._enabled)))}])"


def _known(pattern: str | PreAliasPatternType) -> str:
    """The name of a pattern, as it is kept."""
    name = pattern.name if isinstance(pattern, PreAliasPatternType) else pattern
    if not isinstance(name, str):
        raise TypeError(f"The name of a pattern must be a str. Received: {pattern!r}")
    if name.lower() not in _NAMES:
        raise popart_exception(
            f"Unknown pattern {name!r}. There are: {', '.join(sorted(_NAMES.values()))}."
        )
    return _NAMES[name.lower()]


def warn_of_patterns(patterns: Patterns) -> None:
    """Warns of a choice of patterns, which changes nothing; sessions call it when they are made.

    Args:
        patterns: Of a session.
    """
    if patterns != Patterns():
        warnings.warn(
            f"`patterns` were chosen, which have no meaning here: {patterns!r}. The emulator "
            "rewrites graphs by rules of its own, which leave results as they are; leave them out.",
            stacklevel=4,
        )
