from ipu_keras.popart.exceptions import OutOfMemoryError


def test_what_is_known_of_memory():
    error = OutOfMemoryError()
    assert error.isSuccessful()
    assert (str(error), error.getSummaryReport(), error.getProfilePath()) == (
        "The program fits.",
        "",
        "",
    )
    error.fail("It needs 2 MB more.", "tile 0 is full", "profile.pop")
    assert not error.isSuccessful()
    assert repr(error) == "OutOfMemoryError('It needs 2 MB more.')"
    assert (error.getSummaryReport(), error.getProfilePath()) == ("tile 0 is full", "profile.pop")
