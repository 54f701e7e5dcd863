"""Reports of Keras models and functions, traced through XLA."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_keras
from ipu_keras import last_report, profile, what_if
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import profiling
from ipu_keras.ops.recurrent import lstm
from ipu_keras.pipelining_ops import RecomputationMode, recomputation_checkpoint
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, Pipeline, stage_scope
from ipu_keras.report import report as report_module
from ipu_keras.target import target_named
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras.tracing.poplar_operation import poplar_operation

IMAGES = tf.TensorSpec((16, 8, 8, 1))
LABELS = tf.TensorSpec((16,), tf.int32)


def classifier():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu", name="convolution"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5, name="dropout"),
            keras.layers.Dense(4, name="dense"),
        ],
        name="classifier",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    return model


def rows_of(report, layer, family):
    return [row for row in report.rows if layer in row.layer and row.family == family]


@pytest.mark.parametrize("module", [profiling, report_module])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_a_training_step():
    model = classifier()
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
    stock = profile(classifier(), IMAGES, LABELS)
    with IPUStrategy().scope():
        model = classifier()
    ours = profile(model, IMAGES, LABELS)
    # Keras numbers its names, so the reports are not equal as texts.
    costs = [[(row.family, row.cycles, row.flops) for row in one.rows] for one in (stock, ours)]
    assert costs[0] == costs[1]
    assert ours.model.memory.peak_by_tile.tolist() == stock.model.memory.peak_by_tile.tolist()
    assert model.predict(np.zeros((16, 8, 8, 1)), batch_size=16, verbose=0).shape == (16, 4)


@pytest.mark.parametrize(("mode", "specs"), [("test", (IMAGES, LABELS)), ("predict", (IMAGES,))])
def test_other_modes_have_no_gradients(mode, specs):
    report = profile(classifier(), *specs, mode=mode)
    assert report.name == f"classifier.{mode}"
    assert len(rows_of(report, "convolution", "convolution")) == 1
    assert not any(row.backward or row.family == "random" for row in report.rows)


def test_labels_are_not_needed_to_predict():
    assert profile(classifier(), IMAGES).name == "classifier.predict"
    assert profile(classifier(), IMAGES, LABELS, mode="predict").name == "classifier.predict"


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


def test_the_same_in_any_process(run_python):
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
    first, second = (run_python(script).stdout for _ in range(2))
    assert first == second
    assert len(set(first.split())) == 2


def test_a_directory_of_executables_serves_other_processes(run_python, monkeypatch, tmp_path):
    script = """
    import hashlib
    import tensorflow as tf
    from ipu_keras import profile
    from ipu_keras.device import DRIVER

    report = profile(lambda x: tf.nn.softmax(x @ x), tf.TensorSpec((64, 64)))
    print(DRIVER.executables.num_built, hashlib.sha256(report.to_json().encode()).hexdigest())
    """
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    first, second = (run_python(script).stdout.split() for _ in range(2))
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
        ((IMAGES,), {"target": "gc3"}, ValueError, "one of gc2, gc200, bow. Received: 'gc3'"),
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
        profile(classifier(), *given, **options)


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


def test_a_batch_size_that_only_choices_know():
    specs = tf.TensorSpec((None, 8, 8, 1)), tf.TensorSpec((None,), tf.int32)
    (row,) = what_if(classifier(), *specs, batch_size=16).rows
    assert row.report.batch_size == 16
    with pytest.raises(ValueError, match=r"`what_if` takes `batch_size`.*\(None, 8, 8, 1\)"):
        what_if(classifier(), *specs, num_ipus=[1, 2])


BAD_OPTIONS = [
    ({"target": "x"}, ValueError, "one of gc2, gc200, bow. Received: 'x'"),
    ({"target": 3}, ValueError, "one of gc2, gc200, bow, or a Target. Received: target=3"),
    ({"num_ipus": 3}, ValueError, "a power of two: .*Received: num_ipus=3"),
    ({"batch_size": -1}, ValueError, "`batch_size` must be a positive .*Received: batch_size=-1"),
    ({"batch_size": "abc"}, ValueError, "Received: batch_size='abc'"),
    ({"batch_size": True}, ValueError, "Received: batch_size=True"),
    ({"dtype": tf.int8}, ValueError, "one of float16, float32, .*Received: dtype='int8'"),
    ({"dtype": 1}, ValueError, "Received: dtype=1"),
    ({"pipeline": 3}, ValueError, "must be a Pipeline"),
    ({"convolution_options": 3}, TypeError, "must be a dictionary of Poplar options"),
    (
        {"num_ipu": 2},
        TypeError,
        r"Unknown option `num_ipu`\. Did you mean `num_ipus`\? Received: num_ipu=2\. "
        "The options are mode, .*batch_size, target, .*, pipeline",
    ),
    ({"foo": 1}, TypeError, r"Unknown option `foo`\. Received: foo=1\. The options are mode, "),
    ({"batchsize": 1}, TypeError, "Did you mean `batch_size`"),
    ({"mode": "fit"}, ValueError, "Received: mode='fit'"),
]


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        *((function, *bad) for function in (profile, what_if) for bad in BAD_OPTIONS),
        (profile, {"name": 3}, ValueError, "`name` must be a text. Received: name=3"),
        (what_if, {"name": ["a"]}, TypeError, "Unknown option `name`"),
        (what_if, {"num_ipus": [1, 3]}, ValueError, "Received: num_ipus=3"),
        (what_if, {"batch_size": [4, None]}, ValueError, "Received: batch_size=None"),
        (what_if, {"batch_size": []}, ValueError, "`batch_size` needs at least one value"),
    ],
)
def test_options_are_checked_before_a_model_is_built(function, options, error, message):
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile("adam", "mse")
    with pytest.raises(error, match=message):
        function(model, tf.TensorSpec((4, 4)), tf.TensorSpec((4, 3)), **options)
    assert not model.built
    assert not model.optimizer.built


@pytest.mark.parametrize("call", [profile, what_if, last_report])
def test_options_of_poplar_without_a_model(strategy, call):
    """In one warning, where the user called; those that have a model give none."""
    given = (lambda x: x @ x, tf.TensorSpec((8, 8)))
    if call is last_report:
        strategy.run(tf.function(lambda: tf.zeros((8, 8)) @ tf.ones((8, 8))))
        given = ()
    options = {"partialsType": "half", "availableMemoryProportion": "0.1"}
    call(*given, matmul_options=options, convolution_options=None)
    options = {**options, "partialType": "half", "cycleBackOff": 0.1}
    with pytest.warns(UserWarning, match="have no model") as warned:
        call(*given, matmul_options=options, convolution_options={"cycleBackOff": 0.1})
    assert [str(each.message) for each in warned] == [
        "These options of Poplar have no model, and no effect: 'cycleBackOff' in "
        "`convolution_options`, 'cycleBackOff' in `matmul_options`, 'partialType' (did you mean "
        "'partialsType'?) in `matmul_options`. Those that have one are availableMemoryProportion "
        "and partialsType."
    ]
    assert warned[0].filename == __file__


def test_choices_of_poplars_options_without_a_model():
    choices = [None, {"a": "1"}, {"b": "1", "partialsType": "half"}, {"a": "2"}]
    with pytest.warns(UserWarning, match="no effect: 'a' in `matmul_options`, 'b' in `matmul_op"):
        table = what_if(lambda x: x @ x, tf.TensorSpec((8, 8)), matmul_options=choices)
    assert len(table.rows) == 4


@pytest.mark.parametrize("dtype", [tf.float16, np.float16, np.dtype("float16"), "half"])
def test_other_names_of_a_precision(dtype):
    specs = tf.TensorSpec((16, 16), tf.float32)
    expected = profile(tf.nn.softmax, specs, dtype="float16")
    assert profile(tf.nn.softmax, specs, dtype=dtype).to_json() == expected.to_json()
    (row,) = what_if(tf.nn.softmax, specs, dtype=dtype).rows
    assert row.choices == {"batch_size": 16, "dtype": "float16"}


def test_arrays_and_tensors_stand_for_their_specs():
    model = classifier()
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


def test_sizes_of_numpy_are_as_those_of_python():
    report = profile(tf.abs, IMAGES, batch_size=np.int64(16))
    assert report.batch_size == 16
    assert type(report.batch_size) is int


def test_a_mode_is_for_models():
    with pytest.raises(ValueError, match=r"for models only\. Received: mode='train' for"):
        profile(lambda x: x, IMAGES, mode="train")


def test_what_xla_lacks_is_named():
    report = profile(lambda x: tf.strings.length(tf.strings.as_string(x)), tf.TensorSpec((4,)))
    assert report.not_lowered == ("AsString", "StringLength")


def test_what_neither_xla_nor_its_shape_can_tell():
    with pytest.raises(LoweringError, match="PyFunc"):
        profile(lambda x: tf.numpy_function(abs, [x], tf.float32) + 1.0, tf.TensorSpec((4,)))


def test_the_report_of_what_ran_last(strategy):
    with strategy.scope():
        model = classifier()
    images = np.zeros((64, 8, 8, 1), np.float32)
    labels = np.zeros(64, np.int32)
    model.compile("sgd", model.loss, steps_per_execution=2)
    model.fit(images, labels, batch_size=16, verbose=0)
    before = model.get_weights()
    report = last_report()
    assert report.name == "train"
    assert report.model.options.steps_per_execution == 2
    assert report.samples_per_second == 16 / report.seconds_per_step
    # The order is XLA's, and depends on the order in which variables were captured.
    expected = profile(model, IMAGES, LABELS, steps_per_execution=2)
    assert {row.name: row.cycles for row in report.rows} == {
        row.name: row.cycles for row in expected.rows
    }
    assert last_report("/device:IPU:0", target="bow").seconds_per_step < report.seconds_per_step
    for weight, same in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, same)

    model.predict(images, batch_size=16, verbose=0)
    assert last_report().name == "predict"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps_per_execution": 3}, TypeError, "Unknown option `steps_per_execution`"),
        ({"name": "q"}, TypeError, "Unknown option `name`.*Received: name='q'"),
        ({"targets": "bow"}, TypeError, "Did you mean `target`.*The options are target, batch_"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be a positive integer"),
        ({"batch_size": True}, ValueError, "Received: batch_size=True"),
        ({"target": 3}, ValueError, "Received: target=3"),
        ({"num_ipus": "2"}, ValueError, "Received: num_ipus='2'"),
    ],
)
def test_options_that_the_last_report_does_not_take(strategy, options, error, message):
    strategy.run(tf.function(lambda x: x + x), [tf.ones(3)])
    with pytest.raises(error, match=message):
        last_report(**options)
    assert last_report(batch_size=np.int64(3)).batch_size == 3


def test_a_device_that_has_run_nothing(run_python):
    script = """
    from ipu_keras import last_report
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    try:
        last_report()
    except ValueError as error:
        print(error)
    """
    assert "call `fit`, `evaluate` or `predict`" in run_python(script).stdout


def test_what_if():
    model = classifier()
    table = what_if(
        model, IMAGES, LABELS, batch_size=[4, 64], target=["gc200", "bow"], steps_per_execution=16
    )
    assert [dict(row.choices) for row in table.rows] == [
        {"batch_size": size, "target": target, "steps_per_execution": 16}
        for size in (4, 64)
        for target in ("gc200", "bow")
    ]
    alone = profile(
        model,
        tf.TensorSpec((64, 8, 8, 1)),
        tf.TensorSpec((64,), tf.int32),
        target="bow",
        steps_per_execution=16,
    )
    last = table.rows[-1]
    assert last.report.cycles_per_step == alone.cycles_per_step
    assert last.samples_per_second == 64 / alone.seconds_per_step
    assert table.best is last
    text = str(table)
    assert "What if: classifier.train" in text
    (starred,) = (line for line in text.splitlines() if "*" in line)
    assert "bow" in starred
    assert f"{alone.cycles_per_step:,}" in starred


@pytest.mark.parametrize(
    "sizes", [[2, 4], (2, 4), range(2, 6, 2), np.array([2, 4]), [np.int64(2), np.int32(4)]]
)
def test_lists_of_sizes(sizes):
    table = what_if(tf.abs, IMAGES, batch_size=sizes, num_ipus=range(1, 3))
    assert [tuple(row.choices.values()) for row in table.rows] == [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert {type(row.choices["batch_size"]) for row in table.rows} == {int}


def test_what_if_leaves_other_axes_alone():
    """Weights have no batch, and a scalar no axis."""
    specs = tf.TensorSpec((8, 64)), tf.TensorSpec((64, 10)), tf.TensorSpec(())
    (row,) = what_if(lambda x, w, scale: x @ w * scale, *specs, target=["bow"]).rows
    assert row.choices == {"batch_size": 8, "target": "bow"}
    assert row.report.flops_per_step == 2 * 8 * 64 * 10 + 8 * 10
    few, many = what_if(lambda x, scale: x * scale, specs[0], specs[2], batch_size=[2, 16]).rows
    assert (few.report.flops_per_step, many.report.flops_per_step) == (2 * 64, 16 * 64)


def test_what_if_over_precision_ipus_and_recomputation():
    """The star is at the fewest IPUs that fit, though two have more of their choices fit."""
    table = what_if(
        classifier(),
        IMAGES,
        LABELS,
        dtype=["float32", "float16"],
        num_ipus=[2, 1],
        recomputation=[False, True],
    )
    assert len(table.rows) == 8
    assert table.best.choices == {
        "batch_size": 16,
        "dtype": "float16",
        "num_ipus": 1,
        "recomputation": False,
    }
    bytes_of = {tuple(row.choices.values()): row.report.model.memory for row in table.rows}
    largest = bytes_of[16, "float32", 1, False].max_tile_bytes
    needed = bytes_of[16, "float16", 1, False].max_tile_bytes
    assert needed < largest
    tight = target_named("gc200").with_numbers(tile_bytes=needed - 1)
    again = what_if(
        classifier(), IMAGES, LABELS, target=tight, dtype=["float32", "float16"], num_ipus=[1, 4]
    )
    assert again.best.choices["num_ipus"] == 4


def test_a_step_that_does_not_fit_says_what_would_help():
    model = classifier()
    assert profile(model, IMAGES, LABELS).fixes == ()
    needed = profile(model, IMAGES, LABELS, dtype="float16").model.memory.max_tile_bytes
    tight = target_named("gc200").with_numbers(tile_bytes=needed)
    report = profile(model, IMAGES, LABELS, target=tight)
    assert not report.fits
    assert ({"dtype": "float16"}, True) in [(fix.changes, fix.fits) for fix in report.fixes]
    assert "What would need less memory" in str(report)
    images, labels = tf.TensorSpec((4096, 8, 8, 1)), tf.TensorSpec((4096,), tf.int32)
    few = profile(model, IMAGES, LABELS)
    tiny = target_named("gc200").with_numbers(tile_bytes=few.model.memory.max_tile_bytes)
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


def test_of_what_does_not_fit_nothing_is_best():
    tiny = target_named("gc200").with_numbers(tile_bytes=1000)
    table = what_if(lambda x: x @ x, tf.TensorSpec((64, 64)), target=[tiny])
    assert table.best is None
    assert "*" not in str(table)
    assert table.rows[0].choices["batch_size"] == 64


def test_a_choice_needs_a_value():
    with pytest.raises(
        ValueError, match=r"`target` needs at least one value\. Received: target=\[\]"
    ):
        what_if(lambda x: x, IMAGES, target=[])


def test_they_are_part_of_the_package():
    assert ipu_keras.profile is profiling.profile
    assert ipu_keras.what_if is what_if
    assert ipu_keras.last_report is last_report
    assert {"last_report", "profile", "what_if", "config"} <= set(dir(ipu_keras))
    with pytest.raises(AttributeError, match="module 'ipu_keras' has no attribute 'profiles'"):
        _ = ipu_keras.profiles


def test_training_does_not_import_the_cost_model(run_python):
    script = """
    import sys
    import ipu_keras

    print([name for name in sys.modules if name.startswith("ipu_keras.report")])
    """
    assert run_python(script).stdout.strip() == "[]"


def pipelined_step():
    """Two layers in the scopes of stages, and an optimizer in that of the weight update."""
    first = keras.layers.Dense(512, activation="relu", name="first")
    second = keras.layers.Dense(512, name="second")
    first.build((16, 512))
    second.build((16, 512))
    weights = [*first.trainable_weights, *second.trainable_weights]
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(weights)

    def step(x):
        with tf.GradientTape() as tape:
            with tf.name_scope(stage_scope(0)):
                h = first(x)
            with tf.name_scope(stage_scope(1)):
                loss = tf.reduce_mean(second(h) ** 2)
        gradients = tape.gradient(loss, weights)
        with tf.name_scope(WEIGHT_UPDATE_SCOPE):
            optimizer.apply(gradients, weights)
        return loss

    return step


def test_a_function_with_stages():
    step, spec = pipelined_step(), tf.TensorSpec((16, 512))
    whole = profile(step, spec, batch_size=16)
    report = profile(
        step,
        spec,
        batch_size=16,
        gradient_accumulation_count=8,
        num_replicas=2,
        pipeline=Pipeline(device_mapping=(0, 1)),
    )
    assert report.model.options.steps_per_execution == 8
    assert report.samples_per_second == pytest.approx(32 / report.seconds_per_step)
    # Both products of the forward pass, and the gradients of weights and of what is between.
    products = [(row.stage, row.backward) for row in report.rows if row.family == "dot"]
    assert sorted(products) == [(0, False), (0, True), (1, False), (1, True), (1, True)]
    assert {row.layer for row in report.rows if row.stage == 0 and "dot" in row.family} == {
        row.layer for row in whole.rows if row.family == "dot" and "first" in row.layer
    }
    # Every layer of the optimizer is in the weight update, on the IPU of its variable.
    updates = [row for row in report.rows if row.weight_update]
    assert {row.ipu for row in updates} == {0, 1}
    assert all(row.weight_update for row in report.rows if "adam" in row.layer)
    sums = [row for row in report.rows if row.family == "collective"]
    assert len(sums) == 4  # two kernels and two biases
    assert report.pipeline.num_micro_batches == 8
    assert set(report.model.program.stashes.values()) == {2}


def test_operations_of_poplars_libraries_are_single_rows():
    """As many cycles as without the mark, and a name."""

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
        assert found.compute_cycles == pytest.approx(plain.compute_cycles, rel=0.02)
        assert found.flops_per_step == plain.flops_per_step


def test_checkpoints_of_a_model_with_a_pipeline():
    """The first stage computes eight layers again: all at once, or four at a time."""

    def dense(x, k):
        with tf.name_scope(f"dense_{k}"):
            return tf.tanh(tf.matmul(x, weights[k]))

    def step(x, checkpoints):
        with tf.GradientTape() as tape:
            for k in range(9):
                with tf.name_scope(stage_scope(k // 8)):
                    x = dense(x, k)
                    x = recomputation_checkpoint(x) if k in checkpoints else x
            loss = tf.reduce_sum(x * x)
        return tape.gradient(loss, weights)

    weights = [tf.Variable(tf.ones((64, 64))) for _ in range(9)]
    pipeline = Pipeline(
        device_mapping=(0, 1),
        recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
    )
    options = {"pipeline": pipeline, "recomputation": True, "gradient_accumulation_count": 4}
    without, having = (
        profile(lambda x, found=found: step(x, found), tf.TensorSpec((16384, 64)), **options)
        for found in ((), (3,))
    )
    size = 4 * 16384 * 64
    peaks = [
        max(
            live
            for one, live in zip(
                found.model.program.compute_sets, found.model.memory.live_by_ipu[0], strict=True
            )
            if one.recomputed and one.family == "elementwise"
        )
        for found in (without, having)
    ]
    assert peaks[0] - peaks[1] > 2 * size


def test_accumulation_without_a_pipeline():
    step, spec = pipelined_step(), tf.TensorSpec((16, 512))
    once, many = (profile(step, spec, gradient_accumulation_count=n) for n in (1, 16))
    # Adam's work is shared by 16 steps; adding the gradients up takes less.
    assert many.compute_cycles < once.compute_cycles
    size = 4 * 2 * (512 * 512 + 512)
    variables = [one.model.memory.bytes_by_category["variables"] for one in (once, many)]
    assert variables[1] - variables[0] >= size


def test_pipelines_need_stages():
    with pytest.raises(ValueError, match="No operation is in a stage of the pipeline"):
        profile(
            lambda x: x @ x,
            tf.TensorSpec((8, 8)),
            steps_per_execution=2,
            pipeline=Pipeline(device_mapping=(0, 1)),
        )


def pipelined_classifier(strategy):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)]
        )
    model.compile("sgd", "mse", steps_per_execution=4, jit_compile=False)
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(4)
    return model


def test_a_model_is_profiled_as_it_was_set(strategy):
    model = pipelined_classifier(IPUStrategy("/device:IPU:2"))
    x, y = np.zeros((32, 8), np.float32), np.zeros((32, 4), np.float32)
    model.fit(x, y, batch_size=4, verbose=0)
    ran = last_report(2)
    assert ran.model.options.pipeline.device_mapping == (0, 1)
    assert ran.model.options.num_replicas == 1
    specs = tf.TensorSpec((4, 8)), tf.TensorSpec((4, 4))
    report = profile(model, *specs)
    assert report.cycles_per_step == ran.cycles_per_step
    assert {row.stage for row in report.rows} == {0, 1, None}
    assert profile(model, specs[0]).model.options.gradient_accumulation_count == 1
    model.reset_pipeline_stage_assignment()
    model.set_gradient_accumulation_options(8)
    assert profile(model, *specs).model.options.gradient_accumulation_count == 8
    assert profile(model, *specs).model.options.pipeline is None


def test_accumulation_shares_the_weight_update():
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(256)])
    model.compile("sgd", "mse")
    specs = tf.TensorSpec((1, 256)), tf.TensorSpec((1, 256))
    table = what_if(model, *specs, gradient_accumulation_count=[2, 8])
    two, eight = (row.report for row in table.rows)
    assert eight.model.host_cycles < two.model.host_cycles
    update = [row for row in eight.rows if row.weight_update]
    assert update
    assert {row.stage for row in eight.rows} == {None}


def test_a_train_step_of_ones_own_has_no_known_parts():
    class Own(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    model = Own([keras.Input((8,)), keras.layers.Dense(4)], name="own")
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="The function `train_step` for the model own has been"):
        profile(model, tf.TensorSpec((4, 8)), tf.TensorSpec((4, 4)), gradient_accumulation_count=2)


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
