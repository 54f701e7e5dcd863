"""Arguments of Keras's layers that their replacements for IPUs take only to refuse them."""

from collections.abc import Mapping
from typing import Any


def refuse_unsupported(
    layer: str, method: str, given: Mapping[str, Any], unsupported: Mapping[str, Any]
) -> None:
    """Refuses arguments that ask for what a layer cannot do.

    Args:
        layer: Name of the layer's class.
        method: Of which they are arguments, such as `"__init__"`.
        given: Values by argument.
        unsupported: By argument, the value that asks for nothing.

    Raises:
        NotImplementedError: An unsupported argument has another value.
    """
    for argument, default in unsupported.items():
        value = given.get(argument, default)
        if value is not default:
            raise NotImplementedError(
                f"ipu_tensorflow_addons.keras.layers.{layer} does not support {method} argument "
                f"{argument}. It is included for API parity with keras.layers.{layer}: leave it "
                f"out, or give its default. Received: {argument}={value!r}"
            )
