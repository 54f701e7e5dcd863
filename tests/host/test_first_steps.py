"""Programs whose first steps run op by op, before XLA compiles them.

What an index outside of a table gives tells who computes: TensorFlow's kernel refuses it, XLA takes
the last row.
"""

import math

import pytest
import tensorflow as tf
from host_programs import assert_same, feeds_of, make_program, step_by_step

from ipu_keras.host import host_program as host
from ipu_keras.host.first_steps import FirstSteps, steps_before_xla, steps_that_pay
from ipu_keras.ir import Graph, Op, TensorSpec

LAST_ROW = 3.0


def looking_up(wrong_from, repeat_count, **options):
    """A program that counts its steps, and looks outside of its table from one of them on."""
    table = tf.constant([1.0, 2.0, LAST_ROW])
    count = tf.Variable(0)

    def step(_):
        number = count.assign_add(1) - 1
        return tf.gather(table, tf.where(number >= wrong_from, 9, 0))

    return make_program(step, repeat_count=repeat_count, first_steps=32, **options)


@pytest.mark.parametrize("repeat_count", [1, 8, 32])
def test_xla_computes_after_32_steps(device, repeat_count):
    program = looking_up(32, repeat_count)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    for _ in range(32 // repeat_count):
        assert float(executable.host(feeds)) == 1.0
    for _ in range(2):
        assert float(executable.host(feeds)) == LAST_ROW
    assert executable.host.refusal is None


@pytest.mark.parametrize("repeat_count", [1, 8, 32])
def test_tensorflow_computes_the_32nd_step(device, repeat_count):
    program = looking_up(31, repeat_count)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    for _ in range(32 // repeat_count - 1):
        executable.host(feeds)
    with pytest.raises(tf.errors.InvalidArgumentError, match="9 is not in"):
        executable.host(feeds)


def test_executions_that_would_go_beyond_are_compiled(device):
    program = looking_up(0, 12)
    executable = host.build(program, device)
    with pytest.raises(tf.errors.InvalidArgumentError, match="9 is not in"):
        executable.host(feeds_of(program))
    program = looking_up(0, 33)
    assert float(host.build(program, device).host(feeds_of(program))) == LAST_ROW


def test_who_asks_for_xla_has_it_from_the_start(device):
    program = looking_up(0, 1, compiled=True)
    assert float(host.build(program, device).host(feeds_of(program))) == LAST_ROW


def test_what_xla_refuses_goes_on_op_by_op(device):
    total = tf.Variable(0)

    def step(x):
        digits = tf.strings.as_string(tf.cast(x, tf.int32))
        hashes = tf.cast(tf.strings.to_hash_bucket_fast(digits, 100), tf.int32)
        return total.assign_add(tf.reduce_sum(hashes))

    program = make_program(step, repeat_count=20, first_steps=32)
    executable = host.build(program, device)
    for seed in range(3):
        feeds = feeds_of(program, seed)
        before = int(total)
        found = executable.host(feeds)
        total.assign(before)
        assert_same(found, step_by_step(program, feeds))
    assert "XLA" in executable.host.refusal


def graph_of_ops(*ops, **functions):
    return Graph("step", ops, functions)


def test_steps_that_pay_golden():
    """1.05 s and 1.9 ms an operation to compile, over what a step gains."""
    exp = Op("exp", "Exp", (TensorSpec((1000, 250), "float32"),))
    free = Op("x", "Const", (TensorSpec((1000, 250), "float32"),))
    # An operation gains 0.5 us, and a byte of the million that it writes 0.17 ns.
    assert steps_that_pay(graph_of_ops(free, *[exp] * 30)) == math.ceil(
        (1.05 + 30 * 1.9e-3) / (30 * (0.5e-6 + 0.17e-3))
    )


def test_steps_that_pay_in_loops():
    """Its turns count for what it gains, and not for what is compiled; lists write no bytes."""
    body = Graph("body", (Op("list", "AddN", (TensorSpec((), "variant"),)),) * 20)
    loop = Op("loop", "While", body=("body",), attributes={"turns": 100})
    once = Op("loop", "While", body=("body",), attributes={"turns": 1})
    assert steps_that_pay(graph_of_ops(loop, body=body)) == math.ceil(
        (1.05 + 21 * 1.9e-3) / (0.5e-6 + 100 * 20 * 0.8e-6)
    )
    assert steps_that_pay(graph_of_ops(once, body=body)) == 1024


def test_what_gains_most_pays_after_32_steps():
    large = Op("exp", "Exp", (TensorSpec((10_000, 100_000), "float32"),))
    assert steps_that_pay(graph_of_ops(large)) == 32
    assert steps_that_pay(graph_of_ops()) == 1024


def test_the_environment_says_another_number(monkeypatch):
    program = make_program(lambda x: x, first_steps=None)
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "7")
    assert steps_before_xla(program, graph_of_ops()) == 7
    assert steps_before_xla(make_program(lambda x: x, first_steps=5), graph_of_ops()) == 5
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "auto")
    assert steps_before_xla(program, graph_of_ops()) == 1024
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "-1")
    with pytest.raises(ValueError, match=r"such as 0, or 'auto'\. Received: '-1'"):
        steps_before_xla(program, graph_of_ops())


def steps_op_by_op(first, executions, *, planned, written=True):
    """How many executions of a call run op by op."""
    first.begin(planned, lambda: written)
    for done, num_steps in enumerate(executions):
        if first.are_over(num_steps):
            return done
        first.note(num_steps)
    return len(executions)


@pytest.mark.parametrize(
    ("planned", "expected"),
    # 100 steps pay: what is known to come ends first steps after 32 of them.
    [(100, 101), (101, 32), (5000, 32)],
)
def test_training_changes_over_where_it_pays(planned, expected):
    first = FirstSteps(100, fixed_answers=False)
    assert steps_op_by_op(first, [1] * planned, planned=planned) == min(expected, planned)


def test_trainings_of_a_step_each_are_counted_together():
    first = FirstSteps(100, fixed_answers=False)
    done = [steps_op_by_op(first, [1], planned=1) for _ in range(101)]
    assert done == [1] * 100 + [0]


def test_fixed_answers_change_over_between_calls_once_weights_were_written():
    first = FirstSteps(100, fixed_answers=True)
    calls = [(40, True), (40, True), (40, False), (40, True)]
    done = [
        steps_op_by_op(first, [10] * 4, planned=planned, written=written)
        for planned, written in calls
    ]
    # The third call would pay, but weights are as they were; the fourth is compiled whole.
    assert done == [4, 4, 4, 0]


def test_weights_are_not_asked_for_before_it_pays():
    first = FirstSteps(100, fixed_answers=True)
    steps_op_by_op(first, [10] * 4, planned=40)

    def asked():
        raise AssertionError("checksums take time")

    first.begin(40, asked)
    with pytest.raises(AssertionError, match="checksums take time"):
        first.begin(61, asked)
