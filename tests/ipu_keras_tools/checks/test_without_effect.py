"""What `ipu-keras check` notes of arguments that change nothing."""

import doctest
import inspect

import numpy as np
import pytest
import reference

from ipu_keras_tools.checks import without_effect
from ipu_keras_tools.checks.calls import Call
from ipu_keras_tools.checks.findings import Note
from ipu_keras_tools.checks.known_values import UNKNOWN, Known
from ipu_keras_tools.checks.reading import findings_of
from ipu_keras_tools.checks.without_effect import IdleUse, idle_arguments, idle_uses

_CONFIG = "from tensorflow.python import ipu\nipu.utils.create_ipu_config({})\n"
_OUTLINED = "from tensorflow.python import ipu\nipu.outlined_function(print, {})\n"
_HOST_EMBEDDING = (
    "import numpy as np\nfrom tensorflow.python import ipu\n"
    "ipu.embedding_ops.create_host_embedding('table', (3, 4), np.float32, {})\n"
)
_SESSION_OPTIONS = "import popart\noptions = popart.SessionOptions()\noptions.{}\n"


def test_examples():
    assert doctest.testmod(without_effect).failed == 0


def noted(source):
    return [(one.line, one.name, one.argument) for one in findings_of(source, "").notes]


def test_an_argument_that_changes_nothing_is_a_note_with_its_line():
    found = findings_of(_CONFIG.format("enable_ipu_events=True"), "script.py")
    assert found.notes == (
        Note(2, 47, "create_ipu_config", "enable_ipu_events", "there are no trace events"),
    )
    assert found.will_run


@pytest.mark.parametrize(
    "source",
    [
        # As it is anyway.
        _CONFIG.format("enable_ipu_events=False"),
        _CONFIG.format(""),
        _SESSION_OPTIONS.format("enablePrefetchDatastreams = True"),
        # What the class of the base has, and this one does not.
        "from tensorflow.python.ipu.optimizers import GradientAccumulationOptimizer as Optimizer\n"
        "Optimizer(None, 4, offload_weight_update_variables=True)",
        # Other values and arguments, and values that nobody knows.
        _OUTLINED.format("keep_input_layouts=None, name='f'"),
        _OUTLINED.format("unique_sharding=bool(print())"),
        _HOST_EMBEDDING.format("'TOKEN'"),
        _SESSION_OPTIONS.format("accumulationFactor = 4"),
        _SESSION_OPTIONS.format("nothingOfTheKind = 4"),
        # Arguments whose places are not known, and calls that are refused.
        _OUTLINED.format("*[True], True"),
        _OUTLINED.format("True, True, None, 4, 5"),
        _OUTLINED.format("unique_sharding=True, nothing=3"),
    ],
)
def test_what_is_not_noted(source):
    assert noted(source) == []


@pytest.mark.parametrize(
    ("source", "line", "column", "argument"),
    [
        # By name and by place, of a function and of a method.
        (_OUTLINED.format("unique_sharding=True"), 2, 46, "unique_sharding"),
        (_OUTLINED.format("True"), 2, 30, "unique_sharding"),
        (_OUTLINED.format("False, False"), 2, 37, "keep_input_layouts"),
        (_HOST_EMBEDDING.format("'ENCODING'"), 3, 70, "partition_strategy"),
        ("import popart\npopart.TrainingSession().getSummaryReport(False)", 2, 43, "resetProfile"),
        # Of a base that the class hands it on to.
        (
            "from ipu_tensorflow_addons.keras.optimizers import SGDIpuOptimizer\n"
            "SGDIpuOptimizer(0.1, outline_apply_gradients=True)",
            2,
            46,
            "outline_apply_gradients",
        ),
        # What is given is not known, but nothing that could be would change anything.
        (_CONFIG.format("max_report_size=int(input())"), 2, 45, "max_report_size"),
        (_SESSION_OPTIONS.format("defaultPrefetchBufferingDepth = 3"), 3, 1, None),
    ],
)
def test_where_it_is_noted(source, line, column, argument):
    [found] = findings_of(source, "").notes
    assert (found.line, found.column) == (line, column)
    assert found.argument == (argument or "defaultPrefetchBufferingDepth")


def test_the_reason_is_that_of_the_documentation():
    [option] = findings_of(
        _SESSION_OPTIONS.format("disableGradAccumulationTensorStreams=1"), ""
    ).notes
    assert option == Note(
        3,
        1,
        "SessionOptions",
        "disableGradAccumulationTensorStreams",
        "Accumulators are empty between batches, so no model that is written has them",
    )
    source = "import keras\nkeras.Sequential().set_outfeed_queue_options(buffer_depth=3)\n"
    [whole] = findings_of(source, "").notes
    assert (whole.line, whole.column, whole.argument) == (2, 1, "")
    assert whole.why.startswith("results of an execution are handed over as soon as it ends")


def test_several_of_a_line_are_in_the_order_of_the_line():
    source = _CONFIG.format("use_poplar_cbor_report=True, enable_ipu_events=True")
    assert noted(source) == [
        (2, "create_ipu_config", "use_poplar_cbor_report"),
        (2, "create_ipu_config", "enable_ipu_events"),
    ]


def idle(value: int = 0, choice: str = "a", *, deep: int = 3, **others: int) -> None:
    """Says what has no effect.

    Args:
        value: Of it. Has no effect: nothing reads it. And more.
        choice: `CHOICES[0]` has no effect: it is not a literal.
        deep: `3`, `"b"` and `None` have no effect: they are the same.
        **others: Further ones.
    """


# It is found as that of the package would be.
idle.__module__ = "ipu_keras.idle"


def test_how_docstrings_say_it():
    found = idle_arguments(idle)
    assert {name: (one.why, one.values) for name, one in found.items()} == {
        "value": ("nothing reads it", ()),
        "deep": ("they are the same", (3, "b", None)),
    }


def uses(*positional, **named):
    return list(idle_uses(Call(idle, UNKNOWN, positional, named, is_complete=True)))


def test_values_that_have_no_truth_value_when_compared():
    array = Known(np.zeros([2, 3]))
    assert uses(array) == [IdleUse("value", 0, "nothing reads it")]
    assert uses(deep=array) == []
    assert uses(Known(0), deep=Known(3)) == [IdleUse("deep", None, "they are the same")]


@pytest.mark.parametrize("function", [print, dict, np.add, [].append, np.float32, Known])
def test_other_things_that_can_be_called(function):
    assert idle_arguments(function) == {}
    assert list(idle_uses(Call(function, UNKNOWN, (Known(3),), {}, is_complete=True))) == []


def test_what_cannot_be_hashed_may_be_called():
    class Unhashable:
        __hash__ = None

        def __call__(self):
            """Has no effect: it is no function."""

    assert idle_arguments(Unhashable()) == {}


def test_what_docstrings_name_are_arguments():
    num = 0
    for one in reference.names():
        kind = inspect.isclass(one.found)
        members = inspect.getmembers(one.found, inspect.isfunction) if kind else []
        for found in (one.found, *(member for _, member in members)):
            named = set(idle_arguments(found)) - {""}
            num += len(named)
            if named and inspect.isfunction(found):
                assert named <= set(inspect.signature(found).parameters)
    assert num > 10
