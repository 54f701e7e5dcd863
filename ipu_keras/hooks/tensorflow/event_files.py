"""The names of the files into which TensorFlow 1 writes summaries."""

import inspect
from collections.abc import Callable

import tensorflow as tf

from ipu_keras.hooks.installation import install


def name_event_files(suffix: Callable[[], str]) -> None:
    """Has the names of event files end with what `suffix` returns, which is asked each time.

    TensorFlow names them by the machine and the second, so that processes which begin together
    would write into each other's.
    """

    def naming(original: Callable) -> Callable:
        signature = inspect.signature(original)

        def initialize(self, *args, **kwargs):
            call = signature.bind(self, *args, **kwargs)
            given = call.arguments.get("filename_suffix") or ""
            call.arguments["filename_suffix"] = f"{given}{suffix()}"
            original(*call.args, **call.kwargs)

        return initialize

    install(tf.compat.v1.summary.FileWriter, "__init__", naming)
