"""The collector is off while graphs are built, and afterwards what it was before."""

import gc

import pytest
import tensorflow as tf

from ipu_keras.profiling.models import traced_graph
from ipu_keras.tracing import no_garbage_collection


@pytest.fixture(autouse=True)
def enabled():
    gc.enable()
    yield
    gc.enable()


def test_it_is_enabled_again_by_the_outermost():
    with no_garbage_collection():
        with no_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_enabled_again_after_an_error():
    with pytest.raises(KeyError), no_garbage_collection():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with no_garbage_collection():
        pass
    assert not gc.isenabled()


def test_tracing_does_without_it():
    seen = []

    def function(x):
        seen.append(gc.isenabled())
        return x + 1.0

    traced_graph(function, tf.TensorSpec(()))
    assert seen
    assert not any(seen)
    assert gc.isenabled()
