"""Programs for devices that are not there, or not yet, which are compiled and not run."""

from ipu_keras.host.traced_step import trace
from ipu_keras.popart.devices.info import DeviceInfo
from ipu_keras.popart.options.enumerations import DeviceConnectionType, DeviceType
from ipu_keras.profiling.configured_options import chosen_config
from ipu_keras.profiling.requested_outputs import current_outputs
from ipu_keras.profiling.verdict import judge
from ipu_keras.program import Program
from ipu_keras.program.executable import Executable
from ipu_keras.tracing import graph_of, no_garbage_collection

# Where TensorFlow keeps what such a program reads.
_HOST = "/CPU:0"


def is_offline(device: DeviceInfo) -> bool:
    """Whether programs can only be compiled for a device.

    Args:
        device: It.
    """
    return device.type is DeviceType.OfflineIpu


def is_absent(device: DeviceInfo) -> bool:
    """Whether a device is not there, or not yet: programs are compiled for it all the same.

    Args:
        device: It.
    """
    is_attached_now = device.connectionType is DeviceConnectionType.Always
    return is_offline(device) or not (is_attached_now or device.isAttached)


def place_of(device: DeviceInfo) -> str:
    """The name of the TensorFlow device that keeps what programs of a device read.

    Args:
        device: It.

    Raises:
        popart_exception: It is not attached.
    """
    return _HOST if is_absent(device) else device.device.name


def check_executes(device: DeviceInfo) -> None:
    """Refuses to run anything on a device that is not there.

    Args:
        device: It.

    Raises:
        popart_exception: It is not.
    """
    if is_offline(device):
        device.attach()


@no_garbage_collection()
def compiled_offline(program: Program) -> Executable:
    """Compiles a program that does not run, and judges whether it fits.

    Args:
        program: It; what it reads is on the device of `place_of`.

    Raises:
        tf.errors.ResourceExhaustedError: It does not fit on the device.
    """
    step = trace(program, for_xla=True)
    executable = Executable(
        program=program,
        graph=graph_of(step.function),
        host=None,
        reason="the device is not there",
        as_written=step.as_written,
    )
    judge(executable, current_outputs(chosen_config(program.device_choices)))
    return executable
