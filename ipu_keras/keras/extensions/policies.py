"""The check of layers' dtype policies, some of which ask for numbers that IPUs do not have."""

import keras

from ipu_keras.internals.keras.models import layers_in

# By dtype: why IPUs do not compute in it, and the policies to use instead.
_LACKED = {
    "bfloat16": (
        "IPUs have no bfloat16 arithmetic: their floating point numbers of 16 bits are float16",
        "'mixed_float16' or 'float16', or 'float32' for the range of bfloat16",
    ),
    "float64": ("IPUs compute in float32 and float16", "'float32'"),
}


def refuse_policies(model: keras.Model) -> None:
    """Refuses a model with a layer that computes or keeps weights in numbers that IPUs lack.

    The model itself counts as a layer: its inputs are cast to its own policy.
    """
    for layer in layers_in(model):
        for dtype in (layer.compute_dtype, layer.variable_dtype):
            if dtype in _LACKED:
                why, instead = _LACKED[dtype]
                raise TypeError(
                    f"Unsupported data type for layer {layer.name!r}: {dtype}. {why}. Use the "
                    f"policy {instead}: as `dtype` of the layer, or for all that are made "
                    "afterwards with `keras.config.set_dtype_policy`. "
                    f"Received: {type(layer).__name__} with the policy {layer.dtype_policy.name!r}"
                )
