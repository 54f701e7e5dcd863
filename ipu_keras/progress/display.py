"""Draws the phase that a compilation or a profile is in, by Rich."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ipu_keras.progress.progress import Progress

Draw = Callable[[Progress], None]


@contextlib.contextmanager
def display_on(stream: TextIO) -> Iterator[Draw]:
    """Yields a function that draws on a stream: a spinner on a terminal, else lines.

    There is one line for each phase. The spinner is gone when the context ends; lines stay.
    """
    console = Console(file=stream)
    if not stream.isatty() or console.is_dumb_terminal:
        yield _lines_on(stream)
        return
    spinner = Spinner("dots")
    # Rich would replace `sys.stdout` and `sys.stderr` to keep its drawing below what others
    # write. One cropped line needs no such help, and users who have replaced the streams keep
    # theirs.
    with Live(
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    ) as live:

        def draw(progress: Progress) -> None:
            text = Text(line(progress), overflow="ellipsis", no_wrap=True)
            spinner.update(text=text)
            live.update(spinner, refresh=True)

        yield draw


def line(progress: Progress) -> str:
    """The phase in words."""
    name, seconds, in_all = progress.now()
    if not name:
        return f"{progress.title}: {in_all:.1f} s"
    return f"{progress.title}: {name} {seconds:.1f} s, {in_all:.1f} s in all"


def _lines_on(stream: TextIO) -> Draw:
    shown = ""

    def draw(progress: Progress) -> None:
        nonlocal shown
        name, _, in_all = progress.now()
        if name and name != shown:
            shown = name
            stream.write(f"{progress.title}: {name}, after {in_all:.1f} s\n")
            stream.flush()

    return draw
