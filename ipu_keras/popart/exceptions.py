"""The exceptions that PopART raises, under the names that users catch."""

from ipu_keras.settings.names import legible


def _text(error: Exception) -> str:
    """Returns an error's text without characters that terminals obey; models come from anywhere."""
    return legible(Exception.__str__(error), "\n\t")


# None has an `__init__` of its own: AutoGraph raises exceptions anew that have Python's own.
class popart_exception(Exception):
    """What users asked for cannot be done; the text says what, and what to do instead."""

    __str__ = _text


class popart_internal_exception(Exception):
    """Something went wrong that users have no part in."""

    __str__ = _text


class poplar_exception(Exception):
    """The device, or its options, refused something."""

    __str__ = _text


class poplibs_exception(Exception):
    """An operation's implementation refused something."""

    __str__ = _text


class OutOfMemoryError:
    """Whether a program fits on its device; `prepareDevice` of a session's core fills it in."""

    def __init__(self) -> None:
        self._message: str | None = None
        self._summary_report = self._profile_path = ""

    def isSuccessful(self) -> bool:
        """Whether the program fits."""
        return self._message is None

    def getSummaryReport(self) -> str:
        """Returns what needs how much memory, if the program does not fit."""
        return self._summary_report

    def getProfilePath(self) -> str:
        """Returns the file with the profile of a program that does not fit, or an empty text."""
        return self._profile_path

    def fail(self, message: str, summary_report: str = "", profile_path: str = "") -> None:
        """Notes that a program does not fit; sessions call it."""
        self._message = message
        self._summary_report, self._profile_path = summary_report, profile_path

    def __str__(self) -> str:
        return self._message or "The program fits."

    def __repr__(self) -> str:
        return f"OutOfMemoryError({str(self)!r})"
