"""The refusal of arguments that layers for IPUs accept only because Keras's layers have them."""

from collections.abc import Mapping
from typing import Any

from ipu_keras.settings.arguments import noted

# The sentence of IPU software's addons, which users match.
REFUSAL_OF_ADDONS = (
    "ipu_tensorflow_addons.keras.layers.{layer} does not support {method} argument {argument}. It "
    "is included for API consistency with keras.layers.{of_keras}."
)


def refuse_unsupported(
    layer: str, method: str, given: Mapping[str, Any], unsupported: Mapping[str, Any]
) -> None:
    """Refuses arguments of a layer's `method` that ask for what the layer cannot do.

    `unsupported` has, by argument, the value that asks for nothing.
    """
    for argument, default in unsupported.items():
        value = given.get(argument, default)
        if value is not default:
            refusal = REFUSAL_OF_ADDONS.format(
                layer=layer, method=method, argument=argument, of_keras=layer
            )
            raise noted(
                NotImplementedError(refusal),
                f"Leave it out, or give its default. Received: {argument}={value!r}",
            )
