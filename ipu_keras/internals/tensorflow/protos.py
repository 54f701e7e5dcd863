"""Messages of TensorFlow and XLA that have no public name, or no public way to parse them."""

from typing import Any

from ipu_keras.internals.forms import Form, PrivateName


class Message(Form):
    """The class of a protocol buffer message with certain fields."""

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

# For annotations: what `function_definition` returns.
FunctionDef = Any


def function_definition() -> FunctionDef:
    """Makes an empty definition of a function; `tf.compat.v1.GraphDef` has only lists of them."""
    return _FUNCTION_DEF.get()()


def hlo_module(serialized: bytes) -> Any:
    """Parses a module of XLA, which is public as text only."""
    return _HLO_MODULE.get().FromString(serialized)


def frontend_attributes(serialized: bytes = b"") -> Any:
    """Parses the texts that XLA hands on, unread, from an operation to its instructions."""
    return _FRONTEND_ATTRIBUTES.get().FromString(serialized)


def op_sharding(serialized: bytes) -> Any:
    """Parses how XLA spreads an operation over devices."""
    return _OP_SHARDING.get().FromString(serialized)
