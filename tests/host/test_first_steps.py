"""Programs whose first steps run op by op, before XLA compiles them.

What an index outside of a table gives tells who computes: TensorFlow's kernel refuses it, XLA takes
the last row.
"""

import pytest
import tensorflow as tf
from host_programs import assert_same, feeds_of, make_program, step_by_step

from ipu_keras.host import host_program as host

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
