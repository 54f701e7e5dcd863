"""Says which phase a compilation or a profile is in.

Entry points such as `fit` open `showing`, and what they call says `phase`. A thread draws, and
only after two seconds, so that a short compilation imports no library and draws nothing. Where
nothing is to be shown there is no thread either, and a phase costs one look-up of a context
variable. Displays belong to the context that opened them: compilations in several threads do
not mix.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

from ipu_keras.progress.progress import Progress
from ipu_keras.settings.arguments import legible
from ipu_keras.settings.flags import current_flags

# Something shorter is over before a user would wonder what it does.
SECONDS_BEFORE = 2.0
_SECONDS_BETWEEN = 0.1


_SHOWN: ContextVar[Progress | None] = ContextVar("shown", default=None)

# A terminal has one line for all threads: the first that takes long has it.
_LINE = threading.Lock()


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Names the phase, as users read it, that runs within this context."""
    progress = _SHOWN.get()
    if progress is None:
        yield
        return
    before = progress.enter(name)
    try:
        yield
    finally:
        progress.leave(before)


@contextlib.contextmanager
def showing(title: str, *, seconds_before: float = SECONDS_BEFORE) -> Iterator[None]:
    """Shows which phase a compilation or a profile is in, if it takes long.

    `--show_progress_bar` of `TF_POPLAR_FLAGS` decides: `auto` draws on a terminal; `true` also
    writes a line for each phase where the standard error is no terminal; `false` shows nothing.
    Within another `showing` nothing is opened: the outer one shows the phases of both.
    """
    stream = sys.stderr
    if _SHOWN.get() is not None or not _is_wanted(stream):
        yield
        return
    progress, is_over = Progress(legible(title)), threading.Event()
    thread = threading.Thread(
        target=_show,
        args=(progress, is_over, stream, seconds_before),
        name="ipu_keras progress",
        daemon=True,
    )
    token = _SHOWN.set(progress)
    thread.start()
    try:
        yield
    finally:
        _SHOWN.reset(token)
        is_over.set()
        thread.join()


def _is_wanted(stream: TextIO | None) -> bool:
    # In a process without a console, such as one of `pythonw`, `sys.stderr` is `None`.
    if stream is None:
        return False
    chosen = current_flags().show_progress_bar
    return chosen == "true" or (chosen == "auto" and stream.isatty())


def _show(
    progress: Progress, is_over: threading.Event, stream: TextIO, seconds_before: float
) -> None:
    if is_over.wait(seconds_before) or not _LINE.acquire(blocking=False):
        return
    try:
        # Importing Rich takes a tenth of a second, which most compilations never have to pay.
        from ipu_keras.progress.display import display_on

        with display_on(stream) as draw:
            draw(progress)
            while not is_over.wait(_SECONDS_BETWEEN):
                draw(progress)
    finally:
        _LINE.release()
