import pickle

import pytest
import tensorflow as tf

from ipu_keras.popart import exceptions
from ipu_keras.popart.exceptions import OutOfMemoryError, popart_exception


def test_names_of_models_do_not_reach_the_terminal_as_commands():
    error = popart_exception("Unknown operation '\x1b[31mRelu\x9b'.\n\tOther é")
    assert str(error) == r"Unknown operation '\x1b[31mRelu\x9b'." + "\n\tOther é"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    "kind",
    [
        exceptions.popart_exception,
        exceptions.popart_internal_exception,
        exceptions.poplar_exception,
        exceptions.poplibs_exception,
    ],
)
def test_no_text_of_a_model_tells_terminals_anything(kind):
    error = kind("In \x1b]0;x\x07\x9b1m\u202e\ud800 'ä':\n\tline")
    assert str(error) == "In \\x1b]0;x\\x07\\x9b1m\\u202e\\ud800 'ä':\n\tline"
    assert str(kind(3)) == "3"


def test_autograph_keeps_the_type_of_what_is_raised():
    @tf.function
    def fails():
        raise exceptions.popart_exception("\x1b[31mno")

    with pytest.raises(exceptions.popart_exception, match=r"\\x1b\[31mno"):
        fails()


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
