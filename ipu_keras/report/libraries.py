"""Libraries that only some forms of a report need."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_report_extra(what: str) -> Iterator[None]:
    """Turns a missing library of the extra `report` into an error that says how to install it.

    Args:
        what: What is about to be made, as the beginning of a sentence.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        raise ImportError(
            f"{what} needs {package}, which is not installed. "
            'Install it with `pip install "ipu-keras[report]"`'
        ) from missing
