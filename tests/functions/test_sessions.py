"""What happens around the runs of a session, in which order, and of which runs."""

import contextlib

import pytest
import tensorflow as tf

from ipu_keras.functions.sessions import SessionStep, mark

v1 = tf.compat.v1


class Recorded:
    """A step that notes what happens to it, by name."""

    def __init__(self, name, events):
        self._name, self._events = name, events

    def _note(self, what):
        self._events.append(f"{self._name} {what}")

    @contextlib.contextmanager
    def _during(self):
        self._note("begins")
        try:
            yield
        finally:
            self._note("ends")

    def step(self):
        return SessionStep(
            before=lambda _: self._note("before"),
            after=lambda: self._note("after"),
            explain=lambda error: self._note(f"explains {type(error).__name__}"),
            during=self._during,
        )


ALL = ["before", "begins", "ends", "after"]


@pytest.fixture
def events():
    return []


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_a_run_of_what_needs_a_marked_operation(session, events):
    marked, other = tf.constant(1.0) + 1.0, tf.constant(3.0)
    mark(marked.op, Recorded("sum", events).step())
    with tf.control_dependencies([marked]):
        after = tf.no_op()
    for fetched in (marked * 2.0, after, [other, marked], {"x": marked}):
        events.clear()
        session.run(fetched)
        assert events == [f"sum {what}" for what in ALL]
    events.clear()
    assert session.run(other) == 3.0
    assert events == []


def test_a_mark_that_is_made_after_a_run(session, events):
    marked = tf.constant(1.0) + 1.0
    mark((marked + 1.0).op, Recorded("other", events).step())
    session.run(marked)
    mark(marked.op, Recorded("sum", events).step())
    session.run(marked)
    assert events == [f"sum {what}" for what in ALL]


def test_several_marks(session, events):
    first = tf.constant(1.0) + 1.0
    second = first + 1.0
    mark(second.op, Recorded("b", events).step())
    mark(first.op, Recorded("a", events).step())
    session.run(second)
    assert events == [
        "b before",
        "a before",
        "b begins",
        "a begins",
        "a ends",
        "b ends",
        "b after",
        "a after",
    ]


def test_errors_are_explained_and_raised(session, events):
    checked = tf.debugging.check_numerics(tf.constant(1.0) / 0.0, "of the user")
    mark(checked.op, Recorded("check", events).step())
    with pytest.raises(tf.errors.InvalidArgumentError, match="of the user"):
        session.run(checked)
    assert events == [
        "check before",
        "check begins",
        "check explains InvalidArgumentError",
        "check ends",
    ]


def test_an_explanation_takes_the_place_of_an_error(session):
    def explain(error):
        raise KeyError("better") from error

    checked = tf.debugging.check_numerics(tf.constant(1.0) / 0.0, "of the user")
    mark(checked.op, SessionStep(explain=explain))
    with pytest.raises(KeyError, match="better"):
        session.run(checked)


def test_what_is_refused_does_not_run(session, events):
    def refuse(_):
        raise KeyError("refused")

    counter = v1.get_variable("counter", initializer=0, use_resource=True)
    session.run(counter.initializer)
    count = counter.assign_add(1)
    mark(count.op, SessionStep(before=refuse))
    with pytest.raises(KeyError, match="refused"):
        session.run(count)
    assert session.run(counter) == 0


def test_callables(session, events):
    x = v1.placeholder(tf.float32, [])
    doubled = x * 2.0
    stock = session.make_callable(doubled, [x])
    mark(doubled.op, Recorded("double", events).step())
    assert stock(3.0) == 6.0
    events.clear()
    call = session.make_callable([doubled, doubled.op], [x])
    assert call(4.0) == [8.0, None]
    assert events == [f"double {what}" for what in ALL]
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    call = session.make_callable(doubled, [x], accept_options=True)
    assert call(5.0, options=options, run_metadata=metadata) == 10.0
    assert metadata.partition_graphs
