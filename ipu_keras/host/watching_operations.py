"""What programs do so that their executions can be watched: they note and keep, and give nothing.

Kernels do so for TensorFlow's executor, and functions that XLA's programs call
(`_cext/exceptions.pxi`). What they write to belongs to whoever watches.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._rounding import NotFiniteFlag
from ipu_keras.host.random_rounding import (
    KEEPING,
    MODULE_VERSION,
    NOTING,
    register_in_xla,
    register_kernels,
)
from ipu_keras.internals.tensorflow.xla import call_module_of

LOOKED_AT = (tf.float16, tf.float32, tf.float64)

# Each value that is kept begins a line of the cache, as in `_cext/exceptions.pxi`.
_LINE = 64

_MODULE = """module attributes {{jax.uses_shape_polymorphism = true}} {{
  func.func public @main({arguments}) -> tensor<i64> {{
    {sizes}
    %address = stablehlo.constant dense<{address}> : tensor<i64>
    %done = stablehlo.custom_call @{function}({names}, %address)
      {{api_version = 4 : i32, has_side_effect = true}} : ({types}, tensor<i64>) -> tensor<i64>
    return %done : tensor<i64>
  }}
}}"""


class KeptValues:
    """Memory for the values that variables have when an execution begins.

    Args:
        variables: What is kept; their shapes are fully defined, and elements are numbers.
    """

    def __init__(self, variables: Sequence[Any]):
        for variable in variables:
            if not variable.shape.is_fully_defined() or variable.dtype == tf.string:
                raise ValueError(
                    "Variables that are written by what floating point exceptions stop get back "
                    "their values, so they need to have fully defined shapes, and numbers for "
                    f"elements. Received: {variable.name!r}, of shape {variable.shape} and type "
                    f"{variable.dtype.name}"
                )
        self._variables = variables
        self._sizes = [v.shape.num_elements() * v.dtype.size for v in variables]
        starts = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in self._sizes)])
        self._memory = np.zeros(starts[-1], np.uint8)
        self._arrays = [
            self._memory[start : start + size].view(v.dtype.as_numpy_dtype).reshape(v.shape)
            for v, start, size in zip(variables, starts[:-1], self._sizes, strict=True)
        ]

    def keep(self, *, in_xla: bool) -> None:
        """Adds an operation to the graph that keeps the values of the variables."""
        values = list(map(value_of, self._variables))
        address = self._memory.ctypes.data
        if in_xla and values:
            module = _module(KEEPING, [v.dtype for v in values], address, self._sizes)
            _call_from_xla(module, values)
        elif values:
            _add("IpuKeep", values, "memory", address)

    def values(self) -> list[tf.Tensor]:
        """Returns the values that the last execution began with."""
        return [tf.constant(array.copy()) for array in self._arrays]


def note_not_finite(tensors: Iterable[tf.Tensor], flag: NotFiniteFlag, *, in_xla: bool) -> None:
    """Adds an operation to the graph that raises a flag if a floating number is not finite."""
    numbers = [
        tensor if tensor.dtype in LOOKED_AT else tf.cast(tensor, tf.float32)
        for tensor in tensors
        if tensor.dtype.is_floating
    ]
    if in_xla and numbers:
        _call_from_xla(module_that_notes([tensor.dtype for tensor in numbers], flag), numbers)
    elif numbers:
        _add("IpuNoteNotFinite", numbers, "flag", flag.address)


def value_of(variable: Any) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _add(kind: str, tensors: Sequence[tf.Tensor], attribute: str, address: int) -> None:
    """Adds an operation of ours to the graph, which has a list of inputs and no outputs."""
    register_kernels()
    attributes = {attribute: tf.compat.v1.AttrValue(i=address), "T": tf.compat.v1.AttrValue()}
    attributes["T"].list.type.extend(tensor.dtype.as_datatype_enum for tensor in tensors)
    tf.compat.v1.get_default_graph().create_op(kind, list(tensors), [], attrs=attributes, name=kind)


def module_that_notes(dtypes: Sequence[tf.DType], flag: NotFiniteFlag) -> str:
    """Returns a module in MLIR that takes vectors of numbers, and raises a flag."""
    return _module(NOTING, dtypes, flag.address)


def _call_from_xla(module: str, tensors: Sequence[tf.Tensor]) -> None:
    flat = [tf.reshape(tensor, [-1]) for tensor in tensors]
    result = tf.TensorSpec([], tf.int64)
    call_module_of(flat, version=MODULE_VERSION, module=module, results=[result])


def _module(
    function: str, dtypes: Sequence[tf.DType], address: int, sizes: Sequence[int] | None = None
) -> str:
    """Returns a module in MLIR that calls a function of ours with vectors and what it takes."""
    register_in_xla()
    types = [f"tensor<?x{_name_of(dtype)}>" for dtype in dtypes]
    names = [f"%given_{k}" for k in range(len(types))]
    constant = ""
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
    if sizes is not None:
        kind = f"tensor<{len(sizes)}xi64>"
        constant = f"%sizes = stablehlo.constant dense<{list(sizes)}> : {kind}"
        names.append("%sizes")
        types.append(kind)
    return _MODULE.format(
        arguments=arguments,
        sizes=constant,
        address=address,
        function=function,
        names=", ".join(names),
        types=", ".join(types),
    )


def _name_of(dtype: tf.DType) -> str:
    """Returns what MLIR calls a type of TensorFlow's."""
    if dtype == tf.bool:
        return "i1"
    kind = "bf" if dtype == tf.bfloat16 else "f" if dtype.is_floating else "i"
    if dtype.is_unsigned:
        kind = "ui"
    return f"{kind}{8 * dtype.size}"
