"""Has the rates of vertices' inner loops, by operation and dtype."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ipu_keras.ir import RELU_GRADIENT
from ipu_keras.machine.target import Confidence, Target


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a worker's inner loop computes a vector, its loads and stores not included."""

    cycles: int
    vector: int
    confidence: Confidence = Confidence.DERIVED


@dataclass(frozen=True, slots=True)
class Element:
    """What a tile sees of a dtype.

    Args:
        kind: Whose instructions compute it: `"float32"`, `"float16"` or `"int"`.
        is_native: Whether the instructions are made for it. One that is not is counted as its
            kind, and the result is a guess.
    """

    kind: str
    num_bytes: int
    is_native: bool = True

    @property
    def num_words(self) -> int:
        """32-bit words that one element is computed in."""
        return max(1, self.num_bytes // 4)

    def natural_vector(self, target: Target) -> int:
        """Returns the elements that one load brings, or the words of wider elements."""
        return target.vector_bytes // min(self.num_bytes, 4)


ELEMENTS: Mapping[str, Element] = {
    "float32": Element("float32", 4),
    "float16": Element("float16", 2),
    "bool": Element("int", 1),
    "int8": Element("int", 1),
    "uint8": Element("int", 1),
    "int16": Element("int", 2),
    "uint16": Element("int", 2),
    "int32": Element("int", 4),
    "uint32": Element("int", 4),
    # Of what is narrower than a byte, each element has one, as in NumPy.
    **dict.fromkeys(
        ("int1", "int2", "int4", "uint1", "uint2", "uint4"), Element("int", 1, is_native=False)
    ),
    "int64": Element("int", 8, is_native=False),
    "uint64": Element("int", 8, is_native=False),
    **dict.fromkeys(
        (
            *("float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"),
            *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
            "float8_e8m0fnu",
        ),
        Element("float16", 1, is_native=False),
    ),
    "bfloat16": Element("float16", 2, is_native=False),
    "float64": Element("float32", 8, is_native=False),
    "complex64": Element("float32", 8, is_native=False),
    "complex128": Element("float32", 16, is_native=False),
}


def _rates(
    float32: Rate | None = None, float16: Rate | None = None, integer: Rate | None = None
) -> Mapping[str, Rate]:
    rates = {"float32": float32, "float16": float16, "int": integer}
    return {kind: rate for kind, rate in rates.items() if rate is not None}


def _guess(cycles: int, vector: int) -> Rate:
    return Rate(cycles, vector, Confidence.GUESSED)


_GUESSED_LOGICAL = _rates(integer=_guess(3, 2))
_GUESSED_ROUNDING = _rates(_guess(3, 2), _guess(6, 4))
_GUESSED_TRIGONOMETRY = _rates(_guess(2300, 1), _guess(25, 1))

# What poplibs' estimators have (popopsCycleEstimators), by XLA's opcode; the rest, and
# only that, is guessed after the nearest relative in this table.
ELEMENTWISE: Mapping[str, Mapping[str, Rate]] = {
    "abs": _rates(_guess(1, 2), _guess(1, 4), _guess(7, 1)),
    "add": _rates(Rate(1, 2), Rate(1, 4), Rate(7, 1)),
    "and": _GUESSED_LOGICAL,
    "atan2": _GUESSED_TRIGONOMETRY,
    "cbrt": _rates(_guess(312, 1), _guess(325, 1)),
    "ceil": _GUESSED_ROUNDING,
    "clamp": _rates(_guess(6, 2), _guess(8, 4), _guess(10, 1)),
    "compare": _rates(Rate(14, 4), Rate(9, 4), _guess(5, 1)),
    "complex": _rates(_guess(1, 2)),
    "convert": _rates(_guess(7, 4), _guess(7, 4), _guess(7, 4)),
    "cosine": _GUESSED_TRIGONOMETRY,
    "count-leading-zeros": _GUESSED_LOGICAL,
    "divide": _rates(Rate(10, 2), Rate(21, 4), Rate(277, 1)),
    "erf": _rates(Rate(41, 1), Rate(13, 1)),
    "exponential": _rates(Rate(6, 2), Rate(4, 4)),
    "exponential-minus-one": _rates(_guess(7, 2), _guess(5, 4)),
    "floor": _GUESSED_ROUNDING,
    # Of popnn's loops, for input and gradient, all cycles of a vector are known (poplibs,
    # PerformanceEstimation): they stand here for two, as loads come on top of those for one.
    "gelu": _rates(Rate(20, 4), Rate(10, 8)),
    "gelu-gradient": _rates(Rate(20, 4), Rate(10, 8)),
    "imag": _rates(_guess(1, 2)),
    "is-finite": _rates(_guess(14, 4), _guess(9, 4)),
    "log": _rates(Rate(12, 2), Rate(4, 4)),
    "log-plus-one": _rates(_guess(13, 2), _guess(5, 4)),
    "logistic": _rates(Rate(12, 2), Rate(6, 4)),
    # A computation of the program's own, as compiled code that nobody scheduled.
    "map": _rates(_guess(5, 1), _guess(5, 1), _guess(5, 1)),
    "maximum": _rates(Rate(3, 2), Rate(4, 4), _guess(5, 1)),
    "minimum": _rates(_guess(3, 2), _guess(4, 4), _guess(5, 1)),
    "multiply": _rates(Rate(1, 2), Rate(1, 4), Rate(7, 1)),
    "negate": _rates(_guess(1, 2), _guess(1, 4), _guess(7, 1)),
    "not": _GUESSED_LOGICAL,
    "or": _GUESSED_LOGICAL,
    "popcnt": _GUESSED_LOGICAL,
    "power": _rates(Rate(312, 1), Rate(325, 1), _guess(325, 1)),
    "real": _rates(_guess(1, 2)),
    "reduce-precision": _GUESSED_ROUNDING,
    # Of popnn's non-linearities, only the rates of ReLU itself are published: a comparison of
    # whole vectors, which the gradient makes and masks with.
    RELU_GRADIENT: _rates(_guess(3, 2), _guess(3, 4)),
    # A division, a rounding, a multiplication and a subtraction.
    "remainder": _rates(_guess(15, 2), _guess(29, 4), _guess(277, 1)),
    "round-nearest-afz": _GUESSED_ROUNDING,
    "round-nearest-even": _GUESSED_ROUNDING,
    "rsqrt": _rates(Rate(8, 2), Rate(19, 4)),
    "select": _rates(Rate(5, 1), Rate(5, 1), Rate(5, 1)),
    "shift-left": _GUESSED_LOGICAL,
    "shift-right-arithmetic": _GUESSED_LOGICAL,
    "shift-right-logical": _GUESSED_LOGICAL,
    "sign": _rates(_guess(3, 2), _guess(4, 4), _guess(5, 1)),
    "sine": _rates(Rate(2300, 1), Rate(25, 1)),
    "sqrt": _rates(Rate(10, 2), Rate(23, 4)),
    "subtract": _rates(Rate(1, 2), Rate(1, 4), Rate(7, 1)),
    "swish": _rates(Rate(22, 4), Rate(10, 8)),
    "swish-gradient": _rates(Rate(30, 4), Rate(18, 8)),
    "tan": _GUESSED_TRIGONOMETRY,
    "tanh": _rates(Rate(12, 2), Rate(4, 4)),
    "xor": _GUESSED_LOGICAL,
}

# The only operations whose loads and stores overlap.
_PIPELINED = frozenset(("add", "subtract", "multiply"))
# Operations that have three operands anyway, which their rates are for.
_TERNARY = frozenset(("clamp", "select"))


def element_named(dtype: str) -> Element:
    element = ELEMENTS.get(dtype)
    if element is None:
        raise ValueError(f"`dtype` {_expected(dtype, ELEMENTS)}. Received: dtype={dtype!r}")
    return element


def rate_of(operation: str, dtype: str) -> tuple[Element, Rate]:
    """Returns what a tile sees of a dtype, and how fast an operation computes it.

    Example:

    >>> _, rate = rate_of("divide", "float16")
    >>> rate.cycles, rate.vector, rate.confidence.value
    (21, 4, 'derived')
    >>> _, rate = rate_of("tanh", "int32")
    >>> rate.cycles, rate.vector, rate.confidence.value
    (12, 2, 'guessed')
    """
    element = element_named(dtype)
    rates = _rates_of(operation)
    # A chain mixes dtypes: what it compares are floats, what it then combines are truths. Others
    # meet in what TensorFlow makes of dtypes that hardly anything computes. So an operation that
    # is not known for the kind of a dtype has the rate of one that it is known for, a guess.
    if element.kind in rates:
        return element, rates[element.kind]
    return element, replace(next(iter(rates.values())), confidence=Confidence.GUESSED)


def extra_operands(operation: str, num_operands: int) -> int:
    """Returns the operands beyond those that the operation's rate is for."""
    return max(0, num_operands - (3 if operation in _TERNARY else 2))


def access_cycles(target: Target, operation: str, dtype: str, num_operands: int) -> int:
    """Returns the worker cycles of a vector's loads and stores, where the rate lacks them."""
    element, rate = rate_of(operation, dtype)
    # Source: poplibs, PerformanceEstimation: loops over natural vectors take 2 cycles more for
    # additions, subtractions and multiplications, 4 for other operations with one operand and 5
    # with two.
    extra = extra_operands(operation, num_operands)
    if rate.vector != element.natural_vector(target):
        return extra
    if num_operands == 1:
        return 4
    return extra + (2 if operation in _PIPELINED else 5)


def _rates_of(operation: str) -> Mapping[str, Rate]:
    rates = ELEMENTWISE.get(operation)
    if rates is None:
        raise ValueError(
            f"`operation` {_expected(operation, ELEMENTWISE)}. Received: operation={operation!r}"
        )
    return rates


def _expected(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"must be one of {', '.join(known)}{meant}"
