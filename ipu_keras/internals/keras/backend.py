"""Keras's backend: symbolic calls, the scopes of layers, and the LSTM over a whole sequence.

The public `keras.backend` has what users' layers need, and none of these.
"""

import collections
from collections.abc import Callable, MutableMapping
from typing import Any

from ipu_keras.internals.forms import Class, Function, Module, PrivateName

_COMPUTE_OUTPUT_SPEC = PrivateName("keras.src.backend", "compute_output_spec", Function("fn"))
_BACKEND = PrivateName(
    "keras.src",
    "backend",
    Module(
        lstm=Function(
            "inputs",
            "initial_state_h",
            "initial_state_c",
            "mask",
            keywords=(
                "kernel",
                "recurrent_kernel",
                "bias",
                "activation",
                "recurrent_activation",
                "return_sequences",
                "go_backwards",
                "unroll",
            ),
        )
    ),
)
_GET_MASK = PrivateName("keras.src.backend", "get_keras_mask", Function("x"))
_SET_MASK = PrivateName("keras.src.backend", "set_keras_mask", Function("x", "mask"))
_NAME_SCOPE = PrivateName(
    "keras.src.backend", "name_scope", Class(members={"__enter__": Function("self")})
)
_OPENED_SCOPE = PrivateName(
    "keras.src.backend.tensorflow.core",
    "name_scope",
    Class(assigned=("_tf_name_scope", "caller", "name")),
)
_GLOBAL_ATTRIBUTE = PrivateName(
    "keras.src.backend.common.global_state",
    "get_global_attribute",
    Function("name", "default", "set_to_default"),
)
_CALL_CONTEXT = PrivateName(
    "keras.src.layers.layer", "CallContext", Class(assigned=("entry_layer",))
)
_VARIABLE = PrivateName(
    "keras.src.backend.tensorflow.core",
    "Variable",
    Class(members={"_initialize_with_initializer": Function("self", "initializer")}),
)
_RESET_UIDS = PrivateName("keras.src.utils.naming", "reset_uids", Function())


def compute_output_spec(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function with `KerasTensor`s for tensors, without computing anything."""
    return _COMPUTE_OUTPUT_SPEC.get()(function, *args, **kwargs)


def with_mask_of(original: Any, tensor: Any) -> Any:
    """Returns a tensor to which the mask of another one is attached, if that has any."""
    mask = _GET_MASK.get()(original)
    if mask is not None:
        _SET_MASK.get()(tensor, mask)
    return tensor


def is_of_an_initializer(initial_value: Any) -> bool:
    """Whether Keras lets an initializer, which has a seed of its own, make this initial value."""
    method = _VARIABLE.get()._initialize_with_initializer
    # Keras hands TensorFlow a lambda that it makes in this method, so the lambda's code object
    # is among the method's constants. Nothing else tells it from a user's function.
    return getattr(initial_value, "__code__", None) in method.__code__.co_consts


def initialization_of(initial_value: Any) -> tuple[Any, Any] | None:
    """Returns the initializer that makes an initial value, and of what; `None` if there is none."""
    if not is_of_an_initializer(initial_value):
        return None
    names = initial_value.__code__.co_freevars
    cells = dict(zip(names, initial_value.__closure__, strict=True))
    return cells["initializer"].cell_contents, cells["self"].cell_contents


def number_names_anew() -> None:
    """Has Keras count the names that it makes up from the start, as in a new process.

    `keras.utils.clear_session` does that too, but also forgets policies and seeds.
    """
    _RESET_UIDS.get()()


def counts_of_names() -> MutableMapping[str, int]:
    """Returns how often Keras has made up each name; what is changed in it, Keras goes on with."""
    return _GLOBAL_ATTRIBUTE.get()("object_name_uids", collections.defaultdict(int), True)


def backend_module() -> Any:
    """Returns the backend's module, in which Keras's layer looks up `lstm` at each call."""
    return _BACKEND.get()


def name_scope() -> Any:
    """The class of the scopes that Keras opens for layers."""
    return _NAME_SCOPE.get()


def open_as(scope: Any, tf_scope: Any) -> None:
    """Has a Keras scope that is not entered yet enter another scope of TensorFlow."""
    _OPENED_SCOPE.get()
    scope._tf_name_scope = tf_scope


def called_layer() -> Any:
    """Returns the outermost layer that is being called; `None` outside of calls."""
    context = _GLOBAL_ATTRIBUTE.get()("current_call_ctx")
    if context is None:
        return None
    _CALL_CONTEXT.get()
    return context.entry_layer


def in_stateless_scope() -> bool:
    """Whether assignments to variables are only collected at the moment, and change nothing."""
    return _GLOBAL_ATTRIBUTE.get()("stateless_scope") is not None
