"""Who gets TensorFlow 1 by the name `tensorflow`, and who TensorFlow 2."""

import builtins
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import ipu_addons
import ipu_keras
import ipu_keras_tools
from ipu_keras.tf1.imports import imports_of_scripts


@pytest.fixture(scope="module")
def imports():
    return imports_of_scripts(builtins.__import__)


@pytest.mark.parametrize("importer", [ipu_keras, ipu_addons, ipu_keras_tools, keras, tf, pytest])
def test_libraries_and_the_package_itself_get_what_there_is(imports, importer):
    """Also where the package is a checkout, which is not where libraries are."""
    assert imports("tensorflow", {"__file__": importer.__file__}) is tf


@pytest.mark.parametrize("importer", [None, {}, {"__file__": str(Path("a script.py").absolute())}])
def test_scripts_get_tensorflow_1(imports, importer):
    found = imports("tensorflow", importer)
    assert found is not tf
    assert found.placeholder is tf.compat.v1.placeholder
    assert imports("tensorflow.train", importer, None, ("Saver",)) is tf.compat.v1.train
