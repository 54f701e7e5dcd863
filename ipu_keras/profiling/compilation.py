"""What happens whenever a program is compiled, whoever has it compiled."""

import dataclasses
from collections.abc import Callable

from ipu_keras.cost.small_programs import certainly_fits
from ipu_keras.device import IpuDevice
from ipu_keras.profiling.configured_options import (
    chosen_config,
    computing_target,
    memory_proportion,
)
from ipu_keras.profiling.requested_outputs import current_outputs
from ipu_keras.program.compilation_history import CompilationHistory, Recompilation, Signature, log
from ipu_keras.program.data_types import refuse_bfloat16
from ipu_keras.program.executable import Executable
from ipu_keras.progress import showing


def compiled(
    program: str,
    signature: Signature,
    history: CompilationHistory,
    device: IpuDevice,
    build: Callable[[], Executable],
) -> Executable:
    """Compiles a program, logs why if it was compiled before, and judges whether it fits.

    `judge` has the errors of programs that may not run. Those that compute in bfloat16, whoever
    made them, are a `TypeError`.

    Args:
        history: The compilations of the same model or function so far; it gets the signature.
        device: The device that will run the program, and counts its compilations.
    """
    again = history.recompilation(program, signature)
    with showing(f"compile {program}"):
        executable = dataclasses.replace(build(), history=history)
        refuse_bfloat16(executable.graph)
        executable = _with_outputs(executable, again)
    # What was refused by now was not compiled; what takes longest, XLA's work, is still to come.
    if again is not None:
        log(again)
    history.add(program, signature, again)
    device.engine.count_compilation(program)
    return executable


def _with_outputs(executable: Executable, again: Recompilation | None) -> Executable:
    """Models, writes and checks what is asked for whenever a program is compiled."""
    choices = executable.program.device_choices
    if choices is not None and not choices.is_modelled:
        return executable
    outputs = current_outputs(chosen_config(choices))
    # A model would cost each first step 5 to 25 %; for most programs a pass over the host's
    # graph, of 1 to 4 ms, shows that they fit.
    if not outputs.needs_model and certainly_fits(
        executable, computing_target(choices), memory_proportion=memory_proportion(choices)
    ):
        return executable
    # Most programs need no verdict, which imports the cost model.
    from ipu_keras.profiling.verdict import judge

    return dataclasses.replace(executable, cycle_count=judge(executable, outputs, again))
