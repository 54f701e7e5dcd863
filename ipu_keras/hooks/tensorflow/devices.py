"""What TensorFlow's eager context knows about devices: its lists, and the scopes of `tf.device`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ipu_keras.hooks.installation import install, uninstall
from ipu_keras.internals.tensorflow.contexts import context_module

_LOGICAL, _PHYSICAL = "list_logical_devices", "list_physical_devices"
_SCOPES = "_device_parsing_cache"


class _ScopeCache(dict):
    """TensorFlow's cache of device scopes, which takes only devices that exist.

    Entering `tf.device` looks up the pair (enclosing scope, name) in a dict of
    `tensorflow.python.eager.context`. On a miss it merges the two names and
    stores the result, so checking what is stored sees complete names and costs
    the scopes that were entered before nothing.

    Args:
        entries: The scopes that are cached already.
        check: Called with the merged name and its `DeviceSpec`; raises to refuse.
    """

    def __init__(self, entries: Mapping, check: Callable[[str, Any], None]):
        super().__init__(entries)
        self._check = check

    def __setitem__(self, scope, merged):
        self._check(*merged)
        super().__setitem__(scope, merged)


def extend_device_lists(
    logical: Callable[[Any], list], physical: Callable[[Any], list], device_type: str
) -> None:
    """Has TensorFlow list further devices.

    Physical ones are listed for those who ask for their type only: Keras takes any physical
    device other than a CPU for a reason to compile stock models with XLA.

    Args:
        logical: Returns further logical devices of a context.
        physical: Returns further physical devices of a context.
        device_type: Their type.
    """

    def with_more(more: Callable[[Any], list], asked_for: Iterable[str | None]) -> Callable:
        def wrapper(original: Callable) -> Callable:
            def list_devices(self, device_type=None):
                devices = original(self, device_type)
                return devices + more(self) if device_type in asked_for else devices

            return list_devices

        return wrapper

    context = context_module().Context
    install(context, _LOGICAL, with_more(logical, (None, device_type)))
    install(context, _PHYSICAL, with_more(physical, (device_type,)))


def check_device_scopes(check: Callable[[str, Any], None]) -> None:
    """Has `tf.device` refuse names, also while a `tf.function` is traced.

    A reset of TensorFlow's context takes this back; calling it again renews it.

    Args:
        check: Called with the full name of a scope and its `DeviceSpec`; raises to refuse.
    """
    install(context_module(), _SCOPES, lambda cache: _ScopeCache(cache, check))


def forget_device_scopes(concerns: Callable[[Any], bool]) -> None:
    """Makes scopes that were entered before be checked anew.

    Args:
        concerns: Whether a `DeviceSpec` is one of them.
    """
    scopes = getattr(context_module(), _SCOPES)
    for scope, (_, spec) in list(scopes.items()):
        if concerns(spec):
            scopes.pop(scope, None)


def undo_devices() -> None:
    """Puts TensorFlow's lists and scopes back as they were."""
    context = context_module()
    uninstall(context, _SCOPES)
    uninstall(context.Context, _LOGICAL)
    uninstall(context.Context, _PHYSICAL)
