"""XLA as TensorFlow has it: operations of its own, its kernels, and how it spreads operations.

None of its operations is among `tf.raw_ops`.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Compiled, Function, PrivateName
from ipu_keras.internals.tensorflow.protos import op_sharding

_CALL_MODULE = PrivateName(
    "tensorflow.compiler.tf2xla.ops.gen_xla_ops",
    "xla_call_module",
    Function("args", keywords=("version", "module", "Sout", "Tout", "platforms")),
)
_CUSTOM_CALL = PrivateName(
    "tensorflow.compiler.tf2xla.ops.gen_xla_ops",
    "xla_custom_call",
    Function("args", keywords=("target_name", "backend_config", "dtype", "shape", "name")),
)
_BARRIER = PrivateName(
    "tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_optimization_barrier", Function("input")
)
_REPLICA = PrivateName(
    "tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_replica_id", Function(keywords=("name",))
)
_KERNELS = PrivateName("tensorflow.python.util.pywrap_xla_ops", "get_cpu_kernel_names", Compiled())
_CONTROL_FLOW = PrivateName(
    "tensorflow.python.ops.control_flow_ops",
    "XLAControlFlowContext",
    Class(members={"Enter": Function("self"), "Exit": Function("self")}),
)
_GET_SHARDING = PrivateName(
    "tensorflow.python.compiler.xla.experimental.xla_sharding", "get_op_sharding", Function("op")
)
_ASSIGN_DEVICE = PrivateName(
    "tensorflow.python.compiler.xla.experimental.xla_sharding",
    "Sharding",
    Class("proto", members={"assign_device": Function("core")}),
)


def call_module(
    tensors: Sequence[tf.Tensor], *, version: int, module: str, shape: Sequence[int]
) -> tf.Tensor:
    """Calls a module in MLIR that has one float32 result.

    Args:
        tensors: What it takes.
        version: Of the format.
        module: Its text.
        shape: Of the result.
    """
    (result,) = _CALL_MODULE.get()(
        list(tensors),
        version=version,
        module=module,
        Sout=[shape],
        Tout=[tf.float32],
        platforms=["CPU"],
    )
    return result


def custom_call(
    tensors: Sequence[tf.Tensor],
    target: str,
    text: str,
    *,
    shape: Any,
    dtype: tf.DType,
    name: str | None = None,
) -> tf.Tensor:
    """Puts a call of any name into a graph, which keeps its text and which nothing has to run.

    Args:
        tensors: What it takes.
        target: The name of what is called.
        text: What the operation carries.
        shape: Of the result.
        dtype: Of the result.
        name: Of the operation.
    """
    return _CUSTOM_CALL.get()(
        list(tensors), target_name=target, backend_config=text, dtype=dtype, shape=shape, name=name
    )


def barrier(tensor: tf.Tensor) -> tf.Tensor:
    """The same tensor, computed apart from what takes it."""
    (result,) = _BARRIER.get()([tensor])
    return result


def replica_id(name: str | None = None) -> tf.Tensor:
    """The number of the replica that runs it; `tf.distribute` knows those of strategies only."""
    return _REPLICA.get()(name=name)


def cpu_kernels() -> frozenset[str]:
    """The kinds of operations that XLA compiles for a CPU, which no public list has."""
    return frozenset(_KERNELS.get()())


def control_flow_context() -> Any:
    """Between its `Enter` and `Exit`, graphs that are built are to be compiled by XLA.

    Publicly that is known of whole functions, which `jit_compile=True` says it of.
    """
    return _CONTROL_FLOW.get()()


def sharding_of(op: tf.Operation) -> Any:
    """How an operation is spread over devices, an `OpSharding`; `None` if nothing says so."""
    serialized = _GET_SHARDING.get()(op)
    return None if serialized is None else op_sharding(serialized)


def sharding_on(first: int, *others: int) -> bytes:
    """The `OpSharding` of an operation on one device, or on several, serialized."""
    proto = _ASSIGN_DEVICE.get().assign_device(first).proto
    proto.tile_assignment_devices.extend(others)
    return proto.SerializeToString()
