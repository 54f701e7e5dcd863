"""Libraries that only some forms of a report need."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_report_extra(what: str) -> Iterator[None]:
    """Around imports of the extra `report`: says how to install what is missing.

    Args:
        what: Is to be made, as the beginning of a sentence.

    Raises:
        ImportError: A library is missing.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        raise ImportError(
            f"{what} needs {package}, which is not installed. "
            'Install it with `pip install "ipu-keras[report]"`'
        ) from missing
