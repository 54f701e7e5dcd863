"""What a trace says and finds out about batch normalizations."""

import pytest

from ipu_keras.host.rewrites.fused_batch_norms import batch_norms, use_fused_batch_norm


@pytest.mark.parametrize("fused", [False, True])
def test_a_trace(fused):
    with batch_norms(fused=fused) as norms:
        assert not norms.found
        assert use_fused_batch_norm() is fused
    assert norms.found


def test_traces_within_traces():
    with batch_norms(fused=True) as outer:
        with batch_norms(fused=False) as inner:
            assert not use_fused_batch_norm()
        assert inner.found
        assert not outer.found
        assert use_fused_batch_norm()


def test_outside_of_a_trace():
    with pytest.raises(ZeroDivisionError), batch_norms(fused=True):
        raise ZeroDivisionError
    assert not use_fused_batch_norm()
