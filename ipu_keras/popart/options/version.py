"""The release of PopART whose API this package has."""

from ipu_keras.store.canonical_json import digest

__all__ = ["packageHash", "versionNumber", "versionString"]

_VERSION = (2, 1, 0)


def versionString() -> str:
    """Returns the release, such as `"2.1.0"`."""
    return ".".join(map(str, _VERSION))


def versionNumber() -> tuple[int, int, int]:
    """Returns the release as numbers: major, minor and point."""
    return _VERSION


def packageHash() -> str:
    """Returns ten hexadecimal digits that are the same for the same release."""
    return digest(versionString())[:10]
