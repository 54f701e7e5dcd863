"""Operations of users' own, of a library that is compiled here."""

import doctest
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import cross_replica_ops, custom_ops, user_operations
from ipu_keras.ops.custom_ops import (
    cpu_user_operation,
    precompiled_user_op,
)
from ipu_keras.profiling.reports import last_report

HEADER = """
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
using Inputs = std::vector<const void*>;
using Sizes = std::vector<std::uint32_t>;
using Outputs = std::vector<void*>;
"""

# A product of two vectors, times the number in `attributes`, for float and double.
SOURCE = """
template <typename T>
void product(const T* x, const T* y, T* z, std::uint32_t n, const std::string& factor) {
  T f = factor.empty() ? 1 : std::stod(factor);
  for (std::uint32_t k = 0; k < n; ++k) z[k] = f * x[k] * y[k];
}

extern "C" {
std::int32_t custom_op_api_level = 5;

void Callback(const Inputs& in, const Sizes& n, const Outputs& out, const std::string& attributes,
              const std::string& name) {
  product((const float*)in[0], (const float*)in[1], (float*)out[0], n[0], attributes);
}
// The inputs: the gradient of the product, the product, and its two factors.
void Callback_grad(const Inputs& in, const Sizes& n, const Outputs& out,
                   const std::string& attributes, const std::string& name) {
  product((const float*)in[0], (const float*)in[3], (float*)out[0], n[0], attributes);
  if (out.size() == 2)
    product((const float*)in[0], (const float*)in[2], (float*)out[1], n[0], attributes);
}

// The same with gradients of their own, and parameters by value.
void Separate(Inputs in, Sizes n, Outputs out, std::string attributes, std::string name) {
  product((const double*)in[0], (const double*)in[1], (double*)out[0], n[0], attributes);
}
void Separate_grad_0(Inputs in, Sizes n, Outputs out, std::string attributes, std::string name) {
  product((const double*)in[0], (const double*)in[3], (double*)out[0], n[0], attributes);
}
void Separate_grad_1(Inputs in, Sizes n, Outputs out, std::string attributes, std::string name) {
  product((const double*)in[0], (const double*)in[2], (double*)out[0], n[0], attributes);
}

void Describe(const Inputs& in, const Sizes& n, const Outputs& out, const std::string& attributes,
              const std::string& name) {
  std::int32_t* sizes = (std::int32_t*)out[0];
  for (std::size_t k = 0; k < n.size(); ++k) sizes[k] = n[k];
  std::string text = attributes + "|" + name;
  std::memcpy(out[1], text.data(), text.size());
}

std::int32_t calls = 0;
void Count(const Inputs& in, const Sizes& n, const Outputs& out, const std::string& attributes,
           const std::string& name) {
  ++calls;
  if (!out.empty()) *(std::int32_t*)out[0] = calls;
}

// As many bytes of each element as `attributes` says.
void Copy(const Inputs& in, const Sizes& n, const Outputs& out, const std::string& attributes,
          const std::string& name) {
  for (std::size_t k = 0; k < out.size(); ++k)
    std::memcpy(out[k], in[k], n[k] * std::stoi(attributes));
}

void Copy_grad(const Inputs& in, const Sizes& n, const Outputs& out,
               const std::string& attributes, const std::string& name) {
  Copy(in, n, out, attributes, name);
}

void Throw(const Inputs& in, const Sizes& n, const Outputs& out, const std::string& attributes,
           const std::string& name) {
  throw std::runtime_error("no " + attributes + " today");
}

void Build() {}
void Build_host(const Inputs& in, const Sizes& n, const Outputs& out,
                const std::string& attributes, const std::string& name) {
  product((const float*)in[0], (const float*)in[1], (float*)out[0], n[0], attributes);
}
void Build_host_grad(const Inputs& in, const Sizes& n, const Outputs& out,
                     const std::string& attributes, const std::string& name) {
  Callback_grad(in, n, out, attributes, name);
}
void OnlyForIpus() {}
}
"""

X = np.array([1.0, -2.0, 3.0], np.float32)
Y = np.array([0.5, 4.0, -1.0], np.float32)
OUTS = {"output_types": [tf.float32], "output_shapes": [[3]]}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles a library of a source; returns its path."""

    def compile_library(source, name="library"):
        folder = tmp_path_factory.mktemp(name)
        (folder / "source.cc").write_text(HEADER + source)
        path = folder / f"lib{name}.so"
        command = ["g++", "-shared", "-fPIC", str(folder / "source.cc"), "-o", str(path)]
        subprocess.run(command, check=True)
        return str(path)

    return compile_library


@pytest.fixture(scope="module")
def library(compiled):
    return compiled(SOURCE)


@pytest.fixture
def multiply(library):
    def multiply(x, y, **options):
        outs = {"output_types": [x.dtype], "output_shapes": [x.shape]}
        [product] = cpu_user_operation([x, y], library, outs=outs, **options)
        return product

    return multiply


@pytest.fixture
def no_configuration():
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def gradients_of(function, *tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(*tensors)
    return [result, *tape.gradient(result, tensors)]


def assert_product(found, factor=1, gradient_factor=1):
    """Of X and Y, with the gradients of its sum."""
    for value, expected in zip(
        found, (factor * X * Y, gradient_factor * Y, gradient_factor * X), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("module", [custom_ops, user_operations])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0


# -- on the host --------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_forward_and_backward(multiply, wrap):
    run = wrap(lambda x, y: gradients_of(multiply, x, y))
    assert_product(run(tf.constant(X), tf.constant(Y)))


def test_a_function_of_the_tape(multiply):
    x, y = tf.constant(X), tf.constant(Y)
    assert_product(gradients_of(tf.function(multiply), x, y))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        product = tf.function(multiply)(x, y)
    np.testing.assert_array_equal(tape.gradient(product, x), Y)


def test_attributes(multiply):
    def run(x, y):
        return multiply(x, y, attributes="2", gradient_attributes=b"3")

    assert_product(gradients_of(run, tf.constant(X), tf.constant(Y)), 2, 3)


def test_separate_gradients(multiply):
    def run(x, y):
        options = {"attributes": "2", "gradient_attributes": "2"}
        return multiply(x, y, op_name="Separate", separate_gradients=True, **options)

    x, y = tf.constant(X, tf.float64), tf.constant(Y, tf.float64)
    np.testing.assert_array_equal(run(x, y), 2 * X * Y)
    for ours, expected in zip(*tf.test.compute_gradient(run, [x, y]), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-7)


@pytest.mark.parametrize("separate", [False, True])
def test_inputs_with_gradients(multiply, separate):
    # With one input, `Callback_grad` is given one output.
    options = {"op_name": "Separate", "separate_gradients": True} if separate else {}
    dtype = tf.float64 if separate else tf.float32
    x, y = tf.constant(X, dtype), tf.constant(Y, dtype)
    _, d_x, d_y = gradients_of(
        lambda x, y: multiply(x, y, inputs_with_gradients=[0], **options), x, y
    )
    np.testing.assert_array_equal(d_x, Y)
    assert d_y is None


def test_what_the_function_is_told(library):
    inputs = [tf.zeros((2, 3)), tf.zeros((), tf.float16), tf.zeros((0, 4), tf.bool)]
    outs = {"output_types": [tf.int32, tf.uint8], "output_shapes": [[3], [8]]}
    options = {"op_name": "Describe", "attributes": "abc", "name": "mine"}
    for run in (cpu_user_operation, tf.function(cpu_user_operation)):
        sizes, text = run(inputs, library, outs, **options)
        np.testing.assert_array_equal(sizes, [6, 1, 0])
        assert bytes(text.numpy()) == b"abc|mine"


def test_without_outputs(library):
    def number_of_calls():
        outs = {"output_types": [tf.int32], "output_shapes": [()]}
        [calls] = cpu_user_operation([], library, outs, op_name="Count")
        return int(calls)

    before = number_of_calls()
    assert cpu_user_operation([tf.ones(2)], library, op_name="Count") == []

    @tf.function
    def count(x):
        operation = cpu_user_operation([x], library, op_name="Count")
        assert isinstance(operation, tf.Operation)
        return x

    count(tf.ones(2))
    assert number_of_calls() == before + 3


def test_graph_of_tensorflow_1(multiply):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x, y = (tf.compat.v1.placeholder(tf.float32, [3]) for _ in range(2))
        product = multiply(x, y)
        found = session.run([product, *tf.gradients(product, [x, y])], {x: X, y: Y})
    assert_product(found)


@pytest.mark.parametrize("exchanges", [False, True])
@pytest.mark.parametrize("num_ipus", [1, 2])
def test_functions_for_xla_of_a_strategy(multiply, num_ipus, exchanges, no_configuration):
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()

    @tf.function(jit_compile=True)
    def run(x, y):
        product, *gradients = gradients_of(multiply, x, y)
        if exchanges:
            product = cross_replica_ops.cross_replica_sum(product)
        return [product, *gradients]

    factor = num_ipus if exchanges else 1
    for _ in range(2):
        assert_product(IPUStrategy().run(run, (tf.constant(X), tf.constant(Y))), factor)


class Squares(keras.layers.Layer):
    """Squares of the inputs, by a library or by TensorFlow."""

    def __init__(self, multiply):
        super().__init__()
        self._multiply = multiply

    def call(self, x):
        return self._multiply(x, x)

    def compute_output_shape(self, shape):
        return shape


def trained(multiply, **options):
    """Metrics and predictions of a model after training."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((16, 4), np.float32), random.standard_normal((16, 1), np.float32)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3), Squares(multiply), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], **options)
    history = model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    evaluated = model.evaluate(x, y, batch_size=4, verbose=0)
    return history.history["loss"], evaluated, model.predict(x, batch_size=4, verbose=0)


@pytest.mark.parametrize(("num_ipus", "jit_compile"), [(1, "auto"), (2, True)])
def test_models(multiply, jit_compile, num_ipus, no_configuration):
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()
    with IPUStrategy().scope():
        options = {"steps_per_execution": 2, "jit_compile": jit_compile}
        found = trained(multiply, **options)
        report = last_report()
        expected = trained(tf.multiply, **options)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert report.not_lowered == ("PyFunc",)


ALL_DTYPES = [
    tf.as_dtype(number) for number in types_pb2.DataType.values() if number != types_pb2.DT_INVALID
]
# What no function of C++ can read or write as plain memory.
OBJECTS = ("string", "resource", "variant")


def holds_objects(dtype):
    return dtype.name in OBJECTS or dtype.name.endswith("_ref")


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=repr)
def test_any_type_is_copied_or_refused(library, dtype, wrap):
    """A function may be given tensors of any type of numbers, and give them, bit by bit."""
    outs = {"output_types": [dtype], "output_shapes": [[2, 3]]}
    if holds_objects(dtype):
        with pytest.raises(TypeError, match=rf"`outs` must be types of numbers.*{dtype!r}"):
            wrap(lambda: cpu_user_operation([X], library, outs, op_name="Copy"))()
        return
    x = np.random.default_rng(0).integers(0, 2, [2, 3]).astype(dtype.as_numpy_dtype)

    @wrap
    def copy(x, attributes=str(x.dtype.itemsize)):
        return cpu_user_operation([x], library, outs, op_name="Copy", attributes=attributes)

    [copied] = copy(tf.convert_to_tensor(x, dtype))
    assert (copied.dtype, copied.shape) == (dtype, (2, 3))
    assert copied.numpy().tobytes() == x.tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.constant("text"),
        lambda: tf.Variable(1.0).handle,
        lambda: tf.raw_ops.EmptyTensorList(
            element_shape=-1, max_num_elements=1, element_dtype=tf.float32
        ),
    ],
)
def test_inputs_that_are_objects(library, make):
    given_tensor = make()
    with pytest.raises(
        TypeError, match=rf"`inputs` must be .* a tensor of {given_tensor.dtype.name} at position 1"
    ):
        cpu_user_operation([X, given_tensor], library, OUTS, op_name="Copy")


def test_gradients_of_complex_numbers(library):
    x = tf.constant(X, tf.complex64)

    def copy(x):
        outs = {"output_types": [x.dtype], "output_shapes": [x.shape]}
        return cpu_user_operation(
            [x], library, outs, op_name="Copy", attributes="8", gradient_attributes="8"
        )[0]

    assert gradients_of(copy, x)[1].dtype == tf.complex64


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_an_exception_of_the_function(library, wrap):
    @wrap
    def run(x):
        return cpu_user_operation([x], library, OUTS, op_name="Throw", attributes="luck")

    with pytest.raises(
        (RuntimeError, tf.errors.UnknownError), match=r"'Throw' of .* threw .*: no luck today"
    ):
        run(tf.constant(X))


def test_gradients_that_are_not_there(library, multiply):
    x, y = tf.constant(X), tf.constant(Y)

    def describe(x):
        outs = {"output_types": [tf.float32], "output_shapes": [[3]]}
        return cpu_user_operation([x], library, outs, op_name="Count")[0]

    with pytest.raises(ValueError, match=r"must export the function 'Count_grad'"):
        gradients_of(describe, x)
    with pytest.raises(ValueError, match=r"must export the function 'Callback_grad_0'"):
        gradients_of(lambda x, y: multiply(x, y, separate_gradients=True), x, y)
    with tf.GradientTape() as tape:
        tape.watch(x)
        _, d_x, _ = gradients_of(multiply, x, y)
    with pytest.raises(LookupError, match="no gradient of 'Callback_grad'"):
        tape.gradient(d_x, x)


def test_a_gradient_of_an_unknown_shape(library):
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def run(x):
        return gradients_of(lambda x: cpu_user_operation([x, x], library, OUTS)[0], x)[1]

    with pytest.raises(ValueError, match=r"fully defined shapes .* Received: .* shape \(None,\)"):
        run(tf.constant(X))


@pytest.mark.parametrize("level", [4, 5])
def test_levels(compiled, level):
    path = compiled(
        SOURCE.replace("custom_op_api_level = 5", f"custom_op_api_level = {level}"), f"level{level}"
    )
    [product] = cpu_user_operation([X, Y], path, OUTS)
    np.testing.assert_array_equal(product, X * Y)


def test_libraries_that_cannot_be_used(compiled, library, tmp_path):
    with pytest.raises(ValueError, match=r"g\+\+ -shared.*Received: library_path='/no/lib.so'"):
        cpu_user_operation([X, Y], "/no/lib.so", OUTS)
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(ValueError, match=r"compile it again here\. Received: .*text\.so"):
        cpu_user_operation([X, Y], text, OUTS)
    with pytest.raises(ValueError, match=r"must export the function 'Nothing': .*no such symbol"):
        cpu_user_operation([X, Y], library, OUTS, op_name="Nothing")
    old = compiled('extern "C" { std::int32_t custom_op_api_level = 1; void Callback() {} }', "old")
    with pytest.raises(
        ValueError, match=r"API level 1, expected 4 or 5\..*Received: custom_op_api_level=1"
    ):
        cpu_user_operation([X, Y], old, OUTS)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "dictionary with the lists", {"outs": [tf.float32]}),
        (ValueError, "dictionary with the lists", {"outs": {"output_types": [tf.float32]}}),
        (
            ValueError,
            "2 types and 1 shapes",
            {"outs": {"output_types": [tf.float32] * 2, "output_shapes": [[3]]}},
        ),
        (
            ValueError,
            r"must be fully defined.*Received: \(None,\)",
            {"outs": {"output_types": [tf.float32], "output_shapes": [[None]]}},
        ),
        (ValueError, r"the 2 inputs\. Received: .*=\[2\]", {"inputs_with_gradients": [2]}),
        (ValueError, r"the 2 inputs\. Received: .*=\[0, 0\]", {"inputs_with_gradients": [0, 0]}),
        (TypeError, "`attributes` must be a string.*attributes=3", {"attributes": 3}),
        (TypeError, "`gradient_attributes` must be", {"gradient_attributes": {}}),
        (TypeError, "tensor of string at position 1", {"inputs": [X, "text"]}),
        (TypeError, r"`inputs` must be a list of tensors\. Received: inputs=3", {"inputs": 3}),
        (TypeError, "`inputs` must be .*inputs='text'", {"inputs": "text"}),
        (TypeError, r"`library_path` must be .*Received: library_path=5", {"library_path": 5}),
        (TypeError, r"`op_name` must be a name\. Received: op_name=5", {"op_name": 5}),
        (TypeError, r"`op_name` must be a name\. Received: op_name=''", {"op_name": ""}),
        (TypeError, r"`name` must be a name\. Received: name=None", {"name": None}),
        (ValueError, r"Received: inputs_with_gradients=0", {"inputs_with_gradients": 0}),
        (
            ValueError,
            r"Received: inputs_with_gradients=\[nan\]",
            {"inputs_with_gradients": [np.nan]},
        ),
        (
            TypeError,
            r"types of numbers.*Received: 'flaot'",
            {"outs": {"output_types": ["flaot"], "output_shapes": [[3]]}},
        ),
        (
            ValueError,
            r'"output_shapes" in `outs` must be shapes.*Received: \[1\.5\]',
            {"outs": {"output_types": [tf.float32], "output_shapes": [[1.5]]}},
        ),
        (
            ValueError,
            "dictionary with the lists",
            {"outs": {"output_types": tf.float32, "output_shapes": [3]}},
        ),
    ],
)
def test_what_cannot_be_given(library, error, message, options):
    arguments = {"inputs": [X, Y], "library_path": library, "outs": OUTS}
    with pytest.raises(error, match=message):
        cpu_user_operation(**{**arguments, **options})


# -- for IPUs -----------------------------------------------------------------


def test_precompiled(library, tmp_path):
    codelets = tmp_path / "codelets.gp"
    codelets.touch()

    def run(x, y):
        return precompiled_user_op([x, y], library, str(codelets), OUTS)[0]

    assert_product(gradients_of(run, tf.constant(X), tf.constant(Y)))


def test_precompiled_takes_no_objects(library):
    outs = {"output_types": [tf.string], "output_shapes": [[3]]}
    with pytest.raises(TypeError, match=r"types of numbers.*Received: tf\.string"):
        precompiled_user_op([X, Y], library, outs=outs)


def test_precompiled_without_a_function_for_the_host(library):
    with pytest.raises(
        NotImplementedError,
        match=r"'OnlyForIpus' builds a Poplar graph.*Export the function 'OnlyForIpus_host'",
    ):
        precompiled_user_op([X, Y], library, outs=OUTS, op_name="OnlyForIpus")
    with pytest.raises(ValueError, match=r"Received: gp_path='/no/codelets.gp'"):
        precompiled_user_op([X, Y], library, "/no/codelets.gp", OUTS)
