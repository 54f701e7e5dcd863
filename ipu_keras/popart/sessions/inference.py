"""The inference session under the names of PopART's bindings."""

import os
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.patterns import warn_of_patterns
from ipu_keras.popart.options.session_options import warn_of_idle
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.documented import SessionMethods
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.session import Session
from ipu_keras.settings.option_warnings import OPTION_WARNINGS


class _InferenceSessionCore(SessionMethods):
    """Runs a model for inference on a device.

    Args:
        model: A serialized model, or the path of a file.
        dataFlow: How many batches a step takes, and which tensors it returns.
        deviceInfo: The device that the model runs on.
        inputShapeInfo: Shapes of inputs that the model leaves open.
        userOptions: Options of the session, which are copied.
        patterns: Which rewrites of graphs are allowed. The emulator rewrites by rules of its own,
            and warns of a choice.

    Raises:
        popart_exception: The model, the options and the device do not go together.
    """

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        deviceInfo: Any,
        inputShapeInfo: InputShapeInfo,
        userOptions: Any,
        patterns: Any,
    ):
        if not dataFlow.nAnchors():
            raise popart_exception(
                "User must specify an anchor tensor when doing inference. Give the DataFlow a "
                "dictionary of anchors, such as {'output': AnchorReturnType('All')}."
            )
        if userOptions.enableGradientAccumulation:
            raise popart_exception(
                "Gradient Accumulation (SessionOptions.enableGradientAccumulation) is not "
                "available in inference, which has no gradients. Leave it False."
            )
        # Several checks warn of idle options; users get one warning, at the line that made the
        # session.
        with OPTION_WARNINGS.together(stacklevel=3):
            warn_of_idle(userOptions)
            warn_of_patterns(patterns)
            session = Session(model, dataFlow, deviceInfo, inputShapeInfo, userOptions)
        super().__init__(session)
