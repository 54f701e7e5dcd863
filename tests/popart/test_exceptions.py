import pickle

from ipu_keras.popart.exceptions import OutOfMemoryError, popart_exception


def test_names_of_models_do_not_reach_the_terminal_as_commands():
    error = popart_exception("Unknown operation '\x1b[31mRelu\x9b'.\n\tOther é", 3)
    assert error.args == (r"Unknown operation '\x1b[31mRelu\x9b'." + "\n\tOther é", 3)
    assert pickle.loads(pickle.dumps(error)).args == error.args


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
