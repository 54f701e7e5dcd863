"""The exceptions that PopART raises, which have the names that users catch."""

from ipu_keras.settings.names import legible


class _Legible(Exception):
    """Models come from anywhere, and so do the names in them: terminals obey none of it."""

    # No `__init__`: TensorFlow's AutoGraph raises anew what has Python's own.
    def __str__(self) -> str:
        return legible(super().__str__(), "\n\t")


class popart_exception(_Legible):
    """What users asked for cannot be done; the text says what, and what to do instead."""


class popart_internal_exception(_Legible):
    """Something went wrong that users have no part in."""


class poplar_exception(_Legible):
    """The device, or its options, refused something."""


class poplibs_exception(_Legible):
    """An operation's implementation refused something."""


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
