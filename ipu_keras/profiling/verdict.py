"""Whether a program that was compiled may run, and what is written about it.

This takes a `ModelledProgram`. Modules of reports, a third of all that a model imports, are
imported only for files and for programs that do not fit.
"""

import logging
from dataclasses import replace

import tensorflow as tf

from ipu_keras.cost.model import ModelledProgram
from ipu_keras.profiling.models import batch_size_of, model_of_executable
from ipu_keras.profiling.requested_outputs import RequestedOutputs
from ipu_keras.program import Program
from ipu_keras.program.compilation_history import Recompilation
from ipu_keras.program.executable import CycleCount, Executable
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE
from ipu_keras.tracing.lowering import LoweringError

_LOGGER = logging.getLogger("ipu_keras")


def judge(
    executable: Executable,
    outputs: RequestedOutputs,
    again: Recompilation | None = None,
) -> CycleCount | None:
    """Models a program that was just compiled, writes its files, and judges whether it fits.

    A program without a model may run, with a note in the log, unless `debug.allowOutOfMemory`
    is `"false"`.

    Args:
        again: Why it was compiled again; `None` the first time.

    Returns:
        What to log after each execution; `None` for nothing.

    Raises:
        ValueError: The tile of `--log_cycle_count` does not exist.
        tf.errors.ResourceExhaustedError: The program does not fit on an IPU, and
            `debug.allowOutOfMemory` is not `"true"`. Its files have been written.
        LoweringError: XLA cannot compile an operation of the program, which may therefore not
            run.
    """
    program = executable.program
    try:
        model = model_of_executable(executable)
    except LoweringError as error:
        if outputs.engine.allows_out_of_memory is False:
            raise
        reason = str(error).splitlines()[0]
        if outputs.needs_model:
            _LOGGER.warning(
                "There is no model of program %r, nor its files. %s", program.name, reason
            )
        else:
            _LOGGER.info("Whether program %r fits is not known. %s", program.name, reason)
        return None
    cycle_count = _cycle_count(model, program, outputs.flags.log_cycle_count)
    if outputs.has_files or not model.memory.fits:
        _report(executable, model, outputs, again)
    return cycle_count


def _cycle_count(model: ModelledProgram, program: Program, tile: int) -> CycleCount | None:
    target = model.target
    if tile >= target.num_tiles:
        raise ValueError(
            f"The flag --log_cycle_count in {ENVIRONMENT_VARIABLE} must name a tile of "
            f"{target.name}, 0 to {target.num_tiles - 1}. Received: {tile}"
        )
    if tile < 0:
        return None
    # All tiles show the same count, as they wait for each other.
    return CycleCount(tile=tile, cycles=model.cycles_per_step * program.repeat_count)


def _report(
    executable: Executable,
    model: ModelledProgram,
    outputs: RequestedOutputs,
    again: Recompilation | None,
) -> None:
    """Writes the program's files; refuses it, or warns, if it does not fit."""
    from ipu_keras.profiling.report_files import out_of_memory, write_files
    from ipu_keras.profiling.reports import report_of_program

    program = executable.program
    report = report_of_program(program, model, batch_size_of(program))
    is_refused = not (report.fits or outputs.engine.allows_out_of_memory)
    recompilations = executable.history.recompilations(program.name)
    # A program that is refused was not compiled, so it counts among no recompilations.
    if again is not None and not is_refused:
        recompilations += (again,)
    report = replace(report, recompilations=recompilations)
    write_files(report, outputs)
    if is_refused:
        raise tf.errors.ResourceExhaustedError(
            None, None, out_of_memory(report, program.device_choices)
        )
    if not report.fits:
        _LOGGER.warning("%s", out_of_memory(report, program.device_choices))
