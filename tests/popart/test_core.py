import importlib

from ipu_keras import popart
from ipu_keras.popart import core


def test_both_modules_have_the_same_objects():
    assert importlib.import_module("popart_core") is core
    names = [name for name in vars(core) if not name.startswith("__")]
    assert {"SessionOptions", "DeviceManager", "Patterns", "getLogger"} <= set(names)
    for name in names:
        assert getattr(popart, name, None) is getattr(core, name), name
