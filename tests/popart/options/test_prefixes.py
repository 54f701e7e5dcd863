from ipu_keras.popart.options import prefixes


def test_prefixes_of_names_that_users_write():
    assert prefixes.reservedGradientPrefix() == "Gradient___"
    assert prefixes.reservedAccumPrefix() == "Accum___"
    assert prefixes.reservedAcclPrefix() == "Accl___"
    assert prefixes.reservedAccl1Prefix() == "Accl1___"
    assert prefixes.reservedAccl2Prefix() == "Accl2___"
    assert prefixes.reservedStepPrefix() == "Step___"
    assert prefixes.reservedLossScalingPrefix() == "lossScaling_"
    learning_rate = prefixes.reservedDefaultScaledLearningRate0Prefix()
    assert learning_rate == "scaledLearningRate0___default___"
    decay = prefixes.reservedDefaultWeightDecayScaleFactor0Prefix()
    assert decay == "weightDecayScaleFactor0___default___"


def test_no_two_are_the_same():
    functions = {n: f for n, f in vars(prefixes).items() if n.endswith("Prefix")}
    assert len(functions) == 50
    assert len({function() for function in functions.values()}) == len(functions)
    for name, function in functions.items():
        assert function.__name__ == name
        assert repr(function()) in function.__doc__
