"""What `ipu_keras` needs from its environment, checked before anything else of it runs."""

import gc
import os
import warnings

OLDEST_KERAS = (3, 12)
OLDEST_TENSORFLOW = (2, 19)
# The newest that tests were run with; private names are compared when they are used, so that
# newer ones mostly serve, and say what has changed where they do not.
NEWEST = {"TensorFlow": (2, 21), "Keras": (3, 15)}

INSTALL_TENSORFLOW = """\
Install one of

    pip install "ipu-keras[tensorflow-cpu]"
    pip install "ipu-keras[tensorflow]"

The second has GPU support. TensorFlow comes as two distributions that overwrite \
each other's files, so ipu-keras installs neither without being told which."""


def check() -> None:
    """Imports TensorFlow and Keras, and says what to do if they cannot serve.

    Raises:
        ImportError: If TensorFlow is missing, damaged or older than 2.19, `tf.keras` is not
            Keras 3, Keras is older than 3.12, or its backend is not TensorFlow.
    """
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1"):
        raise ImportError(
            "ipu_keras extends Keras 3, and TF_USE_LEGACY_KERAS makes `tf.keras` Keras 2. "
            f"Received: TF_USE_LEGACY_KERAS={os.environ['TF_USE_LEGACY_KERAS']}. Unset it."
        )
    # What is imported stays, and visiting it in search of garbage took a fifth of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(
            f"ipu_keras needs TensorFlow, which is not installed. {INSTALL_TENSORFLOW}",
            name="tensorflow",
        ) from None
    finally:
        if collects:
            gc.enable()
    if not hasattr(tensorflow, "__version__"):
        # What uninstalling one of the two distributions leaves of the other.
        raise ImportError(
            "The installation of TensorFlow is damaged: there is a folder without the package. "
            f"Uninstall tensorflow and tensorflow-cpu. {INSTALL_TENSORFLOW}",
            name="tensorflow",
        )
    import keras

    check_tensorflow(tensorflow.__version__)
    check_keras(keras.__version__, keras.backend.backend())


def check_onnx() -> None:
    """Imports onnx, which only PopART's part of the package needs, and says how to install it.

    Raises:
        ImportError: If it is missing.
    """
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise ImportError(
            "`popart` of ipu_keras needs onnx, which is not installed. Install it with "
            '`pip install "ipu-keras[popart]"`.',
            name="onnx",
        ) from None


def check_tensorflow(version: str) -> None:
    """Raises ImportError if this TensorFlow is too old; warns if it is newer than was tested."""
    if _release(version) < OLDEST_TENSORFLOW:
        raise ImportError(
            f"ipu_keras needs TensorFlow 2.19 or newer. Received: tensorflow {version}. "
            f"{INSTALL_TENSORFLOW}",
            name="tensorflow",
        )
    _warn_of_newer("TensorFlow", version)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _warn_of_newer(library: str, version: str) -> None:
    if _release(version) > NEWEST[library]:
        newest = ".".join(map(str, NEWEST[library]))
        warnings.warn(
            f"ipu_keras was tested with {library} up to {newest}, and is used with {version}. What "
            "has changed in it is an error, or is done without, where it is needed.",
            stacklevel=2,
        )


def check_keras(version: str, backend: str) -> None:
    """Raises ImportError if this Keras is too old, or does not run on TensorFlow; warns if it is
    newer than was tested."""
    if _release(version) < OLDEST_KERAS:
        raise ImportError(
            f"ipu_keras needs Keras 3.12 or newer. Received: keras {version}. "
            'Update it with `pip install --upgrade "keras>=3.12"`.',
            name="keras",
        )
    if backend != "tensorflow":
        raise ImportError(
            f"ipu_keras needs Keras to run on TensorFlow. Received: backend {backend!r}. "
            "Set KERAS_BACKEND=tensorflow before Python starts.",
            name="keras",
        )
    _warn_of_newer("Keras", version)
