"""The errors of pipelines and of the older models that users match on.

A row is a condition, with the documented type and the words that scripts look for. What else an
error says is tested beside the module that raises it.
"""

import keras
import pytest
import tensorflow as tf
from error_rows import Table, X, chain, compiled, dataset, devices, fit, scope, sequential

from ipu_keras.keras import Model as LegacyModel
from ipu_keras.keras import PipelineModel, PipelineSequential, PipelineStage
from ipu_keras.pipelining_ops import PipelineSchedule

FailedPrecondition = tf.errors.FailedPreconditionError
row = Table()


# Stages


@row(RuntimeError, "PipelineStage may only be used from within an IPUStrategy context.")
def stages_outside_of_a_strategy():
    with PipelineStage(0):
        pass


@row(RuntimeError, "Pipeline stages must not be nested.")
def stages_in_stages():
    with scope(), PipelineStage(0), PipelineStage(1):
        pass


@row(ValueError, "-1 is not a valid pipeline stage.")
def negative_stages():
    with scope():
        PipelineStage(-1)


@row(
    ValueError,
    "All layers of a pipelined model must have an associated pipeline stage. However, "
    "layer_1 has not been...",
)
def layers_without_a_stage():
    with scope(1):
        inputs = keras.Input((3,))
        with PipelineStage(0):
            x = keras.layers.Dense(2)(inputs)
        x = keras.layers.Dense(2, name="layer_1")(x)
        with PipelineStage(1):
            outputs = keras.layers.Dense(1)(x)
        fit(compiled(keras.Model(inputs, outputs)))


@row(
    RuntimeError,
    "All stages in a pipeline must have at lease one layer assigned to them. The "
    "highest stage with an assignment...",
)
def stages_without_a_layer():
    with scope(2):
        fit(compiled(chain((0, 2))))


@row(
    ValueError,
    "Layer layer_1 in pipeline stage 0 has a dependency from a pipeline stage which "
    "has not yet been executed. Layers...",
)
def layers_that_need_later_stages():
    with scope(1):
        fit(compiled(chain((1, 0))))


def assigning(model, change):
    def assign():
        with scope(1):
            made = model()
            made.set_pipeline_stage_assignment(change(made))

    return assign


row(ValueError, "`pipeline_stage_assignment` needs to be a list.")(assigning(chain, lambda _: 1))
row(
    ValueError,
    "The length of the provided `pipeline_stage_assignment` (1) does not match the "
    "number of layers in the graph...",
)(assigning(chain, lambda model: model.get_pipeline_stage_assignment()[:1]))
row(
    ValueError,
    "The first layer in a pipelined sequential model needs to be assigned to the 0th "
    "pipeline stage, however it...",
)(assigning(sequential, lambda _: [1, 2]))
row(
    ValueError,
    "Layer b has been assigned to pipeline stage 2, however the previous layer in the "
    "Sequential model was...",
)(assigning(sequential, lambda _: [0, 2]))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="own")
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)


@row(
    RuntimeError,
    "Cannot get pipeline stage assignments for model `own` which has not been built "
    "yet. Please call...",
)
def assignments_of_models_that_are_not_built():
    with scope(1):
        Subclassed().get_pipeline_stage_assignment()


row(
    RuntimeError,
    "Cannot set pipeline stage assignments for model `own` which has not been built "
    "yet. Please call...",
)(assigning(Subclassed, lambda _: []))


@row(
    tf.errors.UnimplementedError, "an input can only be used by pipeline stages on the same IPU...."
)
@row(tf.errors.UnimplementedError, "using the `device_mapping` argument...")
def weights_of_two_stages():
    with scope(1):
        inputs, shared = keras.Input((3,)), keras.layers.Dense(3)
        with PipelineStage(0):
            x = shared(inputs)
        with PipelineStage(1):
            outputs = keras.layers.Dense(1)(shared(x))
        model = compiled(keras.Model(inputs, outputs), steps_per_execution=4)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        fit(model)


@row(
    FailedPrecondition,
    "The number of iterations of the pipeline must be a multiple of 4, but it "
    "is 2. This number might be called...",
)
def pipelines_that_are_too_short():
    with scope(1):
        model = compiled(chain((0, 1)), steps_per_execution=2)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=2)
        fit(model)


@row(
    NotImplementedError,
    "The pipelining schedule 'Interleaved' does not currently support "
    "multiple pipeline stages on the same device...",
)
def interleaved_stages_on_one_ipu():
    with scope():
        model = compiled(chain((0, 1)), steps_per_execution=4)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=4,
            device_mapping=[0, 0],
            pipeline_schedule=PipelineSchedule.Interleaved,
        )
        fit(model)


@row(ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages")
def mappings_of_another_length():
    with scope(1):
        model = compiled(chain((0, 1)), steps_per_execution=4)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0])
        fit(model)


# The older models, which take the arguments of `pipeline`


def legacy(stages=None, ordinal=1, **options):
    """Makes and trains a `PipelineSequential`."""

    def train():
        layers = [[keras.Input((3,)), keras.layers.Dense(2)], [keras.layers.Dense(1)]]
        with scope(ordinal):
            fit(compiled(PipelineSequential(layers if stages is None else stages, **options)))

    return train


row(ValueError, "gradient_accumulation_count must be specified.")(legacy())
row(ValueError, "gradient_accumulation_count must be >= 0.")(legacy(gradient_accumulation_count=-1))
row(ValueError, "Pipeline requires at least two computational stages.")(
    lambda: legacy([[keras.layers.Dense(1)]], gradient_accumulation_count=4)()
)
row(TypeError, "device_mapping argument needs to be a list or a tuple.")(
    legacy(gradient_accumulation_count=4, device_mapping=3)
)
row(ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages")(
    legacy(gradient_accumulation_count=4, device_mapping=[0])
)
row(
    NotImplementedError,
    "The pipelining schedule 'Interleaved' does not currently support "
    "multiple pipeline stages on the same device...",
)(
    legacy(
        ordinal=0,
        gradient_accumulation_count=4,
        device_mapping=[0, 0],
        pipeline_schedule=PipelineSchedule.Interleaved,
    )
)
row(NotImplementedError, "Batch serialization is only supported with the `Sequential` schedule.")(
    legacy(gradient_accumulation_count=4, batch_serialization_iterations=2)
)
row(
    ValueError,
    "An IPU pipeline must take a non-empty list of stages, where each stage is a list "
    "of Keras Layers.",
)(legacy([], gradient_accumulation_count=4))
row(
    ValueError,
    "An IPU pipeline may only contain lists of stages, where each stage is a list of Keras Layers.",
)(legacy([1], gradient_accumulation_count=4))


@row(
    ValueError,
    "When using an infinitely repeating dataset, you must provide the number of steps "
    "per epoch (steps_per_epoch).",
)
def infinite_datasets_of_legacy_models():
    with scope():
        fit(compiled(chain(kind=LegacyModel)), dataset().repeat(), None)


@row(
    ValueError,
    "Model requires the number of mini-batches in the dataset (4) to be evenly "
    "divisible by the gradient...",
)
def batches_that_legacy_models_do_not_divide():
    with scope():
        fit(compiled(chain(kind=LegacyModel, gradient_accumulation_count=3)))


@row(ValueError, "Model can only be called through the `fit`, `evaluate` or `predict` interfaces.")
def direct_calls_of_legacy_models():
    with scope():
        chain(kind=LegacyModel)(X)


@row(NotImplementedError, "IPU Keras models do not support the `save` interface.")
def saving_of_legacy_models():
    with scope():
        chain(kind=LegacyModel).save("model.keras")


@row(
    ValueError,
    "Pipeline stages in the graph need to be strictly increasing, found pipeline "
    "stages [0, 2], however the following...",
)
def missing_stages_of_legacy_models():
    with scope(2):
        fit(compiled(chain((0, 2), PipelineModel, gradient_accumulation_count=4)))


@pytest.fixture(autouse=True)
def system():
    with devices():
        yield


@pytest.mark.parametrize("documented", row, ids=str)
def test_documented_errors(documented):
    documented.check()
