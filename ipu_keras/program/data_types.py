"""The data types that IPUs have, and what errors advise for others."""

from ipu_keras.ir import Graph
from ipu_keras.settings.arguments import noted

# Types of tensors that programs take and return.
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
    """Returns the error for a type that IPUs lack, with the reason and a remedy.

    Args:
        what: The thing that has this type, such as `"input"`.
        received: The value, or the place where it was found.
    """
    remedy = _REMEDIES.get(dtype, f"IPUs have {', '.join(IPU_DTYPES)}; cast it to one of these")
    return noted(
        TypeError(f"Unsupported data type for {what}: {dtype}"), f"{remedy}. Received: {received}"
    )


def refuse_bfloat16(graph: Graph) -> None:
    """Raises a `TypeError` if an operation computes in bfloat16.

    Values of other types that IPUs lack may occur within a program that neither takes nor
    returns them.
    """
    for op in graph.walk():
        if any(spec.dtype == "bfloat16" for spec in op.outputs):
            raise unsupported("operation", "bfloat16", f"{op.name!r}, of type {op.kind}")
