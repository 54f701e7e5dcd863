"""Compiles programs for devices that are not there, or not yet, which cannot run."""

from ipu_keras.host.traced_step import trace
from ipu_keras.popart.devices.info import DeviceInfo
from ipu_keras.popart.options.enumerations import DeviceConnectionType, DeviceType
from ipu_keras.profiling.configured_options import chosen_config
from ipu_keras.profiling.requested_outputs import current_outputs
from ipu_keras.profiling.verdict import judge
from ipu_keras.program import Program
from ipu_keras.program.data_types import refuse_bfloat16
from ipu_keras.program.executable import Executable
from ipu_keras.tracing import graph_of, no_garbage_collection

# An absent device is no device of TensorFlow's, so the variables that are traced live here.
_HOST = "/CPU:0"


def is_offline(device: DeviceInfo) -> bool:
    """Whether programs can only be compiled for a device."""
    return device.type is DeviceType.OfflineIpu


def is_absent(device: DeviceInfo) -> bool:
    """Whether a device is offline, or will be attached later than its program is compiled."""
    is_attached_now = device.connectionType is DeviceConnectionType.Always
    return is_offline(device) or not (is_attached_now or device.isAttached)


def place_of(device: DeviceInfo) -> str:
    """Returns the name of the TensorFlow device that holds the variables of a device's programs.

    Raises a `popart_exception` if the device is neither absent nor attached.
    """
    return _HOST if is_absent(device) else device.device.name


def check_executes(device: DeviceInfo) -> None:
    """Raises a `popart_exception` if a device is offline."""
    if is_offline(device):
        # To attach an offline device always fails, with the message that users should read.
        device.attach()


@no_garbage_collection()
def compiled_offline(program: Program) -> Executable:
    """Compiles a program that does not run; its variables are on the device of `place_of`.

    Raises a `ResourceExhaustedError` of TensorFlow if the modelled program does not fit.
    """
    step = trace(program, for_xla=True)
    executable = Executable(
        program=program,
        graph=graph_of(step.function),
        host=None,
        reason="the device is not there",
        as_written=step.as_written,
    )
    refuse_bfloat16(executable.graph)
    judge(executable, current_outputs(chosen_config(program.device_choices)))
    return executable
