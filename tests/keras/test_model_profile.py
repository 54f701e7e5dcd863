"""Reports of Keras models and functions, traced through XLA."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from image_classifier import IMAGES, LABELS, VECTORS, image_classifier, wide_classifier

import ipu_keras
from ipu_keras import last_report, profile, what_if
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import model_profile
from ipu_keras.machine.target import target_named
from ipu_keras.ops.recurrent import lstm
from ipu_keras.report import report as report_module
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras.tracing.poplar_operation import poplar_operation


def rows_of(report, layer, family):
    return [row for row in report.rows if layer in row.layer and row.family == family]


@pytest.mark.parametrize("module", [model_profile, report_module])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_a_training_step():
    model = image_classifier()
    before = [weight.copy() for weight in model.get_weights()]
    report = profile(model, IMAGES, LABELS)
    assert report.name == "classifier.train"
    assert report.batch_size == 16
    # 6 x 6 x 8 results of 9 products for 16 images, and as many for the gradient of the kernel.
    convolutions = rows_of(report, "convolution", "convolution")
    assert [row.flops for row in convolutions] == [2 * 16 * 288 * 9] * 2
    assert [row.backward for row in convolutions] == [False, True]
    # The product, and the gradients of its weights and of its input.
    assert [row.flops for row in rows_of(report, "dense", "dot")] == [2 * 16 * 288 * 4] * 3
    assert len([row for row in report.rows if row.family == "random"]) == 1
    # Kernels, biases and their momenta; the iteration, the rate and the loss's mean.
    floats = 2 * (72 + 8 + 288 * 4 + 4)
    assert 4 * floats <= report.model.memory.bytes_by_category["variables"] <= 4 * floats + 1024
    assert report.fits
    for weight, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert int(model.optimizer.iterations) == 0


def test_a_model_on_an_emulated_ipu_costs_the_same():
    stock = profile(image_classifier(), IMAGES, LABELS)
    with IPUStrategy().scope():
        model = image_classifier()
    ours = profile(model, IMAGES, LABELS)
    # Keras numbers its names, so the reports are not equal as texts.
    costs = [[(row.family, row.cycles, row.flops) for row in one.rows] for one in (stock, ours)]
    assert costs[0] == costs[1]
    assert ours.model.memory.peak_by_tile.tolist() == stock.model.memory.peak_by_tile.tolist()
    assert model.predict(np.zeros((16, 8, 8, 1)), batch_size=16, verbose=0).shape == (16, 4)


@pytest.mark.parametrize(("mode", "specs"), [("test", (IMAGES, LABELS)), ("predict", (IMAGES,))])
def test_other_modes_have_no_gradients(mode, specs):
    report = profile(image_classifier(), *specs, mode=mode)
    assert report.name == f"classifier.{mode}"
    assert len(rows_of(report, "convolution", "convolution")) == 1
    assert not any(row.backward or row.family == "random" for row in report.rows)


def test_labels_are_not_needed_to_predict():
    assert profile(image_classifier(), IMAGES).name == "classifier.predict"
    assert profile(image_classifier(), IMAGES, LABELS, mode="predict").name == "classifier.predict"


def test_inference_in_place_of_training_is_said_first():
    def dense():
        return keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)], name="net")

    compiled = dense()
    compiled.compile("sgd", "mse")
    inputs, labels = tf.TensorSpec((16, 8)), tf.TensorSpec((16, 2))
    for model, lacking in (
        (dense(), "the model is not compiled"),
        (compiled, "no labels were given"),
    ):
        first, second, *_ = str(profile(model, inputs)).splitlines()
        assert first == f"Inference is modelled, as {lacking}"
        assert second.startswith("net.predict on gc200: ")
    for report in (profile(compiled, inputs, labels), profile(compiled, inputs, mode="predict")):
        assert report.note == ""
        assert str(report).startswith("net.")


def test_half_precision_needs_less():
    def report(dtype):
        model = keras.Sequential(
            [keras.Input((1024,), dtype=dtype), keras.layers.Dense(1024, dtype=dtype)]
        )
        return profile(model, tf.TensorSpec((64, 1024), dtype))

    half, single = map(report, ("float16", "float32"))
    variables = [one.model.memory.bytes_by_category["variables"] for one in (half, single)]
    # But for what is rounded up on each tile.
    assert variables[1] == pytest.approx(2 * variables[0], rel=0.01)
    assert half.compute_cycles < single.compute_cycles


def test_a_function_and_its_target():
    @tf.function
    def square(x):
        return x @ x

    spec = tf.TensorSpec((512, 512), tf.float16)
    slow, fast = (profile(square, spec, target=name) for name in ("gc200", "bow"))
    assert slow.name == "square"
    assert slow.compute_cycles == fast.compute_cycles
    assert fast.seconds_per_step < slow.seconds_per_step
    # What its first axis is, nobody said.
    assert slow.samples_per_second is None
    assert profile(square, spec, batch_size=512).samples_per_second == 512 / slow.seconds_per_step
    assert slow.flops_per_step == 2 * 512**3


def test_the_same_in_any_process(run_python, run_forked):
    script = """
    import hashlib
    import tensorflow as tf
    from ipu_keras import last_report, profile, what_if

    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            for _ in range(6):
                x = tf.tanh(tf.nn.softmax(x @ w))
        return tape.gradient(x, w)

    for options in {}, {"dtype": "float16", "recomputation": True, "num_ipus": 4}:
        report = profile(step, *[tf.TensorSpec((64, 64))] * 2, **options)
        print(hashlib.sha256(report.to_json().encode()).hexdigest())
    """
    # Interpreters that have hashes of texts of their own.
    first, second = (run(script).stdout for run in (run_python, run_forked))
    assert first == second
    assert len(set(first.split())) == 2


def test_a_directory_of_executables_serves_other_processes(run_forked, monkeypatch, tmp_path):
    script = """
    import hashlib
    import tensorflow as tf
    from ipu_keras import profile
    from models_made import models_made

    with models_made() as made:
        report = profile(lambda x: tf.nn.softmax(x @ x), tf.TensorSpec((64, 64)))
    print(made.count, hashlib.sha256(report.to_json().encode()).hexdigest())
    """
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    first, second = (run_forked(script).stdout.split() for _ in range(2))
    assert (first[0], second[0]) == ("2", "0")  # the graph and its model
    assert first[1] == second[1]


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        ((), {}, ValueError, "needs the spec of its inputs"),
        ((IMAGES,), {"mode": "train"}, ValueError, "labels be given. Received: .* 1 specs"),
        (
            (IMAGES, LABELS),
            {"mode": "fit"},
            ValueError,
            "train, test, predict. Received: mode='fit'",
        ),
        (
            (IMAGES,),
            {"target": "gc3"},
            ValueError,
            "one of gc2, gc200, bow, c600. Received: target='gc3'",
        ),
        ((IMAGES,), {"batches": 3}, TypeError, "batches"),
        ((3,), {}, TypeError, r"Pass `tf.TensorSpec\(shape, dtype\)`.*Received: 3 of type int"),
        (((16, 8, 8, 1),), {}, TypeError, "must have a shape and a dtype.*Received: 16 of type"),
        ((IMAGES, None), {}, TypeError, "Received: None of type NoneType"),
        (
            (tf.TensorSpec((0, 8, 8, 1)), tf.TensorSpec((0,))),
            {},
            ValueError,
            r"at least one element along each axis, .* TensorSpec\(shape=\(0, 8, 8, 1\)",
        ),
        ((tf.TensorSpec((None, 8, 8, 1)),), {}, ValueError, r"drop_remainder.*\(None, 8, 8, 1\)"),
        ((tf.TensorSpec(None),), {}, ValueError, r"size of each axis.*shape=<unknown>"),
        ((tf.RaggedTensorSpec((16, None)),), {}, TypeError, r"dense tensors.*RaggedTensorSpec"),
        ((tf.SparseTensorSpec((16, 64)),), {}, TypeError, r"dense tensors.*SparseTensorSpec"),
        (
            ((IMAGES, LABELS),),
            {},
            ValueError,
            r"classifier has one input\..* `\*dataset.element_spec`\. Received: 2 specs in one t",
        ),
    ],
)
def test_what_cannot_be_profiled(given, options, error, message):
    with pytest.raises(error, match=message):
        profile(image_classifier(), *given, **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "None of type NoneType"),
        (3, "3 of type int"),
        (keras.Model, f"{keras.Model!r} of type {type(keras.Model).__name__}"),
    ],
)
@pytest.mark.parametrize("function", [profile, what_if])
def test_what_is_no_model(function, given, message):
    with pytest.raises(TypeError) as error:
        function(given, IMAGES)
    assert str(error.value) == (
        f"`model_or_function` must be a Keras model, or a function of tensors. Received: {message}"
    )


def test_arrays_and_tensors_stand_for_their_specs():
    model = image_classifier()
    expected = profile(model, IMAGES, LABELS).to_json()
    images, labels = np.zeros((16, 8, 8, 1)), np.zeros(16, np.int32)
    assert profile(model, images, labels).to_json() == expected
    assert profile(model, tf.constant(images), tf.constant(labels)).to_json() == expected
    # Functions are given what there is.
    report = profile(tf.abs, np.zeros((4, 8)))
    (argument,) = (op for op in report.model.graph.ops if op.kind == "parameter")
    assert (argument.outputs[0].shape, argument.outputs[0].dtype) == ((4, 8), "float64")


def test_a_model_of_two_inputs_takes_a_pair():
    inputs = [keras.Input((4,)), keras.Input((4,))]
    model = keras.Model(inputs, keras.layers.Add()(inputs))
    report = profile(model, [tf.TensorSpec((2, 4))] * 2)
    assert report.name == f"{model.name}.predict"
    assert report.flops_per_step == 2 * 4


def test_a_mode_is_for_models():
    with pytest.raises(ValueError, match=r"for models only.* Received: mode='train' for"):
        profile(lambda x: x, IMAGES, mode="train")


def test_what_xla_lacks_is_named():
    report = profile(lambda x: tf.strings.length(tf.strings.as_string(x)), tf.TensorSpec((4,)))
    assert report.not_lowered == ("AsString", "StringLength")


def test_what_neither_xla_nor_its_shape_can_tell():
    with pytest.raises(LoweringError, match="PyFunc"):
        profile(lambda x: tf.numpy_function(abs, [x], tf.float32) + 1.0, tf.TensorSpec((4,)))


def test_a_step_that_does_not_fit_says_what_would_help():
    model = wide_classifier()
    assert profile(model, VECTORS, LABELS).fixes == ()
    needed = profile(model, VECTORS, LABELS, dtype="float16").model.memory.max_tile_bytes
    tight = target_named("gc200").with_numbers(tile_bytes=needed)
    report = profile(model, VECTORS, LABELS, target=tight)
    assert not report.fits
    assert ({"dtype": "float16"}, True) in [(fix.changes, fix.fits) for fix in report.fixes]
    assert "What would need less memory" in str(report)
    images, labels = tf.TensorSpec((4096, 1024)), tf.TensorSpec((4096,), tf.int32)
    few = profile(model, VECTORS, LABELS)
    tiny = target_named("gc200").with_numbers(tile_bytes=few.model.memory.max_tile_bytes * 13 // 10)
    (batch,) = (
        fix
        for fix in profile(model, images, labels, target=tiny).fixes
        if "batch_size" in fix.changes
    )
    assert batch.changes["batch_size"] < 4096


def test_a_function_for_one_shape_has_no_smaller_batch():
    tiny = target_named("gc200").with_numbers(tile_bytes=1000)
    report = profile(
        lambda x: x @ tf.ones((64, 64)) + tf.ones((64, 64)), tf.TensorSpec((64, 64)), target=tiny
    )
    assert not report.fits
    assert all("batch_size" not in fix.changes for fix in report.fixes)


def test_the_precision_is_about_what_tracing_gives():
    """A model of dense layers at float16, and the same one changed to it."""

    def report(policy, **options):
        layers = [keras.layers.Dense(512, "relu", dtype=policy) for _ in range(4)]
        model = keras.Sequential([keras.Input((512,), dtype=policy), *layers])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        specs = tf.TensorSpec((64, 512), policy), tf.TensorSpec((64, 512), policy)
        return profile(model, *specs, **options)

    traced, changed = report("float16"), report("float32", dtype="float16")
    whole = report("float32")
    for found, expected in zip(figures(changed), figures(traced), strict=True):
        assert found == pytest.approx(expected, rel=0.1)
    assert figures(changed)[0] < 0.8 * figures(whole)[0]


def figures(report):
    memory = report.model.memory
    return report.compute_cycles, memory.max_tile_bytes, memory.bytes_by_category["variables"]


def test_they_are_part_of_the_package():
    assert ipu_keras.profile is model_profile.profile
    assert ipu_keras.what_if is what_if
    assert ipu_keras.last_report is last_report
    assert {"last_report", "profile", "what_if", "config"} <= set(dir(ipu_keras))
    with pytest.raises(AttributeError, match="module 'ipu_keras' has no attribute 'profiles'"):
        _ = ipu_keras.profiles


def test_training_does_not_import_the_cost_model(run_forked):
    script = """
    import sys
    import keras
    import numpy as np
    from ipu_keras.config import IPUConfig
    from ipu_keras.ipu_strategy import IPUStrategy

    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(np.ones([4, 3]), np.ones([4, 2]), batch_size=2, verbose=0)
    assert int(model.optimizer.iterations) == 2

    rooms = ("ipu_keras.advice", "ipu_keras.cost.passes", "ipu_keras.report")
    print([name for name in sys.modules if name.startswith(rooms)])
    """
    assert run_forked(script).stdout.strip() == "[]"


def test_operations_of_poplars_libraries_are_single_rows():
    """All of their cycles in one row with a name, with products in each step as popnn has them."""

    def sequence(x):
        state = tf.zeros((4, 16))
        weights = tf.ones((8, 64)), tf.ones((16, 64)), tf.zeros(64)
        return lstm(x, state, state, *weights)[0]

    def marked(x):
        with tf.name_scope("rnn"), poplar_operation("PopnnLSTM"):
            return sequence(x)

    specs = tf.TensorSpec((10, 4, 8))
    table = what_if(marked, specs, dtype=["float32", "float16"])
    for found in (row.report for row in table.rows):
        (row,) = (row for row in found.rows if row.family == "PopnnLSTM")
        assert (row.name, row.layer, row.repeat) == ("rnn/PopnnLSTM", "rnn", 1)
        plain = profile(sequence, specs, dtype=found.model.options.dtype)
        assert found.compute_cycles == pytest.approx(row.cycles, rel=0.02)
        # Ten steps' products of inputs are added up with those of states, not to them.
        assert found.flops_per_step == plain.flops_per_step - 10 * 4 * 64


def test_loops_of_a_loss_are_its_own(strategy):
    """TensorFlow writes the scans of this loss as functions named after a digest of themselves."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6, 4)), keras.layers.Dense(5, name="last")], name="model"
        )
    model.compile(keras.optimizers.SGD(name="sgd"), keras.losses.CTC())
    specs = tf.TensorSpec((8, 6, 4)), tf.TensorSpec((8, 2), tf.int32)
    model.fit(np.ones((8, 6, 4), "float32"), np.ones((8, 2), "int32"), batch_size=8, verbose=0)
    for report in (profile(model, *specs), last_report()):
        loops = {row.layer for row in report.rows if row.repeat > 1}
        assert loops == {"compile_loss/ctc/ctc_loss_dense"}
        named = {row.layer.partition("/")[0] for row in report.rows if row.layer}
        assert named == {"model", "compile_loss", "sgd", "metrics"}
