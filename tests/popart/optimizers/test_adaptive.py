import doctest

import pytest

from ipu_keras import popart
from ipu_keras.popart.optimizers import adaptive as module
from ipu_keras.popart.optimizers.values import OptimizerValue
from ipu_keras.popart.options.enumerations import AdaptiveMode, DataType


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_defaults():
    adaptive = popart.Adaptive({})
    defaults = [
        *(adaptive.learningRates(), adaptive.weightDecays(), adaptive.alphas()),
        *(adaptive.momentums(), adaptive.epss()),
    ]
    assert [each.getDefault() for each in defaults] == [
        OptimizerValue(number) for number in (0.1, 0, 0.99, 0, 1e-6)
    ]
    assert adaptive.settings["mode"] is AdaptiveMode.RMSProp
    assert isinstance(adaptive, popart.Optimizer)
    assert not adaptive.has_momentum("w")


@pytest.mark.parametrize("mode", [AdaptiveMode.AdaGrad, AdaptiveMode.AdaDelta])
def test_tensorflows_variant_is_of_rmsprop(mode):
    text = rf"AdaptiveMode\.CenteredRMSProp\. Received: mode={mode!s}, rmsprop_tf_variant=True$"
    with pytest.raises(popart.popart_exception, match=text):
        popart.Adaptive({}, mode, rmsprop_tf_variant=True)


def test_settings_that_are_refused():
    with pytest.raises(TypeError, match=r"^`mode` must be an AdaptiveMode\. Received: mode=1"):
        popart.Adaptive({}, 1)
    for name in ("accum_type", "accl1_type", "accl2_type", "accl3_type"):
        text = rf"^`{name}` must be DataType\.FLOAT, DataType\.FLOAT16, or DataType\.UNDEFINED"
        with pytest.raises(popart.popart_exception, match=text):
            popart.Adaptive({}, **{name: DataType.INT8})
