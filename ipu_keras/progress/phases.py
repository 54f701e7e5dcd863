"""Which phase a compilation or a profile is in.

Doors open `showing`, and what they call says `phase`. A display is drawn by a thread of its own,
which begins to draw after two seconds, so that nothing is imported and nothing drawn for what is
over by then. Where nothing will be shown there is no thread either, and a phase costs one look-up
of a context variable.

Displays belong to the context that opened them: compilations in several threads do not mix.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

from ipu_keras.progress.progress import Progress
from ipu_keras.settings.flags import current_flags
from ipu_keras.settings.names import legible

# What is over before is not worth a line.
SECONDS_BEFORE = 2.0
_SECONDS_BETWEEN = 0.1


_SHOWN: ContextVar[Progress | None] = ContextVar("shown", default=None)

# A terminal has one line for all threads: the first that takes long has it.
_LINE = threading.Lock()


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Around a phase of what is shown, if anything is.

    Args:
        name: Of the phase, as users read it.
    """
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
    """Around a compilation or a profile, shows which phase it is in if it takes long.

    `--show_progress_bar` of `TF_POPLAR_FLAGS` decides: `auto` draws on a terminal; `true` also
    writes a line for each phase where the standard error is none; `false` shows nothing. Within
    another one, nothing is opened: the outer one shows the phases of both.

    Args:
        title: What is compiled or profiled.
        seconds_before: Seconds after which it takes long.
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
    # Processes without a console have no such stream.
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
        # Most of what is compiled is done by now, and needs no library that draws.
        from ipu_keras.progress.display import display_on

        with display_on(stream) as draw:
            draw(progress)
            while not is_over.wait(_SECONDS_BETWEEN):
                draw(progress)
    finally:
        _LINE.release()
