"""Scopes that layers have while functions are traced."""

import doctest
import importlib

from ipu_keras.tracing.layer_scopes import LayerScopes, current_layer_scopes, layer_scopes


def test_example():
    # The package has the function under the module's name.
    module = importlib.import_module("ipu_keras.tracing.layer_scopes")
    assert doctest.testmod(module).failed == 0


def test_scopes_are_known_only_within_the_context():
    assert current_layer_scopes() is None
    with layer_scopes():
        outer = current_layer_scopes()
        with layer_scopes():
            assert current_layer_scopes() is not outer
        assert current_layer_scopes() is outer
    assert current_layer_scopes() is None


def test_scopes_by_where_they_were_opened():
    scopes = LayerScopes()
    assert scopes.opened("graph", "", "dense", 1) is None
    assert scopes.first_of("graph", 1) is None
    scopes.add("graph", "model", "dense", 1, "model/dense")
    scopes.add("graph", "other", "dense", 1, "other/dense")
    assert scopes.opened("graph", "other", "dense", 1) == "other/dense"
    assert scopes.first_of("graph", 1) == "model/dense"
    # Another graph, another layer of the same name, another scope around it.
    assert scopes.first_of("inside", 1) is None
    assert scopes.opened("graph", "model", "dense", 2) is None
    assert scopes.opened("graph", "", "dense", 1) is None
