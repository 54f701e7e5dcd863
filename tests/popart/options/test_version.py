import re

from ipu_keras.popart.options.version import packageHash, versionNumber, versionString


def test_the_release_of_the_document():
    assert versionString() == "2.1.0"
    assert versionNumber() == (2, 1, 0)
    assert re.fullmatch("[0-9a-f]{10}", packageHash())
