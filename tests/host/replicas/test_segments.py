"""What all replicas of a traced function do together."""

import doctest
import itertools

import numpy as np
import pytest
import tensorflow as tf
from replicas import numbers, run, trace

from ipu_keras.host.replicas import segments
from ipu_keras.host.replicas.replica_variables import written_captures
from ipu_keras.host.replicas.segments import replicate
from ipu_keras.ops.all_to_all_op import all_gather
from ipu_keras.ops.cross_replica_ops import assume_equal_across_replicas, cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index

X = tf.TensorSpec((2,))
both = pytest.mark.parametrize("jit_compile", [False, True])


def together(concrete, num_replicas, jit_compile=False, **options):
    return tf.function(replicate(concrete, num_replicas, **options), jit_compile=jit_compile)


def copies_of(variables, num_replicas):
    """Variables for all replicas but the first one, and what `replicate` asks for them."""
    own = [{}]
    copies = []
    for _ in range(num_replicas - 1):
        copies.append([tf.Variable(variable) for variable in variables])
        pairs = zip(variables, copies[-1], strict=True)
        own.append({variable.handle.ref(): copy.handle for variable, copy in pairs})
    return copies, own.__getitem__


@both
def test_without_collectives_it_is_a_call_for_each_replica(jit_compile):
    x = numbers(3, 2)
    np.testing.assert_array_equal(run(lambda x: x * 2, x, jit_compile=jit_compile), x * 2)


def test_shapes_that_come_from_an_earlier_segment():
    """Their tensor is computed before the collective, and what has that shape after it."""

    def function(x):
        return tf.fill(tf.raw_ops.Shape(input=x), cross_replica_sum(x)[0])

    step = replicate(trace(function, 2, X), 2)
    graph = tf.function(lambda x: step([[x], [x]])).get_concrete_function(X)
    assert [result.shape for result in graph.structured_outputs] == [(2,), (2,)]


@both
def test_collectives_one_after_the_other(jit_compile):
    """The second one needs the first; the third only what was there before both.

    x ── sum ── · x ── sum ── result
    x + 1 ───────────── sum ── result
    """

    def function(x):
        first = cross_replica_sum(x)
        return cross_replica_sum(first * x), cross_replica_sum(x + 1.0)

    x = numbers(2, 3)
    total = x.sum(axis=0)
    for result in run(function, x, jit_compile=jit_compile):
        np.testing.assert_array_equal(result[0], (total * x).sum(axis=0))
        np.testing.assert_array_equal(result[1], total + 2)


def test_structures_of_results():
    def function(x):
        return {"x": x, "none": None, "constant": tf.constant(1), "sum": (cross_replica_sum(x),)}

    first, second = run(function, np.array([[1.0], [2.0]], np.float32))
    assert (first["x"], second["x"]) == ([1.0], [2.0])
    assert first["none"] is None
    assert first["constant"] == 1
    assert first["sum"] == second["sum"] == ([3.0],)


def test_collectives_of_what_comes_from_outside():
    """Arguments, captured tensors and constants reach a collective without any operation."""
    captured = tf.constant(np.ones(100, np.float32))  # too large to become a constant

    def function(x):
        return cross_replica_sum(x), cross_replica_sum(captured), cross_replica_sum(1.0)

    for x, ones, one in run(function, np.array([1.0, 2.0], np.float32)):
        assert (x, ones[99], one) == (3.0, 2.0, 2.0)


@both
def test_a_function_that_is_called(jit_compile):
    """Its gradient is a function too, and has collectives of its own."""

    @tf.function
    def inner(x, y):
        return cross_replica_sum(x * y, name="inner") + y, x

    @tf.function
    def outer(x):
        total, same = inner(x, x + 1.0)
        return total * same

    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = outer(x)
        return y, tape.gradient(y, x)

    x = numbers(2, 3)
    total = (x * (x + 1)).sum(axis=0)
    slopes = (2 * x + 1) * x.sum(axis=0) + (total + x + 1) + x
    for k, (y, gradient) in enumerate(run(function, x, jit_compile=jit_compile)):
        np.testing.assert_array_equal(y, (total + x[k] + 1) * x[k])
        np.testing.assert_array_equal(gradient, slopes[k])


@both
def test_effects_of_a_called_function_keep_their_order(jit_compile):
    """state = ((state + x) * 2 + sum of states) * 3, with a write before and after each call."""
    state = tf.Variable(1.0)

    @tf.function
    def inner():
        state.assign(state * 2.0)
        state.assign_add(cross_replica_sum(state))

    def function(x):
        state.assign_add(x)
        inner()
        state.assign(state * 3.0)
        return state.read_value()

    concrete = trace(function, 2, tf.TensorSpec(()))
    copies, own = copies_of([state], 2)
    results = together(concrete, 2, jit_compile, captures_of=own)([[1.0], [10.0]])
    # (1 + 1) * 2 = 4 and (1 + 10) * 2 = 22; both add 26.
    assert [float(result) for result in results] == [90.0, 144.0]
    assert (state.numpy(), copies[0][0].numpy()) == (90.0, 144.0)


@both
def test_variables_diverge(jit_compile):
    """Each replica adds its number and the sum of all variables to a variable of its own."""
    variable, weight = tf.Variable(1.0), tf.Variable(2.0)

    def function():
        variable.assign_add(weight * tf.cast(replication_index(), tf.float32))
        return cross_replica_sum(variable)

    concrete = trace(function, 2)
    assert [handle is variable.handle for handle in written_captures(concrete)] == [True]
    (((copy,),), own) = copies_of([variable], 2)
    step = together(concrete, 2, jit_compile, captures_of=own)
    assert [[float(total) for total in step([[], []])] for _ in range(2)] == [[4.0] * 2, [6.0] * 2]
    assert (variable.numpy(), copy.numpy(), weight.numpy()) == (1.0, 5.0, 2.0)


@both
def test_shared_variables_are_written_by_one_after_the_other(jit_compile):
    variable = tf.Variable(0.0)

    def function(x):
        variable.assign_add(cross_replica_sum(x) + x)

    step = together(trace(function, 3, tf.TensorSpec(())), 3, jit_compile)
    step([[1.0], [2.0], [3.0]])
    assert variable.numpy() == 7.0 + 8.0 + 9.0


@both
def test_a_variable_is_read_before_it_is_written(jit_compile):
    """What a replica read before a collective is what the variable had then."""
    variable = tf.Variable(1.0)

    def function(x):
        before = variable.read_value()
        variable.assign(cross_replica_sum(x))
        return before * cross_replica_sum(variable)

    concrete = trace(function, 2, tf.TensorSpec(()))
    _, own = copies_of([variable], 2)
    step = together(concrete, 2, jit_compile, captures_of=own)
    assert [float(result) for result in step([[1.0], [2.0]])] == [6.0, 6.0]
    assert [float(result) for result in step([[1.0], [2.0]])] == [18.0, 18.0]


def test_printed_text_keeps_its_order(capfd):
    def function(x):
        tf.print("before", x)
        with tf.control_dependencies([cross_replica_sum(x)]):
            tf.print("after", x)

    run(function, np.zeros(1, np.float32))
    run(function, np.arange(2, dtype=np.float32))
    lines = capfd.readouterr().err.split("\n")[2:-1]
    for k in range(2):
        assert lines.index(f"before {k}") < lines.index(f"after {k}")


def test_loops_and_branches_without_collectives_stay():
    def function(x):
        x = tf.while_loop(lambda x: x < 8.0, lambda x: x * 2.0, [cross_replica_sum(x)])[0]
        return tf.cond(x > 9.0, lambda: x, lambda: -x)

    assert run(function, np.array([1.0, 3.0], np.float32)) == [-8.0, -8.0]
    assert run(function, np.array([2.0, 3.0], np.float32)) == [10.0, 10.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.cond(x > 0.0, lambda: cross_replica_sum(x), lambda: x),
        lambda x: tf.while_loop(lambda x: x < 9.0, lambda x: [cross_replica_sum(x)], [x])[0],
        lambda x: tf.while_loop(lambda x: cross_replica_sum(x) < 9.0, lambda x: [x + 1.0], [x])[0],
        lambda x: tf.switch_case(tf.cast(x, tf.int32), [lambda: all_gather(x, 2)[0], lambda: x]),
        lambda x: tf.while_loop(
            lambda n, _: cross_replica_sum(n) < 9,
            lambda n, x: [n + 1, cross_replica_sum(x)],
            [tf.constant(0), x],
        )[1],
        lambda x: tf.while_loop(
            lambda n, _: n < 2,
            lambda n, x: [n + tf.cast(x, tf.int32), cross_replica_sum(x)],
            [0, x],
        )[1],
    ],
)
def test_collectives_in_loops_and_branches_are_refused(function):
    concrete = trace(function, 2, tf.TensorSpec(()))
    with pytest.raises(ValueError, match=r"hangs an IPU.*Received: one in '.*', of type .*\. Exch"):
        replicate(concrete, 2)


def _at_random(x):
    return tf.random.uniform([]) > 0.5


@both
@pytest.mark.parametrize("num_replicas", [2, 4])
def test_branch_that_all_replicas_take(num_replicas, jit_compile):
    """Sums of one branch and gathered maxima of the other, of values that replicas have alike."""

    def function(x, threshold):
        total = cross_replica_sum(tf.reduce_sum(x))
        is_large = assume_equal_across_replicas(total > threshold)

        def grow():
            return cross_replica_sum(cross_replica_sum(x) * x), tf.constant(1)

        def choose():
            return tf.reduce_max(all_gather(x, num_replicas), axis=0), replication_index()

        found, which = tf.cond(is_large, grow, choose)
        return found + 1.0, which

    x = numbers(num_replicas, 3)
    for threshold in (x.sum() - 1, x.sum() + 1):
        concrete = trace(function, num_replicas, tf.TensorSpec((3,)), tf.TensorSpec(()))
        given = [[values, np.float32(threshold)] for values in x]
        results = together(concrete, num_replicas, jit_compile)(given)
        for k, (found, which) in enumerate(results):
            if x.sum() > threshold:
                expected = (x.sum(axis=0) * x).sum(axis=0)
                assert int(which) == 1
            else:
                expected = x.max(axis=0)
                assert int(which) == k
            np.testing.assert_allclose(found, expected + 1, rtol=1e-6)


@both
@pytest.mark.parametrize("num_replicas", [1, 2, 4])
def test_a_loop_of_a_known_number_of_turns(num_replicas, jit_compile):
    """Each adds what all have, and what it was in its last turn, weighted by the turn."""
    added = tf.Variable(0.0)

    def function(x):
        def turn(number, x, _):
            added.assign_add(1.0)
            own = x * (1.0 + tf.cast(replication_index(), tf.float32))
            return number + 1, x + tf.cast(number, tf.float32) * cross_replica_sum(x), own

        return tf.while_loop(lambda number, *_: number < 3, turn, [0, x, x])[1:]

    x = numbers(num_replicas, 3)
    copies, captures_of = copies_of([added], num_replicas)
    concrete = trace(function, num_replicas, tf.TensorSpec((3,)))
    found = together(concrete, num_replicas, jit_compile, captures_of=captures_of)([[v] for v in x])
    own = x
    for number in range(3):
        factors = np.arange(1, num_replicas + 1).reshape(-1, 1)
        x, own = x + number * x.sum(axis=0), x * factors
    np.testing.assert_array_equal([f[0] for f in found], x)
    np.testing.assert_array_equal([f[1] for f in found], own)
    assert [float(one) for one in [added, *itertools.chain(*copies)]] == [3.0] * num_replicas


def test_loops_in_loops_and_in_called_functions():
    """The inner loop has as many turns as all replicas together say."""

    @tf.function
    def sums(x):
        return tf.map_fn(lambda row: cross_replica_sum(row), x)

    def function(x, turns):
        turns = assume_equal_across_replicas(turns)

        def outer(number, x):
            inner = tf.while_loop(lambda k, _: k < turns, lambda k, x: [k + 1, sums(x)], [0, x])
            return number + 1, inner[1] - 1.0

        return tf.while_loop(lambda number, _: number < 2, outer, [0, x])[1]

    x = numbers(2, 3, 4)
    concrete = trace(function, 2, tf.TensorSpec((3, 4)), tf.TensorSpec((), tf.int32))
    found = together(concrete, 2)([[values, tf.constant(2)] for values in x])
    # Twice the sum of sums, less 1: replicas are equal from the first sum on.
    expected = 4 * (2 * x.sum(axis=0) - 1.0) - 1.0
    np.testing.assert_array_equal(found, [expected, expected])


def test_what_xla_lacks_is_between_its_parts(capfd):
    """Numbers are read in turn, by loops in branches too, and XLA has compiled all the rest."""
    total = tf.Variable(0.0)

    def function(iterator, x):
        def turn(number, x, read):
            found = next(iterator)
            total.assign_add(found)
            tf.print("turn", number, found)
            return number + 1, tf.tanh(x @ x) + found, read.write(number, found)

        def loop():
            read = tf.TensorArray(tf.float32, 3, element_shape=())
            _, y, read = tf.while_loop(lambda number, *_: number < 3, turn, [0, x, read])
            return y, read.stack()

        return tf.cond(x[0, 0] > 0.0, loop, lambda: (x, tf.zeros(3)))

    iterator = iter(tf.data.Dataset.range(9).map(lambda number: tf.cast(number, tf.float32)))
    x = np.full((2, 2), 0.5, np.float32)
    traced = tf.function(function, autograph=False)
    concrete = traced.get_concrete_function(iterator, tf.TensorSpec((2, 2)))
    parts = tf.function(replicate(concrete, 1, parts_for_xla=True))
    handle = tf.nest.flatten(iterator, expand_composites=True)
    expected, y = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], x
    for first in (0, 3):
        y, [(found, read)] = x, parts([[*handle, x]])
        for number in expected[first : first + 3]:
            y = np.tanh(y @ y) + number
        np.testing.assert_allclose(found, y, rtol=1e-6)
        np.testing.assert_array_equal(read, expected[first : first + 3])
    assert float(total) == 15.0
    printed = [line for line in capfd.readouterr().err.split("\n") if line.startswith("turn")]
    assert printed == [f"turn {k % 3} {k}" for k in range(6)]
    (whole,) = parts._list_all_concrete_functions()
    compiled = kinds_in_xla(whole.graph.as_graph_def().library.function)
    assert "Tanh" in compiled
    assert not {"PrintV2", "IteratorGetNext", "TensorListSetItem", "While"} & compiled


def kinds_in_xla(library):
    """The kinds of operations in functions that XLA must compile, with those that they call."""
    functions = {function.signature.name: function for function in library}
    pending = [f for f in functions.values() if f.attr["_XlaMustCompile"].b]
    found = set()
    while pending:
        nodes = pending.pop().node_def
        found |= {node.op for node in nodes}
        pending += [functions[n.attr["f"].func.name] for n in nodes if n.attr["f"].func.name]
    return found


def test_cases_within_branches_of_a_called_function():
    @tf.function
    def inner(number, x):
        number = assume_equal_across_replicas(number)
        cases = [lambda: x, lambda: cross_replica_sum(x), lambda: cross_replica_sum(x) - x]
        return tf.cond(number >= 0, lambda: tf.switch_case(number, cases), lambda: -x)

    x = numbers(2, 3)
    for number, expected in ((-1, -x), (0, x), (1, x.sum(axis=0) + 0 * x), (2, x[::-1])):
        concrete = trace(inner, 2, tf.TensorSpec((), tf.int32), tf.TensorSpec((3,)))
        given = [[tf.constant(number), values] for values in x]
        np.testing.assert_allclose(together(concrete, 2)(given), expected, rtol=1e-6)


def test_gradient_through_a_branch_with_a_collective():
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            flag = assume_equal_across_replicas(tf.constant(True))
            y = tf.cond(flag, lambda: cross_replica_sum(x * x), lambda: x)
            loss = tf.reduce_sum(y * (1.0 + tf.cast(replication_index(), tf.float32)))
        return tape.gradient(loss, x)

    x = numbers(2, 3)
    # The weights of both replicas' losses, 1 and 2, meet in each.
    np.testing.assert_allclose(run(function, x), 3 * 2 * x, rtol=1e-6)


def test_writes_in_a_branch_keep_their_order():
    a = tf.Variable(0.0)

    def function(x):
        a.assign(x)

        def add():
            a.assign_add(cross_replica_sum(a))
            return 0.0

        tf.cond(assume_equal_across_replicas(x) > -1.0, add, lambda: 1.0)
        a.assign(a * 10.0)
        return a.read_value()

    concrete = trace(function, 2, tf.TensorSpec(()))
    copies, captures_of = copies_of([a], 2)
    assert [float(r) for r in together(concrete, 2, captures_of=captures_of)([[1.0], [2.0]])] == [
        40.0,
        50.0,
    ]
    assert (float(a), float(copies[0][0])) == (40.0, 50.0)


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: x > 0.0,
        lambda x: assume_equal_across_replicas(x) > x,
        lambda x: replication_index() > 0,
        _at_random,
    ],
)
def test_branches_that_replicas_may_not_all_take_are_refused(condition):
    concrete = trace(
        lambda x: tf.cond(condition(x), lambda: cross_replica_sum(x), lambda: x),
        2,
        tf.TensorSpec(()),
    )
    message = r"hangs an IPU.* promise that its condition .* `assume_equal_across_replicas`\.$"
    with pytest.raises(ValueError, match=message):
        replicate(concrete, 2)


def test_a_function_that_was_traced_for_one_replica():
    """TensorFlow would use it again, where its collective does nothing."""
    inner = tf.function(cross_replica_sum)
    trace(lambda x: inner(x), 1, X)
    concrete = trace(lambda x: inner(x), 2, X)
    with pytest.raises(ValueError, match="traced for 1 of them and used with 2"):
        replicate(concrete, 2)


def test_a_function_that_was_traced_for_others():
    concrete = trace(cross_replica_sum, 4, X)
    with pytest.raises(ValueError, match="traced for 4 of them and used with 2"):
        replicate(concrete, 2)
    replicate(trace(lambda x: x, 1, X), 2)


def test_inputs_of_another_number_of_replicas():
    with pytest.raises(ValueError, match="Received: 1 lists for 2 replicas"):
        replicate(trace(cross_replica_sum, 2, X), 2)([[tf.zeros(2)]])


def test_tracing_takes_hardly_longer_for_more_replicas():
    """The parts of a step are traced once: each replica only calls them."""
    concrete = trace(lambda x: tf.nn.relu(cross_replica_sum(tf.sin(x))), 8, X)
    traced = replicate(concrete, 8)
    graph = tf.function(traced).get_concrete_function([[X]] * 8).graph
    called = [
        op.get_attr("f").name for op in graph.get_operations() if op.type == "PartitionedCall"
    ]
    assert len(called) == 16
    assert len(set(called)) == 2


def test_examples():
    assert doctest.testmod(segments).failed == 0
