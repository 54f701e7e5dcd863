"""Which patterns are enabled: rewrites of a graph, most of which leave results as they are."""

from collections.abc import Iterable
from typing import Any, Self

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.annotation_names import EXCLUDE_PATTERNS
from ipu_keras.popart.model.graph import Node
from ipu_keras.popart.options.enumerations import PatternsLevel, PreAliasPatternType
from ipu_keras.popart.options.kinds import BOOL
from ipu_keras.settings.option_warnings import OPTION_WARNINGS

# The gradient of a loss bypasses the softmax of its probabilities. It is the one pattern that
# changes results, where probabilities are too small for logarithms.
SOFTMAX_GRAD_DIRECT = "SoftMaxGradDirect"
# Computes the loss along with that gradient, so it is of use only with the other pattern.
_NLLL_WITH_SOFTMAX_GRAD_DIRECT = "NlllWithSoftMaxGradDirect"

# PopART has no code for the operations that these replace, and could not run them otherwise.
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
    "AdamDecompose",
    "AdaptiveDecompose",
    "SGD0Decompose",
    "SGD1Decompose",
    "SGD2Decompose",
    "GemmDecomposition",
    "LambSerialisedWeight",
    "PackedDataBlock",
    "SequenceExpander",
)
_DEFAULT = (
    "PreUniRepl",
    "PostNRepl",
    SOFTMAX_GRAD_DIRECT,
    _NLLL_WITH_SOFTMAX_GRAD_DIRECT,
    "OpToIdentity",
    "NegativeOneScale",
    "SplitGather",
    "SplitConvBias",
    "LogSoftmaxOp",
    "TanhGradOp",
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
_ON_REQUEST = (
    "DecomposeBinaryConstScalar",
    "TiedGather",
    "TiedGatherAccumulate",
    "TransposeToIdentityOrReshapePattern",
)

_LEVELS = {
    PatternsLevel.NoPatterns: (),
    PatternsLevel.Minimal: _MINIMAL,
    PatternsLevel.Default: (*_MINIMAL, *_DEFAULT),
    PatternsLevel.All: (*_MINIMAL, *_DEFAULT, *_ON_REQUEST),
}
# PopART's attributes, names and numbers of one pattern differ in upper and lower case.
_NAMES = {name.lower(): name for name in _LEVELS[PatternsLevel.All]}


class Patterns:
    """Which patterns are enabled.

    Patterns are rewrites of a graph that leave its results as they are. The emulator rewrites by
    rules of its own, so a choice changes nothing, except of `SoftMaxGradDirect`: sessions that
    train take the gradient of `nllloss` past the softmax that makes its probabilities, which is
    their difference from the labels, and without the pattern through it, where it vanishes with
    the probability of a label.

    Args:
        patterns: A level, or names of the only patterns that are enabled.

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
        # Past `__setattr__`, which knows names of patterns only.
        vars(self).update(_enabled=set(names), _runtime_asserts=True)

    def isPatternEnabled(self, pattern: str | PreAliasPatternType) -> bool:
        """Whether a pattern is enabled.

        Args:
            pattern: The pattern's name or number.

        Raises:
            popart_exception: There is no such pattern.
        """
        return _known(pattern) in self._enabled

    def enablePattern(self, pattern: str | PreAliasPatternType, enabled: bool) -> Self:
        """Enables or disables a pattern.

        Args:
            pattern: The pattern's name or number.
            enabled: Whether it is enabled from now on.

        Returns:
            These patterns, so that calls can be chained.

        Raises:
            popart_exception: There is no such pattern.
        """
        change = self._enabled.add if BOOL.taken("enabled", enabled) else self._enabled.discard
        change(_known(pattern))
        return self

    def enableRuntimeAsserts(self, enabled: bool) -> Self:
        """Says whether operations that need a pattern may fail without it. None does here.

        Args:
            enabled: Whether such operations may fail.

        Returns:
            These patterns, so that calls can be chained.
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
    """Returns the name of a pattern in the spelling of this module."""
    name = pattern.name if isinstance(pattern, PreAliasPatternType) else pattern
    if not isinstance(name, str):
        raise TypeError(f"The name of a pattern must be a str. Received: {pattern!r}")
    if name.lower() not in _NAMES:
        raise popart_exception(
            f"Unknown pattern {name!r}. There are: {', '.join(sorted(_NAMES.values()))}."
        )
    return _NAMES[name.lower()]


def warn_of_patterns(patterns: Patterns, *, trains: bool = False) -> None:
    """Warns of a choice of patterns that changes nothing; a session calls it when it is made.

    Raises a `TypeError` if they are no `Patterns`.
    """
    if not isinstance(patterns, Patterns):
        raise TypeError(
            "`patterns` must be popart.Patterns, such as popart.Patterns(popart.PatternsLevel."
            f"Default). Received: patterns={patterns!r} of type {type(patterns).__name__}"
        )
    default = Patterns()
    counts = _that_count(patterns) if trains else ()
    changed = [
        f"{name} ({'on' if patterns.isPatternEnabled(name) else 'off'})"
        for name in sorted(_NAMES.values())
        if patterns.isPatternEnabled(name) != default.isPatternEnabled(name) and name not in counts
    ]
    if vars(patterns)["_runtime_asserts"] != vars(default)["_runtime_asserts"]:
        changed.append("enableRuntimeAsserts (off)")
    OPTION_WARNINGS.warn(
        "Patterns",
        changed,
        lambda names: (
            f"These `patterns` were chosen, which have no meaning here: {names}. The emulator "
            "rewrites graphs by rules of its own, which leave results as they are, and reuses the "
            "memory of what is no longer needed in any case; leave them out."
        ),
        stacklevel=4,
    )


def _that_count(patterns: Patterns) -> tuple[str, ...]:
    """Returns the patterns whose choice has an effect in training."""
    if patterns.isPatternEnabled(SOFTMAX_GRAD_DIRECT):
        return (SOFTMAX_GRAD_DIRECT,)
    # Without the first, users have to turn off the second, too.
    return (SOFTMAX_GRAD_DIRECT, _NLLL_WITH_SOFTMAX_GRAD_DIRECT)


def excludes(node: Node, pattern: str) -> bool:
    """Whether `builder.excludePatterns` excluded a pattern for a node."""
    names = node.annotations.get(EXCLUDE_PATTERNS, ())
    return pattern.lower() in (name.lower() for name in names)


def warn_of_excluded(nodes: Iterable[Node], *, trains: bool) -> None:
    """Warns of what `builder.excludePatterns` said of nodes that changes nothing."""
    excluded = {
        name
        for node in nodes
        for name in node.annotations.get(EXCLUDE_PATTERNS, ())
        if not (trains and node.kind == "Nll" and name.lower() == SOFTMAX_GRAD_DIRECT.lower())
    }
    OPTION_WARNINGS.warn(
        "builder.excludePatterns",
        sorted(excluded),
        lambda names: (
            "Nodes exclude patterns by `builder.excludePatterns`, which has no meaning here: "
            f"{names}. The emulator rewrites graphs by rules of its own; leave it out."
        ),
        stacklevel=4,
    )
