"""TensorFlow's eager context: the functions and devices that it knows, and what it records.

`tf.config` and `tf.device` show a part of it. Custom devices and functions by name have no
public interface.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, InstanceOf, Module, PrivateName
from ipu_keras.internals.tensorflow.operations import definition_of

_MODULE = PrivateName(
    "tensorflow.python.eager",
    "context",
    Module(
        context=Function(),
        eager_mode=Function(),
        async_wait=Function(),
        global_seed=Function(),
        LogicalDevice=Function("name", "device_type"),
        PhysicalDevice=Function("name", "device_type"),
        Context=Class(
            members={
                "add_function_def": Function("self", "fdef"),
                "call_function": Function("self", "name", "tensor_inputs", "num_outputs"),
                "get_compiler_ir": Function(
                    "self",
                    keywords=(
                        "device_name",
                        "platform_name",
                        "function_name",
                        "flat_args",
                        "captured_inputs",
                        "stage",
                    ),
                ),
                "get_function_def": Function("self", "name"),
                "has_function": Function("self", "name"),
                "invoking_op_callbacks": InstanceOf(property),
                "is_custom_device": Function("self", "device_name"),
                "list_logical_devices": Function("self", "device_type"),
                "list_physical_devices": Function("self", "device_type"),
                "register_custom_device": Function(
                    "self", "device_capsule", "device_name", "device_info_capsule"
                ),
                "remove_function": Function("self", "name"),
            }
        ),
        _EagerTensorCache=Class(members={"put": Function("self", "key", "value")}),
        _device_parsing_cache=InstanceOf(dict),
    ),
)
_COPY = PrivateName(
    "tensorflow.python.framework.ops",
    "_EagerTensorBase._copy",
    Function("self", keywords=("device_name",)),
)
_IS_DETERMINISTIC = PrivateName(
    "tensorflow.python.framework.config", "is_op_determinism_enabled", Function()
)
_IN_XLA = PrivateName(
    "tensorflow.python.ops.control_flow_util", "GraphOrParentsInXlaContext", Function("graph")
)
_COULD_RECORD = PrivateName("tensorflow.python.eager.record", "could_possibly_record", Function())


def context_module() -> Any:
    """The module of the eager context, whose cache of device scopes can be replaced."""
    return _MODULE.get()


def eager_context() -> Any:
    """The eager context of the process. Asking for it does not initialise it."""
    return _MODULE.get().context()


def eagerly() -> AbstractContextManager[Any]:
    """While this is open, operations run at once, whatever graph is being built.

    `tf.init_scope` leaves functions only, and stays in the graph of a session.
    """
    return _MODULE.get().eager_mode()


@contextmanager
def without_callbacks() -> Iterator[None]:
    """While this is open, no callback sees new operations, as within callbacks themselves."""
    context = eager_context()
    before = context.invoking_op_callbacks
    context.invoking_op_callbacks = True
    try:
        yield
    finally:
        context.invoking_op_callbacks = before


def wait_for_operations() -> None:
    """Waits for all that runs asynchronously.

    `tf.experimental.async_clear_error` does so too, but drops errors.
    """
    _MODULE.get().async_wait()


def copied_to(tensor: Any, device_name: str) -> Any:
    """A copy of an eager tensor on a device; `tf.identity` would be dispatched as an operation."""
    _COPY.get()
    return tensor._copy(device_name=device_name)


def function_definition(name: str) -> Any:
    """Returns the definition of a function that TensorFlow knows, a `FunctionDef` of its own.

    Calls of a `Defun` of TensorFlow 1, whose operations have the name of the function, are written
    as those of other functions, so that nobody has to know of them.
    """
    definition = eager_context().get_function_def(name)
    instead: dict[str, str] = {}
    for node in definition.node_def:
        if definition_of(node.op) is None and knows_function(node.op):
            instead |= _written_as_call(node)
    if instead:
        for node in definition.node_def:
            node.input[:] = [instead.get(tensor, tensor) for tensor in node.input]
        for result, tensor in definition.ret.items():
            definition.ret[result] = instead.get(tensor, tensor)
    return definition


def _written_as_call(node: Any) -> dict[str, str]:
    """Has a node of a function's name call it; returns the new names of its results."""
    called = eager_context().get_function_def(node.op).signature
    node.attr["f"].func.name = node.op
    for name, arguments in (("Tin", called.input_arg), ("Tout", called.output_arg)):
        node.attr[name].list.type.extend(argument.type for argument in arguments)
    node.op = "StatefulPartitionedCall" if called.is_stateful else "PartitionedCall"
    return {
        f"{node.name}:{result.name}:0": f"{node.name}:output:{k}"
        for k, result in enumerate(called.output_arg)
    }


def add_definition(definition: Any) -> None:
    """Makes a `FunctionDef` known to TensorFlow, until `remove_function`."""
    eager_context().add_function_def(definition)


def remove_function(name: str) -> None:
    """Has TensorFlow forget a function."""
    eager_context().remove_function(name)


def knows_function(name: str) -> bool:
    """Whether TensorFlow knows a function, which it forgets when nothing refers to its trace."""
    return eager_context().has_function(name)


def may_record() -> bool:
    """Whether a tape may record what is computed now; a public tape tells that only of itself."""
    return _COULD_RECORD.get()()


def has_deterministic_operations() -> bool:
    """Whether operations are to be deterministic; `tf.config` can only be told so, not asked."""
    return _IS_DETERMINISTIC.get()()


def is_within_xla() -> bool:
    """Whether XLA is to compile the function that is being traced, or one around it."""
    return _IN_XLA.get()(tf.compat.v1.get_default_graph())


def seeds_in_a_function() -> tuple[int, int] | None:
    """Returns the seeds that a function traced now would give its first random operation.

    They are `None` if the user has set no seed; a `RuntimeError` says that operations were to
    be deterministic.
    """
    # With a global seed, TensorFlow takes the number of an operation in its function as the
    # second seed.
    number = None if _MODULE.get().global_seed() is None else 0
    first, second = tf.compat.v1.get_seed(number)
    return None if first is None else (first, second)
