"""The exceptions that PopART raises, which have the names that users catch."""


def in_print(text: str) -> str:
    r"""A text without what terminals obey: models come from anywhere, and so do names in them.

    Args:
        text: It.

    Example:

    >>> in_print("\x1b[2Jgone")
    '\\x1b[2Jgone'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def _text(error: Exception) -> str:
    return in_print(Exception.__str__(error))


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
        """Whether it fits."""
        return self._message is None

    def getSummaryReport(self) -> str:
        """What needs how much memory, if it does not fit."""
        return self._summary_report

    def getProfilePath(self) -> str:
        """The file with the profile of a program that does not fit; empty if there is none."""
        return self._profile_path

    def fail(self, message: str, summary_report: str = "", profile_path: str = "") -> None:
        """Notes that it does not fit; for sessions.

        Args:
            message: What to tell users.
            summary_report: What needs how much memory.
            profile_path: The file with the profile.
        """
        self._message = message
        self._summary_report, self._profile_path = summary_report, profile_path

    def __str__(self) -> str:
        return self._message or "The program fits."

    def __repr__(self) -> str:
        return f"OutOfMemoryError({str(self)!r})"
