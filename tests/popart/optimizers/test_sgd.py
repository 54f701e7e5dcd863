import doctest

import pytest

from ipu_keras import popart
from ipu_keras.popart.optimizers import sgd as module
from ipu_keras.popart.optimizers.values import OptimizerValue
from ipu_keras.popart.options.enumerations import DataType, SGDAccumulatorAndMomentum


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_defaults():
    sgd = popart.SGD({})
    defaults = [
        *(sgd.learningRates(), sgd.weightDecays(), sgd.momentums()),
        *(sgd.dampenings(), sgd.velocityScalings()),
    ]
    assert [each.getDefault() for each in defaults] == [
        OptimizerValue(number) for number in (0.1, 0, 0, 0, 1)
    ]
    assert isinstance(sgd, popart.Optimizer)


def test_const_sgd_is_sgd_of_constants():
    const = popart.ConstSGD(0.5, weight_decay=0.25, loss_scaling=8)
    assert isinstance(const, popart.SGD)
    assert const.learningRates().getDefault() == OptimizerValue(0.5)
    assert const.weightDecays().getDefault() == OptimizerValue(0.25)
    assert const.loss_scaling == OptimizerValue(8)
    with pytest.raises(popart.popart_exception, match=r"^Constant, zero learning rate in SGD\."):
        popart.ConstSGD(0.0)
    with pytest.raises(TypeError, match=r"^A value of an optimizer is a number"):
        popart.ConstSGD("0.1")


def test_momentum_that_is_or_can_become():
    assert not popart.SGD({}).has_momentum("w")
    assert popart.SGD({"defaultMomentum": (0, False)}).has_momentum("w")
    sgd = popart.SGD({"defaultMomentum": (0.5, True)})
    sgd.insertSpecific("w", {"momentum": (0, True)})
    assert (sgd.has_momentum("w"), sgd.has_momentum("b")) == (False, True)


def test_types_that_are_refused():
    text = (
        r"^`accumType` must be DataType\.FLOAT, DataType\.FLOAT16, or DataType\.UNDEFINED for that "
        r"of the weight\. Received: accumType=<DataType\.INT32"
    )
    with pytest.raises(popart.popart_exception, match=text):
        popart.SGD({}, accumType=DataType.INT32)
    with pytest.raises(TypeError, match=r"^`accl1Type` must be a DataType\. Received: accl1Type="):
        popart.SGD({}, accl1Type="FLOAT")
    with pytest.raises(TypeError, match=r"^`accumulatorAndMomentum` must be an? SGDAccumulatorAnd"):
        popart.SGD({}, accumulatorAndMomentum=1)
    types = {"accumType": DataType.FLOAT16, "accl1Type": DataType.FLOAT}
    text = r"one tensor for gradients and momentum, of one type\. Received: accumType=DataType\.FL"
    with pytest.raises(popart.popart_exception, match=text):
        popart.SGD({}, **types)
    popart.SGD({}, accumulatorAndMomentum=SGDAccumulatorAndMomentum.Separate, **types)
