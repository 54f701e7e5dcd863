"""Messages of TensorFlow and XLA that have no public name, or none that can be parsed."""

from typing import Any

from ipu_keras.internals.forms import Form, PrivateName


class Message(Form):
    """The class of a message of protocol buffers.

    Args:
        *fields: Which it has.
    """

    def __init__(self, *fields: str):
        self._fields = fields

    def __str__(self) -> str:
        return f"a message with {', '.join(self._fields)}"

    def mismatch(self, found: Any) -> str | None:
        descriptor = getattr(found, "DESCRIPTOR", None)
        if descriptor is None:
            return f"a value of type {type(found).__name__}"
        missing = [name for name in self._fields if name not in descriptor.fields_by_name]
        return f"a message without {', '.join(missing)}" if missing else None


_FUNCTION_DEF = PrivateName(
    "tensorflow.core.framework.function_pb2",
    "FunctionDef",
    Message("signature", "node_def", "ret", "control_ret"),
)
_HLO_MODULE = PrivateName(
    "tensorflow.compiler.xla.service.hlo_pb2",
    "HloModuleProto",
    Message("computations", "entry_computation_id"),
)
_FRONTEND_ATTRIBUTES = PrivateName(
    "tensorflow.compiler.xla.xla_data_pb2", "FrontendAttributes", Message("map")
)
_OP_SHARDING = PrivateName(
    "tensorflow.compiler.xla.xla_data_pb2",
    "OpSharding",
    Message("type", "tile_assignment_devices"),
)

# In annotations, what `function_definition` makes.
FunctionDef = Any


def function_definition() -> FunctionDef:
    """An empty definition of a function; `tf.compat.v1.GraphDef` has only lists of them."""
    return _FUNCTION_DEF.get()()


def hlo_module(serialized: bytes) -> Any:
    """A module of XLA, which is public as text only."""
    return _HLO_MODULE.get().FromString(serialized)


def frontend_attributes(serialized: bytes = b"") -> Any:
    """What XLA hands on of an operation to its instructions without reading it: texts by name."""
    return _FRONTEND_ATTRIBUTES.get().FromString(serialized)


def op_sharding(serialized: bytes) -> Any:
    """How XLA spreads an operation over devices."""
    return _OP_SHARDING.get().FromString(serialized)
