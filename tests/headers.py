"""What the installed headers of TensorFlow say of structures that we declare ourselves."""

import subprocess

import tensorflow as tf


def check_headers(source: str) -> None:
    """Compiles C++ that includes TensorFlow's headers; the compiler is that of our units."""
    result = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-x", "c++", "-", "-I", tf.sysconfig.get_include()],
        input=source,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
