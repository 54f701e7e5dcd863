"""Sessions that run a model for inference, under the names that PopART's bindings have."""

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
    """A model on a device, for inference.

    Args:
        model: A serialized model, or the path of a file.
        dataFlow: What a step takes and returns.
        deviceInfo: The device.
        inputShapeInfo: Shapes of inputs that the model leaves open.
        userOptions: Options.
        patterns: Which rewrites of graphs are allowed. The emulator rewrites by rules of its own,
            and warns of a choice.

    Raises:
        popart_exception: The model cannot run so.
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
        with OPTION_WARNINGS.together(stacklevel=3):
            warn_of_idle(userOptions)
            warn_of_patterns(patterns)
            session = Session(model, dataFlow, deviceInfo, inputShapeInfo, userOptions)
        super().__init__(session)
