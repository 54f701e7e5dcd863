"""The errors of Keras models that users match on.

A row is a condition, with the documented type and the words that scripts look for. What else an
error says is tested beside the module that raises it.
"""

import keras
import pytest
import tensorflow as tf
from error_rows import Table, X, Y, chain, compiled, dataset, devices, fit, piped, plain, scope

from ipu_keras.ipu_strategy import IPUStrategy

FailedPrecondition = tf.errors.FailedPreconditionError
row = Table()


@row(
    RuntimeError,
    "Keras models cannot run eagerly when using `IPUStrategy`. Set "
    "`run_eagerly=False` when calling `compile`.",
)
def eager_models():
    with scope():
        fit(plain(run_eagerly=True))


@row(ValueError, "You must call `compile()`...")
def fit_before_compile():
    with scope():
        fit(chain())


@row(
    ValueError, "When providing an infinite dataset, you must specify the number of steps to run..."
)
def infinite_datasets():
    with scope():
        fit(plain(), dataset().repeat(), None)


@row(ValueError, "can only be used on an IPU device....")
def models_on_other_devices():
    with IPUStrategy("/device:CPU:0").scope():
        fit(plain())


@row(
    ValueError,
    "Current device has 1 IPUs attached, however the current model requires a multiple of 2 IPUs.",
)
def more_stages_than_ipus():
    with scope():
        fit(piped())


@row(
    RuntimeError,
    "The model has been configured to use gradient accumulation for training, "
    "however the current `steps_per_execution` value (set to 4) is not divisible by "
    "`gradient_accumulation_steps_per_replica` (3)...",
)
def executions_that_end_between_updates():
    with scope():
        model = plain(steps_per_execution=4)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=3)
        fit(model)


@row(
    RuntimeError,
    "The pipelined model has been configured to use gradient accumulation for "
    "training, however the current `steps_per_execution` value (set to 2) is not divisible by "
    "`gradient_accumulation_steps_per_replica` (4)...",
)
def executions_that_end_between_updates_of_a_pipeline():
    with scope(1):
        fit(piped(steps_per_execution=2))


@row(
    ValueError,
    "The model which you are attempting to train is pipelined, however "
    "`gradient_accumulation_steps_per_replica`...",
)
def pipelines_without_accumulation():
    with scope(1):
        fit(compiled(chain((0, 1)), steps_per_execution=4))


# Options


def setting(name, **arguments):
    def set_options():
        with scope(1):
            getattr(plain(), name)(**arguments)

    return set_options


for steps in (0, -1, 1.5, "2", True):
    row(
        ValueError,
        "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, "
        f"but got {steps} instead.",
    )(setting("set_gradient_accumulation_options", gradient_accumulation_steps_per_replica=steps))
    row(
        ValueError,
        "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, "
        f"but got {steps} instead.",
    )(setting("set_pipelining_options", gradient_accumulation_steps_per_replica=steps))
for mapping in (5, (0, 1), [0, "1"], [0, True]):
    row(ValueError, "Expected `device_mapping` to be a list of integers.")(
        setting("set_pipelining_options", device_mapping=mapping)
    )
row(
    ValueError,
    "Found `gradient_accumulation_count` key in `pipelining_kwargs`. Set the "
    "`gradient_accumulation_steps_per_replica` argument to `set_pipelining_options` instead.",
)(setting("set_pipelining_options", gradient_accumulation_count=1))
for key in (
    "computational_stages",
    "repeat_count",
    "inputs",
    "infeed_queue",
    "outfeed_queue",
    "optimizer_function",
):
    row(
        ValueError,
        f"Found `{key}` key in `pipelining_kwargs`. This argument is automatically set by Keras.",
    )(setting("set_pipelining_options", **{key: 1}))
for key in ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations"):
    row(
        ValueError,
        f"Found `{key}` key in `pipelining_kwargs`. This argument is not compatible with Keras.",
    )(setting("set_pipelining_options", **{key: 1}))
row(
    ValueError,
    "Found `opt` key in `gradient_accumulation_optimizer_kwargs`. This is not "
    "supported as the optimizer which the...",
)(setting("set_gradient_accumulation_options", opt="sgd"))
row(
    ValueError,
    "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the...",
)(setting("set_gradient_accumulation_options", num_mini_batches=2))
for key in ("dataset", "infeed_spec", "element_spec"):
    row(ValueError, f"Found `{key}` key in `kwargs`. This argument is automatically set by Keras.")(
        setting("set_infeed_queue_options", **{key: 1})
    )
for key in ("outfeed_mode", "device_ordinal"):
    row(ValueError, f"Found `{key}` key in `kwargs`. This argument is not compatible with Keras.")(
        setting("set_outfeed_queue_options", **{key: 1})
    )
for name in ("set_pipelining_options", "set_gradient_accumulation_options"):
    row(
        ValueError,
        "Cannot parse MAX as one of GradientAccumulationReductionMethod. Valid values "
        "are: SUM, MEAN, RUNNING_MEAN.",
    )(setting(name, gradient_accumulation_reduction_method="MAX"))
row(ValueError, "prefetch_depth must be greater than zero, but it is -1")(
    setting("set_infeed_queue_options", prefetch_depth=-1)
)
row(ValueError, "prefetch_depth must be less than 256, but it is 256")(
    setting("set_infeed_queue_options", prefetch_depth=256)
)
row(
    ValueError,
    "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using...",
)(
    setting(
        "set_pipelining_options",
        replicated_optimizer_state_sharding=True,
        offload_weight_update_variables=False,
    )
)


class OwnMinimize(keras.optimizers.SGD):
    def minimize(self, *arguments, **options):
        return super().minimize(*arguments, **options)


@row(
    ValueError,
    "When using Gradient Accumulation or Pipelining, the provided optimizer must not "
    "override OptimizerV2.minimize.",
)
def optimizers_with_a_minimize_of_their_own():
    with scope():
        model = plain(optimizer=OwnMinimize(), steps_per_execution=2)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        fit(model)


# Data


@row(
    ValueError,
    "`steps_per_execution` (3) must be a divisor of the number of batches (4) in the "
    "dataset provided...",
)
def executions_that_do_not_divide_the_data():
    with scope():
        fit(plain(steps_per_execution=3))


@row(
    UserWarning,
    "`steps_per_execution` has been set to 9 but the dataset provided only contains "
    "4 batches. Using 4 as...",
)
def executions_longer_than_the_data():
    with scope():
        fit(plain(steps_per_execution=9))


@row(
    ValueError,
    "The provided set of data has a partial batch, which could result in data being "
    "dropped. Either adjust the...",
)
def partial_batches():
    with scope():
        fit(plain(), batch_size=3)


@row(
    ValueError,
    "The provided set of data contains a shape (None, 3) which is not fully defined. "
    "Executing on IPU requires all...",
)
def shapes_that_are_not_known():
    with scope():
        fit(plain(), dataset(drop_remainder=False), None)


@row(
    ValueError,
    "Your input does not have enough data. Make sure that your dataset or generator "
    "can generate at least 10...",
)
def too_little_data():
    with scope():
        fit(plain(), dataset(), None, steps_per_epoch=5, epochs=2)


@row(
    ValueError,
    "Could not infer the size of the data. You must specify the number of steps to run...",
)
def data_of_unknown_size():
    with scope():
        fit(plain(), dataset().filter(lambda x, y: True), None)


@row(
    ValueError,
    "The provided set of data is of type `generator` which is not compatible with "
    "the IPU's requirement to know the data...",
)
def generators():
    with scope():
        fit(plain(), ((X, Y) for _ in range(4)), None)


@row(
    ValueError,
    "The provided dataset contains 1 items, but all 2 replicas are requested to run "
    "1 steps each. Make sure the...",
)
def fewer_batches_than_replicas():
    with scope(1):
        fit(plain(), dataset(X[:2], Y[:2]), None)


@row(FailedPrecondition, "Unsupported datatype int64 on index 0 of feed operation...")
def types_that_feeds_lack():
    with scope():
        fit(plain(), dataset(X.astype("int64")), None)


EMPTY = (
    "Detected an input tensor to an infeed queue with a dimension of size 0. Please remove it from "
    "the inputs."
)


@row(tf.errors.InvalidArgumentError, EMPTY)
def empty_tensors():
    with scope():
        fit(plain(), dataset(X[:, :0]), None)


@row(tf.errors.InvalidArgumentError, EMPTY)
def empty_arrays():
    with scope():
        fit(plain(), X[:, :0])


@row(tf.errors.InvalidArgumentError, EMPTY)
def empty_arrays_to_predict():
    with scope():
        plain().predict(X[:, :0], batch_size=2, verbose=0)


# What models override


def overriding(base, **functions):
    return type("Own", (base,), functions)


for kind, run in {
    "train": fit,
    "test": lambda model: model.evaluate(X, Y, batch_size=2, verbose=0),
    "predict": lambda model: model.predict(X, batch_size=2, verbose=0),
}.items():

    def makers_of_functions(kind=kind, run=run):
        name = f"make_{kind}_function"
        own = {name: lambda self, force=False: getattr(keras.Model, name)(self, force)}
        with scope():
            run(compiled(chain(kind=overriding(keras.Model, **own), name="own")))

    row(
        RuntimeError,
        f"The function `make_{kind}_function` for the model own has been overridden. "
        "This is not supported when using Keras within an...",
    )(makers_of_functions)

    def steps_of_pipelines(kind=kind, run=run):
        name = f"{kind}_step"
        own = {name: lambda self, data: getattr(keras.Model, name)(self, data)}
        with scope(1):
            model = chain((0, 1), overriding(keras.Model, **own), name="own")
            compiled(model, steps_per_execution=4)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
            run(model)

    row(
        RuntimeError,
        f"The function `{kind}_step` for the model own has been overridden. This is "
        "not supported for pipelined Keras...",
    )(steps_of_pipelines)


@row(RuntimeError, "The function `train_step` for the model own has been overridden....")
def train_steps_that_accumulate():
    own = {"train_step": lambda self, data: keras.Model.train_step(self, data)}
    with scope():
        model = chain(kind=overriding(keras.Model, **own), name="own")
        compiled(model, steps_per_execution=2)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        fit(model)


@row(
    RuntimeError,
    "The function `call` for the model own has been overridden. This is not "
    "supported for pipelined Keras...",
)
def calls_of_pipelines():
    def call(self, inputs, training=None, mask=None):
        return inputs

    with scope(1):
        model = chain((0, 1), overriding(keras.Model, call=call), name="own")
        compiled(model, steps_per_execution=4)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        fit(model)


@pytest.fixture(autouse=True)
def system():
    with devices():
        yield


@pytest.mark.parametrize("documented", row, ids=str)
def test_documented_errors(documented):
    documented.check()
