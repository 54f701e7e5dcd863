"""The exceptions of PopART, under the names that scripts catch.

As in release 2.1 they are unrelated classes, so that catching one catches no other.
"""

from ipu_keras.settings.arguments import legible

__all__ = [
    "OutOfMemoryError",
    "popart_exception",
    "popart_internal_exception",
    "poplar_exception",
    "poplibs_exception",
]


def _text(error: Exception) -> str:
    """Returns the message without control characters, which names in a hostile model may have."""
    return legible(Exception.__str__(error), "\n\t")


# None defines `__init__`: TensorFlow's AutoGraph keeps the class of an error in traced code only if
# that has the `__init__` of `Exception`.


class popart_exception(Exception):
    """What a user asked for cannot be done; the message says why, and what to do instead."""

    __str__ = _text


class popart_internal_exception(Exception):
    """Something went wrong inside, through no fault of the user."""

    __str__ = _text


class poplar_exception(Exception):
    """The device or its options refused something, or the program ended itself."""

    __str__ = _text


class poplibs_exception(Exception):
    """The implementation of an operation refused something."""

    __str__ = _text


class OutOfMemoryError:
    """Says whether a program fits on its device; a session's `prepareDevice` fills it in."""

    def __init__(self) -> None:
        self._message: str | None = None
        self._summary_report = self._profile_path = ""

    def isSuccessful(self) -> bool:
        """Whether the program fits on its device."""
        return self._message is None

    def getSummaryReport(self) -> str:
        """Returns a text of what needs how much memory; empty if the program fits."""
        return self._summary_report

    def getProfilePath(self) -> str:
        """Returns the path of the profile, if one was written of a program that does not fit."""
        return self._profile_path

    def fail(self, message: str, summary_report: str = "", profile_path: str = "") -> None:
        """Notes for a session that the program does not fit."""
        self._message = message
        self._summary_report, self._profile_path = summary_report, profile_path

    def __str__(self) -> str:
        return self._message or "The program fits."

    def __repr__(self) -> str:
        return f"OutOfMemoryError({str(self)!r})"
