"""Which tensors a session returns, and how often."""

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import AnchorReturnTypeId
from ipu_keras.settings.arguments import integer_in


class AnchorReturnType:
    """Which values of an anchor a step returns.

    Args:
        artString: `"Final"`, `"EveryN"`, `"All"` or `"Sum"`, in any case.
        returnPeriod: The n of `"EveryN"`: the value of each n-th batch is returned.

    Raises:
        popart_exception: There is no such type, or the period does not go with it.
        TypeError: The period is no integer.

    Example:

    >>> AnchorReturnType("EveryN", 2).rp()
    2
    """

    def __init__(self, artString: str, returnPeriod: int | None = None):
        ids = {each.name.upper(): each for each in AnchorReturnTypeId}
        found = ids.get(str(artString).upper())
        if found is None:
            raise popart_exception(
                f"Invalid anchor return type {artString!r}. Use one of "
                f"{', '.join(repr(each.name) for each in AnchorReturnTypeId)}."
            )
        if found is AnchorReturnTypeId.EveryN:
            if returnPeriod is None:
                raise popart_exception(
                    "Must specify return period with option 'EVERYN': "
                    "AnchorReturnType('EveryN', n) returns every n-th batch."
                )
            returnPeriod = _integer("returnPeriod", returnPeriod)
            if returnPeriod <= 0:
                raise popart_exception(
                    "Anchor return period must be greater than zero. "
                    f"Received: returnPeriod={returnPeriod}"
                )
        elif returnPeriod is not None:
            raise popart_exception(
                f"A return period must not be supplied with option {str(artString).upper()!r}. "
                f"Received: returnPeriod={returnPeriod}. Leave it out, or use 'EVERYN'."
            )
        self._id = found
        self._period = 1 if returnPeriod is None else returnPeriod

    def id(self) -> AnchorReturnTypeId:
        """Which type it is."""
        return self._id

    def rp(self) -> int:
        """The return period, in batches.

        Raises:
            popart_exception: The type has none.
        """
        if self._id is not AnchorReturnTypeId.EveryN:
            raise popart_exception(
                "A return period should not be used for this anchor return type. "
                f"Received: {self._id.name!r}"
            )
        return self._period

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AnchorReturnType):
            return NotImplemented
        return (self._id, self._period) == (other._id, other._period)

    def __hash__(self) -> int:
        return hash((self._id, self._period))

    def __repr__(self) -> str:
        period = f", {self._period}" if self._id is AnchorReturnTypeId.EveryN else ""
        return f"AnchorReturnType({self._id.name!r}{period})"


class DataFlow:
    """How many batches a step takes, and what it returns.

    Args:
        batchesPerStep: Batches that each call of `run` takes.
        anchorTensors: Names of tensors, each with its `AnchorReturnType`; or a list of names.
        anchorReturnType: The type for all names of a list; `"All"` by default.

    Raises:
        popart_exception: There is no batch, or the return period of an anchor does not divide
            them.
        TypeError: `batchesPerStep` is no integer, `anchorTensors` is neither a dictionary nor a
            list, or a return type is no `AnchorReturnType`.

    Example:

    >>> DataFlow(4, {"loss": AnchorReturnType("Final")}).nAnchors()
    1
    """

    def __init__(
        self,
        batchesPerStep: int,
        anchorTensors: Mapping[str, AnchorReturnType] | Sequence[str] = (),
        anchorReturnType: AnchorReturnType | None = None,
    ):
        self._batches_per_step = _integer("batchesPerStep", batchesPerStep)
        if self._batches_per_step < 1:
            raise popart_exception(
                "'Batches per step' must be greater than zero. "
                f"Received: batchesPerStep={batchesPerStep}"
            )
        self._anchors = _anchors(anchorTensors, anchorReturnType)
        for name, kind in self._anchors.items():
            if kind.id() is AnchorReturnTypeId.EveryN:
                _check_period(name, kind.rp(), self._batches_per_step)

    def isAnchored(self, tensorId: str) -> bool:
        """Whether a tensor is returned."""
        return tensorId in self._anchors

    def nAnchors(self) -> int:
        """How many tensors are returned."""
        return len(self._anchors)

    def batchesPerStep(self) -> int:
        """Batches that each call of `run` takes."""
        return self._batches_per_step

    def anchors(self) -> list[str]:
        """Names of the tensors that are returned."""
        return list(self._anchors)

    def art(self, anchorId: str) -> AnchorReturnType:
        """Returns the return type of an anchor.

        Raises:
            popart_exception: No anchor has this name.
        """
        if anchorId not in self._anchors:
            raise popart_exception(
                f"{anchorId!r} is no anchor. There are: {', '.join(self._anchors) or 'none'}."
            )
        return self._anchors[anchorId]


def _integer(name: str, value: Any) -> int:
    number = integer_in(value)
    if number is None:
        raise TypeError(
            f"`{name}` must be an integer. Received: {name}={value!r} of type "
            f"{type(value).__name__}"
        )
    return number


def _anchors(given: Any, kind: AnchorReturnType | None) -> dict[str, AnchorReturnType]:
    if isinstance(given, Mapping):
        for name, each in given.items():
            if not isinstance(each, AnchorReturnType):
                raise TypeError(
                    "`anchorTensors` must have an AnchorReturnType for each tensor. Received: "
                    f"{each!r} for {name!r}"
                )
        return dict(given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            "`anchorTensors` must be a dictionary of AnchorReturnType by name of tensor, or a list "
            f"of names. Received: anchorTensors={given!r}"
        )
    if kind is not None and not isinstance(kind, AnchorReturnType):
        raise TypeError(
            f"`anchorReturnType` must be an AnchorReturnType. Received: {kind!r}. Make one with "
            f"popart.AnchorReturnType({kind!r})."
        )
    return dict.fromkeys(given, kind or AnchorReturnType("All"))


def _check_period(name: str, period: int, batches_per_step: int) -> None:
    if period > batches_per_step:
        raise popart_exception(
            "The return period of an anchor must not be greater than the batches of a step. "
            f"Received: {period} for {name!r}, with {batches_per_step} batches per step"
        )
    if batches_per_step % period:
        raise popart_exception(
            "The return period of an anchor must divide the batches of a step. "
            f"Received: {period} for {name!r}, with {batches_per_step} batches per step"
        )
