import doctest

import pytest

from ipu_keras import popart
from ipu_keras.popart.optimizers import adam as module
from ipu_keras.popart.optimizers.values import OptimizerValue
from ipu_keras.popart.options.enumerations import AdamMode, DataType


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_defaults():
    adam = popart.Adam({})
    defaults = [
        *(adam.learningRates(), adam.weightDecays(), adam.beta1s()),
        *(adam.beta2s(), adam.epss(), adam.maxWeightNorms()),
    ]
    assert [each.getDefault() for each in defaults] == [
        OptimizerValue(number) for number in (0.1, 0, 0.9, 0.999, 1e-6, 10)
    ]
    assert adam.settings["mode"] is AdamMode.Adam
    assert adam.settings["accl1_type"] is DataType.FLOAT
    assert isinstance(adam, popart.Optimizer)
    assert not adam.has_momentum("w")


def test_settings_that_are_refused():
    with pytest.raises(TypeError, match=r"^`mode` must be an AdamMode\. Received: mode='Adam'"):
        popart.Adam({}, "Adam")
    with pytest.raises(TypeError, match=r"^`weight_decay_mode` must be a WeightDecayMode\. Rec"):
        popart.Adam({}, weight_decay_mode=0)
    with pytest.raises(TypeError, match=r"^`scaled_optimizer_state` must be a bool\. Received"):
        popart.Adam({}, scaled_optimizer_state="no")
    for name in ("accum_type", "accl1_type", "accl2_type"):
        text = rf"^`{name}` must be DataType\.FLOAT, DataType\.FLOAT16, or DataType\.UNDEFINED"
        with pytest.raises(popart.popart_exception, match=text):
            popart.Adam({}, **{name: DataType.DOUBLE})
