"""What else to know about the figures of a program."""

from collections.abc import Iterator, Mapping, Sequence

from ipu_keras.cost.model import ModelledProgram
from ipu_keras.program.compilation_history import Recompilation
from ipu_keras.report.fullest_tile import fullest_tile
from ipu_keras.report.options_in_words import ipus_in_words
from ipu_keras.report.pipeline_view import PipelineView


def remarks(
    model: ModelledProgram,
    pipeline: PipelineView | None,
    guesses: Mapping[str, Sequence[str]],
    recompilations: Sequence[Recompilation],
) -> Iterator[str]:
    """Yields a sentence for each thing to know, without a full stop.

    Args:
        guesses: Operations whose cost is guessed, by the reason as a clause that "them"
            completes.
        recompilations: Recompilations of programs of this name, oldest first.
    """
    memory, ipus = model.memory, ipus_in_words(model.options)
    if ipus != "1 IPU":
        yield f"It is for {ipus}"
    if memory.num_ipus > 1:
        yield f"The fullest tile is {fullest_tile(memory)} of {memory.num_ipus}"
    if pipeline is not None:
        yield str(pipeline)
    if model.options.num_io_tiles:
        yield _of_io_tiles(model)
    # Without this remark, a refusal for the size of code would look as sure as one for values.
    without_code = memory.max_tile_bytes - memory.code_bytes
    code_decides = not memory.fits and without_code <= memory.tile_bytes
    if code_decides or not memory.code_fits:
        yield "Bytes of code are a guess of the model: no sizes of code are published"
    if code_decides:
        yield (
            f"Without its {memory.code_bytes:,} bytes of code, the fullest tile would need "
            f"{without_code:,} bytes, and the program would fit"
        )
    if model.program.remote_bytes:
        yield f"{model.program.remote_bytes:,} bytes lie in remote memory"
    loops = model.program.num_unknown_loops
    if loops:
        yield f"{loops} loops whose trips depend on data count with their bound, or once"
    for reason, kinds in guesses.items():
        if kinds:
            yield f"Guessed, because {reason} them: {', '.join(kinds)}"
    if recompilations:
        number, last = len(recompilations), recompilations[-1]
        times = "once" if number == 1 else f"{number} times"
        yield f"Compiled again {times}, last because {'; '.join(last.reasons)}"


def _of_io_tiles(model: ModelledProgram) -> str:
    """Says whether tiles for input and output hide copies with the host."""
    options, held = model.options, model.io_tile_bytes
    apart = f"{options.num_io_tiles:,} more tiles of each IPU are for input and output"
    if not options.place_ops_on_io_tiles:
        return f"{apart}, which is on the others: `place_ops_on_io_tiles` is not set"
    if held > model.io_tile_capacity:
        return (
            f"{apart}, which is on the others: it is {held:,} bytes, and these tiles may hold "
            f"{model.io_tile_capacity:,}"
        )
    return (
        f"{apart}: {model.hidden_host_cycles:,} cycles per step of the host's copies pass while "
        "the others compute"
    )
