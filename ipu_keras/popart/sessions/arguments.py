"""Checks the types of a session's arguments before anything is done with them."""

from typing import Any

from ipu_keras.popart.devices.info import DeviceInfo
from ipu_keras.popart.options.patterns import Patterns
from ipu_keras.popart.options.session_options import SessionOptions
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo

# C++ bindings would refuse a wrong type with the signature of the overload; users need to know
# what makes the right one, as `acquire` methods return None when no device is free.
_HOW = {
    DataFlow: "Make one with popart.DataFlow(batchesPerStep, {'output': AnchorReturnType('All')}).",
    DeviceInfo: "Get one of a popart.DeviceManager; its acquire methods return None where none is "
    "free.",
    InputShapeInfo: "Make one with popart.InputShapeInfo(), and `add` shapes to it.",
    Patterns: "Make one with popart.Patterns(), or leave it out.",
    SessionOptions: "Make one with popart.SessionOptions(), or leave it out.",
}


def check_arguments(
    dataFlow: Any, deviceInfo: Any, inputShapeInfo: Any, patterns: Any, userOptions: Any
) -> None:
    """Raises a `TypeError` that says how to make the argument if one is of another type."""
    given = {
        "dataFlow": (dataFlow, DataFlow),
        "deviceInfo": (deviceInfo, DeviceInfo),
        "inputShapeInfo": (inputShapeInfo, InputShapeInfo),
        "patterns": (patterns, Patterns),
        "userOptions": (userOptions, SessionOptions),
    }
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            raise TypeError(
                f"`{name}` must be a popart.{kind.__name__}. Received: {name}={value!r} of type "
                f"{type(value).__name__}. {_HOW[kind]}"
            )
