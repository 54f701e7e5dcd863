"""What `tf.device` and `tf.config` know about IPU devices.

TensorFlow lists its physical devices only, and runs the ops of a device scope that names no
existing device on the CPU. Neither has a hook for custom devices, so the eager context is
extended (`ipu_keras.hooks`); `ipu_keras.device.registration` decides which devices there are.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from ipu_keras.hooks.tensorflow.eager import (
    check_device_scopes,
    extend_device_lists,
    forget_device_scopes,
    keep_out_of_cached_shapes,
    undo_devices,
)
from ipu_keras.internals.tensorflow.contexts import context_module

TASK = "/job:localhost/replica:0/task:0"

_ENDS_WITH_IPU = re.compile(r"IPU:(\d+)$")


def not_configured(requested: str, configured: Sequence[str]) -> str:
    """Returns the message for an IPU device that is not part of the configuration."""
    fix = "Use one of these, or ask for more" if configured else "Ask for some"
    return (
        f"{requested} is not configured; configured devices: {', '.join(configured) or 'none'}. "
        f"{fix} with `auto_select_ipus` or `select_ipus` of an `IPUConfig` and call its "
        "`configure_ipu_system()`."
    )


class ContextExtension:
    """Makes TensorFlow's eager context aware of IPU devices, while installed.

    - `tf.config.list_logical_devices` shows them, `list_physical_devices` when it
      is asked for type "IPU". Without a type it does not: Keras takes a physical
      device other than a CPU for a reason to compile stock models with XLA.
    - `tf.device` refuses IPU names that are neither configured nor acquired, also while
      a `tf.function` is traced: there it enters an eager scope as well.

    Args:
        configured: Returns the full names of the configured devices.
        acquired: Returns the full names of acquired devices, which are not listed.
    """

    def __init__(
        self,
        configured: Callable[[], tuple[str, ...]],
        acquired: Callable[[], tuple[str, ...]] = tuple,
    ):
        self._configured = configured
        self._acquired = acquired

    def install(self) -> None:
        """Extends the context class, and the scope cache in use now.

        Calling it again renews what a reset of the context has replaced. It does not initialise
        the context.
        """
        check_device_scopes(self._check)
        extend_device_lists(self._logical_devices, self._physical_devices, "IPU")
        keep_out_of_cached_shapes(lambda tensor: bool(_ENDS_WITH_IPU.search(tensor.device)))
        self.forget_scopes()

    def remove(self) -> None:
        undo_devices()

    def forget_scopes(self) -> None:
        """Makes IPU scopes that were entered before be checked anew."""
        forget_device_scopes(_is_ipu)

    def _check(self, name: str, spec: Any) -> None:
        if _is_ipu(spec) and name not in self._configured() + self._acquired():
            configured = [short_name(other) for other in self._configured()]
            # `from None`: the miss of the cache is no part of the user's mistake.
            raise ValueError(not_configured(short_name(name), configured)) from None

    def _logical_devices(self, ctx: Any) -> list:
        # A context that was reset knows no IPU until the devices are attached again.
        device = context_module().LogicalDevice
        return [
            device(short_name(name), "IPU")
            for name in self._configured()
            if ctx.is_custom_device(name)
        ]

    def _physical_devices(self, ctx: Any) -> list:
        # Must not initialise the context, as TensorFlow's own method does not.
        device = context_module().PhysicalDevice
        return [
            device(name.replace(f"{TASK}/device:", "/physical_device:"), "IPU")
            for name in self._configured()
        ]


def ordinal_of_placement(device: str) -> int | None:
    """Returns the k of `/device:IPU:k`; `None` if an operation is elsewhere, or on any IPU."""
    match = _ENDS_WITH_IPU.search(device)
    return None if match is None else int(match[1])


def short_name(name: str) -> str:
    """Returns a name as users write it, without the parts that say "this process"."""
    return name.removeprefix(TASK)


def _is_ipu(spec: Any) -> bool:
    # TensorFlow corrects the case of "cpu" and "gpu" only; "ipu" would be a
    # device that does not exist.
    return spec.device_type is not None and spec.device_type.upper() == "IPU"
