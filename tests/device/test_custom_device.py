"""The Cython unit itself: its ABI, its symbols, threads, async mode and memory."""

import gc
import os
import re
import threading
from pathlib import Path

import pytest
import tensorflow as tf
from headers import check_headers
from tensorflow.python.eager import context

from ipu_keras import _device
from ipu_keras.internals.tensorflow.contexts import copied_to

HEADER_CHECK = """
#include <cstddef>
#include "tensorflow/c/eager/c_api_experimental.h"
using Device = TFE_CustomDevice;
using Tensor = TFE_CustomDeviceTensorHandle;
static_assert(TFE_CUSTOM_DEVICE_VERSION == 4, "");
static_assert(sizeof(Device) == 56 && offsetof(Device, copy_tensor_to_device) == 8, "");
static_assert(offsetof(Device, copy_tensor_from_device) == 16, "");
static_assert(offsetof(Device, execute) == 24 && offsetof(Device, delete_device) == 32, "");
static_assert(offsetof(Device, pack) == 40, "");
static_assert(offsetof(Device, shall_pin_to_this_device) == 48, "");
static_assert(sizeof(Tensor) == 40 && offsetof(Tensor, num_dims) == 8, "");
static_assert(offsetof(Tensor, dim) == 16 && offsetof(Tensor, deallocator) == 24, "");
static_assert(offsetof(Tensor, summarize) == 32, "");
"""


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_structures_passed_by_value_have_the_sizes_of_the_abi():
    assert _device.abi_layout() == {
        "TFE_CustomDevice": 56,
        "TFE_CustomDeviceTensorHandleMethods": 40,
    }


def test_the_installed_headers_have_the_same_layout():
    check_headers(HEADER_CHECK)


def test_symbols_of_the_loaded_library_are_found():
    found = {_device.address_of(name) for name in ("TFE_Execute", "TFE_OpGetAttrs")}
    assert len(found - {0}) == 2


def test_a_missing_symbol_names_itself_and_the_version():
    message = f"TensorFlow {tf.__version__} does not export the function 'TFE_NoSuchThing'"
    with pytest.raises(ImportError, match=f"^{re.escape(message)}, which ipu_keras needs."):
        _device.address_of("TFE_NoSuchThing")


def test_the_name_of_a_device_is_checked():
    message = (
        "`name` must be '/job:localhost/replica:0/task:0/device:IPU:' and an ordinal. "
        "Received: name='IPU:0'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        _device.CustomDevice("IPU:0")


def test_a_device_that_was_never_registered_is_freed():
    for _ in range(100):
        device = _device.CustomDevice("/job:localhost/replica:0/task:0/device:IPU:99")
        for k in range(10):
            device.register_program(f"__inference_step_{k}")
        device.refuse("Not needed.")
    assert set(device.program_executions().values()) == {0}


def test_many_programs_share_the_buckets():
    device = _device.CustomDevice("/job:localhost/replica:0/task:0/device:IPU:99")
    names = [f"__inference_step_{k}" for k in range(1000)]
    for name in names:
        device.register_program(name)
    assert sorted(device.program_executions()) == sorted(names)


@pytest.mark.parametrize("mode", [context.SYNC, context.ASYNC])
def test_four_threads_lose_no_count(devices, mode):
    num_threads, num_steps = 4, 200
    device = devices[0]
    step = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([8, 8]))
    name = step.function_def.signature.name
    device.register_program(name)
    with tf.device("/device:IPU:0"):
        x = tf.ones([8, 8])
    device.reset_counters()
    failures = []

    def work(k):
        try:
            with context.execution_mode(mode), tf.device("/device:IPU:0"):
                for _ in range(num_steps):
                    y = tf.matmul(step(x), x)
                device.register_program(f"__inference_other_{k}")
                assert y.numpy()[0, 0] == 16.0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[k]) for k in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    counters = device.counters()
    assert counters.num_operations == num_threads * num_steps
    assert counters.num_function_calls == num_threads * num_steps
    assert counters.program_executions[name] == num_threads * num_steps
    assert counters.num_copies_from_device == num_threads


def test_async_errors_arrive_when_the_value_is_needed(devices):
    with context.execution_mode(context.ASYNC), tf.device("/device:IPU:0"):
        x = tf.ones([2, 3])
        y = tf.matmul(x, x)
        assert y.device == devices[0].name
        with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible"):
            y.numpy()
        context.async_clear_error()


def test_async_results_are_those_of_sync(devices):
    def power(mode):
        with context.execution_mode(mode), tf.device("/device:IPU:0"):
            x = tf.random.stateless_normal([16, 16], seed=[1, 2]) / 8.0
            weight = tf.Variable(x)
            for _ in range(20):
                weight.assign(tf.matmul(weight, x) + x)
            return weight.numpy().tolist()

    assert power(context.ASYNC) == power(context.SYNC)


def test_memory_does_not_grow(devices):
    step = tf.function(lambda x: x * 2.0 + 1.0)
    with tf.device("/device:IPU:0"):
        x = tf.ones([32, 32])

    def run(num_steps):
        with tf.device("/device:IPU:0"):
            for _ in range(num_steps):
                tf.matmul(step(x), x).numpy()

    run(1000)
    gc.collect()
    before = resident_bytes()
    run(10_000)
    gc.collect()
    assert resident_bytes() - before < 20e6


class Refusing:
    """Has a device fail to find what runs in place of functions and operations."""

    def of_function(self, name):
        raise ValueError(f"no function {name[:12]}")

    def of_operation(self, attributes):
        raise ValueError(f"no operation {b'Cast' in attributes}")


def test_an_error_of_python_in_a_callback_is_raised(reconfigure):
    reconfigure(1)
    name = "/job:localhost/replica:0/task:0/device:IPU:77"
    device = _device.CustomDevice(name, Refusing())
    device.configure()
    callbacks, state = device.capsules()
    context.context().register_custom_device(callbacks, name, state)
    double = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([]))
    x = copied_to(tf.constant(1.0), name)
    assert (x + 1.0).numpy() == 2.0
    with pytest.raises(tf.errors.InternalError, match="ValueError: no function __inference_"):
        double(x)
    with pytest.raises(tf.errors.InternalError, match="ValueError: no operation True"):
        tf.cast(x, tf.int32)
    # What is registered runs as it is.
    device.register_program(double.name.decode())
    assert double(x).numpy() == 2.0
    device.refuse("Of a test.")
