"""How many graphs and models were made, and not found in a cache."""

import contextlib
import logging
from collections.abc import Iterator


class _Counter(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.count = 0

    def emit(self, record):
        self.count += record.msg == "Made a %s that no cache had."


@contextlib.contextmanager
def models_made() -> Iterator[_Counter]:
    """Counts them while this is open, in `count`."""
    logger, counter = logging.getLogger("ipu_keras"), _Counter()
    level = logger.level
    logger.addHandler(counter)
    logger.setLevel(logging.DEBUG)
    try:
        yield counter
    finally:
        logger.removeHandler(counter)
        logger.setLevel(level)
