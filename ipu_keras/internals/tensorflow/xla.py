"""XLA as TensorFlow has it: special operations, kernels, and how operations are spread.

None of these operations is among `tf.raw_ops`.
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
    """Calls a module in MLIR that has one float32 result, of the given shape.

    The version is that of the serialization format.
    """
    spec = tf.TensorSpec(shape, tf.float32)
    (result,) = call_module_of(tensors, version=version, module=module, results=[spec])
    return result


def call_module_of(
    tensors: Sequence[tf.Tensor],
    *,
    version: int,
    module: str,
    results: Sequence[Any] | None = None,
) -> list[tf.Tensor]:
    """Calls a module in MLIR, whose results are by default of the tensors' shapes and types."""
    results = tensors if results is None else results
    return _CALL_MODULE.get()(
        list(tensors),
        version=version,
        module=module,
        Sout=[result.shape for result in results],
        Tout=[result.dtype for result in results],
        platforms=["CPU"],
    )


def transposes_products() -> bool:
    """Whether XLA computes a product whose result a barrier keeps from being laid out anew.

    That of TensorFlow 2.19 raises for some ("DotThunk requires all operands and outputs to be in
    dim0-major layout"); 2.20 was not tried.
    """
    major, minor, *_ = tf.__version__.split(".")
    return (int(major), int(minor)) >= (2, 21)


def custom_call(
    tensors: Sequence[tf.Tensor],
    target: str,
    text: str,
    *,
    shape: Any,
    dtype: tf.DType,
    name: str | None = None,
) -> tf.Tensor:
    """Puts a call into a graph that keeps its text, whether or not a target of that name exists."""
    return _CUSTOM_CALL.get()(
        list(tensors), target_name=target, backend_config=text, dtype=dtype, shape=shape, name=name
    )


def barrier(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the same tensor, which XLA computes apart from what takes it."""
    (result,) = _BARRIER.get()([tensor])
    return result


def replica_id(name: str | None = None) -> tf.Tensor:
    """Returns the number of the running replica; `tf.distribute` knows only those of strategies."""
    return _REPLICA.get()(name=name)


def cpu_kernels() -> frozenset[str]:
    """Returns the kinds of operations that XLA compiles for a CPU; no public list has them."""
    return frozenset(_KERNELS.get()())


def control_flow_context() -> Any:
    """Returns a context whose `Enter` and `Exit` enclose building graphs that XLA is to compile.

    The public `jit_compile=True` says that of whole functions only.
    """
    return _CONTROL_FLOW.get()()


def sharding_of(op: tf.Operation) -> Any:
    """Returns how an operation is spread over devices, an `OpSharding`, or `None`."""
    serialized = _GET_SHARDING.get()(op)
    return None if serialized is None else op_sharding(serialized)


def sharding_on(first: int, *others: int) -> bytes:
    """Returns the serialized `OpSharding` of an operation on one device, or on several."""
    proto = _ASSIGN_DEVICE.get().assign_device(first).proto
    proto.tile_assignment_devices.extend(others)
    return proto.SerializeToString()
