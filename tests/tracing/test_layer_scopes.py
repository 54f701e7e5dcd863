"""Scopes that layers have while functions are traced."""

from ipu_keras.tracing.layer_scopes import current_layer_scopes, layer_scopes


def test_scopes_are_known_only_within_the_context():
    assert current_layer_scopes() is None
    with layer_scopes():
        outer = current_layer_scopes()
        assert outer == {}
        outer["graph", "", "dense", 1] = "dense"
        with layer_scopes():
            assert current_layer_scopes() == {}
        assert current_layer_scopes() is outer
    assert current_layer_scopes() is None
