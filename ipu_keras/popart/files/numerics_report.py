"""`popart.NumericsReport`: compares how two runs changed the weights of a model."""

import os
from dataclasses import dataclass

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load


@dataclass(frozen=True)
class _Weight:
    """How two runs A and B moved a weight, and how far apart, as sums of squares over elements."""

    name: str
    moved_a: float
    moved_b: float
    apart: float
    size: int

    @property
    def relative_error(self) -> float:
        if self.apart == 0:
            return 0.0
        # Roots first: a product of two sums of squares can overflow, or vanish.
        norms = np.sqrt(self.moved_a) * np.sqrt(self.moved_b)
        return float(self.apart / norms) if norms else float("inf")


class NumericsReport:
    """Compares how two runs, A and B, changed the weights of a model.

    With `dA = A1 - A0` and `dB = B1 - B0` the relative error of a weight is

        sum((dA - dB)**2) / sqrt(sum(dA**2) * sum(dB**2))

    computed in 64 bits. It is 0 if both runs moved the weight alike, and infinite if they did not
    and one of them left the weight as it was. PopART's documents have the class and its methods
    but no formula; this one was chosen as it is symmetric in A and B, and the same in all units.

    Args:
        A0: The path of A's model before the run, as `modelToHost` writes it.
        A1: The path of A's model after the run.
        B0: The path of B's model before the run.
        B1: The path of B's model after the run.

    Raises:
        popart_exception: A file is no model, the models differ in the names, shapes or types of
            their weights, or they have no weights of floating point.

    Example:

    >>> import tempfile, numpy as np, popart
    >>> def written(value):
    ...     builder = popart.Builder()
    ...     w = builder.addInitializedInputTensor(np.float32([value, 1]), "w")
    ...     builder.addOutputTensor(builder.aiOnnx.relu([w]))
    ...     path = tempfile.mkdtemp() + "/model.onnx"
    ...     builder.saveModelProto(path)
    ...     return path
    >>> report = NumericsReport(written(0), written(2), written(0), written(3))
    >>> report.getRelativeErrors()  # (2 - 3)**2 / sqrt(2**2 * 3**2)
    {'w': 0.16666666666666666}
    """

    def __init__(
        self,
        A0: str | os.PathLike[str],
        A1: str | os.PathLike[str],
        B0: str | os.PathLike[str],
        B1: str | os.PathLike[str],
    ):
        paths = {"A0": A0, "A1": A1, "B0": B0, "B1": B1}
        models = {which: _weights(path) for which, path in paths.items()}
        for which, weights in models.items():
            _check_alike(models["A0"], weights, which)
        if not models["A0"]:
            raise popart_exception(
                f"The models have no weights to compare. Received: A0={A0!r}. Expected: models "
                "with initialisers of floating point, as `modelToHost` of a session writes them."
            )
        a0, a1, b0, b1 = models.values()
        self._weights = [_compared(name, a0[name], a1[name], b0[name], b1[name]) for name in a0]

    def getRelativeErrors(self) -> dict[str, float]:
        """Returns the relative error of each weight by name, with the formula of the class."""
        return {weight.name: weight.relative_error for weight in self._weights}

    def report(self, id: str) -> str:
        """Returns a table, as text, of one weight and its relative error.

        Args:
            id: The name of the weight.

        Raises:
            popart_exception: The models have no such weight.
        """
        if id not in self.getRelativeErrors():
            raise popart_exception(
                f"The models have no weight {id!r}. They have: "
                f"{', '.join(each.name for each in self._weights)}."
            )
        return _table(["weight", "relative error"], [[id, f"{self.getRelativeErrors()[id]:.6g}"]])

    def fullReport(self) -> str:
        """Returns a table, as text, of all weights with the sums behind their relative errors."""
        return _table(
            ["weight", "elements", "|dA|^2", "|dB|^2", "|dA - dB|^2", "relative error"],
            [
                [
                    each.name,
                    str(each.size),
                    *(f"{number:.6g}" for number in (each.moved_a, each.moved_b, each.apart)),
                    f"{each.relative_error:.6g}",
                ]
                for each in self._weights
            ],
        )


def _weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the floating point initialisers of a model, which are what training changes."""
    initialisers = load(path).model.graph.initialisers
    return {
        name: array
        for name, array in initialisers.items()
        if np.issubdtype(array.dtype, np.floating)
    }


def _check_alike(first: dict[str, np.ndarray], others: dict[str, np.ndarray], which: str) -> None:
    if different := sorted(first.keys() ^ others.keys()):
        has, lacks = ("A0", which) if different[0] in first else (which, "A0")
        raise popart_exception(
            f"A NumericsReport compares models with the same weights. Received: {has} with, and "
            f"{lacks} without, {', '.join(map(repr, different))}. Write all four with "
            "`modelToHost` of sessions of one model."
        )
    for name, array in first.items():
        other = others[name]
        if (array.shape, array.dtype) != (other.shape, other.dtype):
            raise popart_exception(
                f"The weight {name!r} must have the same shape and type in all models. Received: "
                f"{list(array.shape)} and {array.dtype} in A0, {list(other.shape)} and "
                f"{other.dtype} in {which}"
            )


def _compared(name: str, a0: np.ndarray, a1: np.ndarray, b0: np.ndarray, b1: np.ndarray) -> _Weight:
    moved_a = a1.astype(np.float64) - a0
    moved_b = b1.astype(np.float64) - b0
    return _Weight(
        name,
        moved_a=_squares(moved_a),
        moved_b=_squares(moved_b),
        apart=_squares(moved_a - moved_b),
        size=a0.size,
    )


def _squares(array: np.ndarray) -> float:
    return float(np.square(array).sum())


def _table(titles: list[str], rows: list[list[str]]) -> str:
    """Formats a table whose first column is aligned to the left, and the others to the right."""
    lines = [titles, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
