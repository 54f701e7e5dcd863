"""The types of numbers that IPUs have, and what is said of others."""

from ipu_keras.ir import Graph
from ipu_keras.settings.argument_errors import noted

# What programs take and return.
IPU_DTYPES = (
    "float32",
    "float16",
    "int32",
    "uint32",
    "int16",
    "uint16",
    "int8",
    "uint8",
    "bool",
)

# The element types that an IPU feed carries.
FEED_DTYPES = ("int32", "float32", "float16", "bool", "int8", "uint8")

_INTEGERS = "IPUs compute with integers of up to 32 bits; cast it, for instance to tf."
_COMPLEX = (
    "IPUs have no complex numbers; use a tensor of real and one of imaginary parts, for instance "
    "of tf.float32"
)
_REMEDIES = {
    "bfloat16": "IPUs have no bfloat16: their floating point numbers of 16 bits are float16; cast "
    "it, for instance to tf.float16, or to tf.float32 for the range of bfloat16",
    "complex128": _COMPLEX,
    "complex64": _COMPLEX,
    "float64": "IPUs compute in float32 and float16; cast it, for instance to tf.float32",
    "int64": f"{_INTEGERS}int32",
    "string": "IPUs have no strings; use numbers, for instance indices of tf.int32",
    "uint64": f"{_INTEGERS}uint32",
}


def unsupported(what: str, dtype: str, received: str) -> TypeError:
    """The error for a type that IPUs lack, which says why, and what to do.

    Args:
        what: What has this type, such as `"input"`.
        dtype: Name of the type, none of `IPU_DTYPES`.
        received: What it was, or where.
    """
    remedy = _REMEDIES.get(dtype, f"IPUs have {', '.join(IPU_DTYPES)}; cast it to one of these")
    return noted(
        TypeError(f"Unsupported data type for {what}: {dtype}"), f"{remedy}. Received: {received}"
    )


def refuse_bfloat16(graph: Graph) -> None:
    """Refuses a program that computes in bfloat16.

    Of other types that IPUs lack, a program may have values that it neither takes nor returns.

    Args:
        graph: Of the program, in TensorFlow's operations.

    Raises:
        TypeError: An operation has such a result.
    """
    for op in graph.walk():
        if any(spec.dtype == "bfloat16" for spec in op.outputs):
            raise unsupported("operation", "bfloat16", f"{op.name!r}, of type {op.kind}")
