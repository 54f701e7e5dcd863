"""Whether a program that was compiled may run, and what is written about it."""

import logging
from dataclasses import replace

import tensorflow as tf

from ipu_keras.cost.model import Model
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

    Args:
        executable: The compiled program; it has not run yet.
        outputs: What is asked for. A program of which there is no model may run, with a note,
            unless `debug.allowOutOfMemory` is `"false"`.
        again: Why, if programs of its name had been compiled before.

    Returns:
        What to log after each execution, if anything.

    Raises:
        ValueError: The tile of `--log_cycle_count` does not exist.
        tf.errors.ResourceExhaustedError: It does not fit on an IPU, and
            `debug.allowOutOfMemory` is not `"true"`. Files are written before.
        LoweringError: XLA cannot compile an operation of the program, which may therefore not run.
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


def _cycle_count(model: Model, program: Program, tile: int) -> CycleCount | None:
    target = model.target
    if tile >= target.num_tiles:
        raise ValueError(
            f"The flag --log_cycle_count in {ENVIRONMENT_VARIABLE} must name a tile of "
            f"{target.name}, 0 to {target.num_tiles - 1}. Received: {tile}"
        )
    if tile < 0:
        return None
    return CycleCount(tile=tile, cycles=model.cycles_per_step * program.repeat_count)


def _report(
    executable: Executable,
    model: Model,
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
