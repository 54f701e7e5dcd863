"""Changes what runs eagerly: lists of devices, scopes of `tf.device`, and how datasets are read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ipu_keras.hooks.installation import install, uninstall
from ipu_keras.internals.tensorflow.contexts import context_module
from ipu_keras.internals.tensorflow.datasets import eager_iterator

_LOGICAL, _PHYSICAL = "list_logical_devices", "list_physical_devices"
_SCOPES = "_device_parsing_cache"


class _ScopeCache(dict):
    """TensorFlow's cache of device scopes, which takes only devices that exist.

    Entering `tf.device` looks up the pair (enclosing scope, name) in a dict of
    `tensorflow.python.eager.context`. On a miss it merges the two names and stores the result.
    So checking what is stored sees complete names, and scopes that were entered before cost
    nothing.
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
    """Has TensorFlow list further devices, returned by `logical` and `physical` for a context.

    Physical ones are listed only for those who ask for their type: Keras takes any physical
    device other than a CPU as a reason to compile stock models with XLA.
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
    """Has `tf.device` refuse the scopes for which `check` raises, also while functions are traced.

    It takes the full name and its `DeviceSpec`. A reset of TensorFlow's context takes this
    back; calling it again renews it.
    """
    install(context_module(), _SCOPES, lambda cache: _ScopeCache(cache, check))


def forget_device_scopes(concerns: Callable[[Any], bool]) -> None:
    """Has scopes that were entered before be checked again, if their `DeviceSpec` `concerns` us."""
    scopes = getattr(context_module(), _SCOPES)
    for scope, (_, spec) in list(scopes.items()):
        if concerns(spec):
            scopes.pop(scope, None)


def keep_out_of_cached_shapes(is_ours: Callable[[Any], bool]) -> None:
    """Has TensorFlow keep no eager tensor that `is_ours` among the shapes that it keeps by rank.

    Gradients of reductions take them from there whatever the device: once one on an IPU had put
    its own there, those on a CPU ran on the IPU too. What else it keeps, it keeps by device.
    """

    def wrapper(original: Callable) -> Callable:
        def put(self, key, value):
            if not isinstance(key, int) or not is_ours(value):
                original(self, key, value)

        return put

    install(context_module()._EagerTensorCache, "put", wrapper)


def undo_devices() -> None:
    """Puts TensorFlow's lists, scopes and caches back as they were."""
    context = context_module()
    uninstall(context._EagerTensorCache, "put")
    uninstall(context, _SCOPES)
    uninstall(context.Context, _LOGICAL)
    uninstall(context.Context, _PHYSICAL)


def replace_iterators(replaced_by: Callable[[Any], Iterator | None]) -> None:
    """Lets another iterator stand in for one over a dataset, whenever an element is read.

    TensorFlow has no hook for it, so the step method of its eager iterator is wrapped.
    `replaced_by` may return `None` to read from TensorFlow's iterator, or raise so that nothing
    is read.
    """

    def wrapper(original: Callable) -> Callable:
        def _next_internal(self):
            other = replaced_by(self)
            return original(self) if other is None else next(other)

        return _next_internal

    install(eager_iterator(), "_next_internal", wrapper)
