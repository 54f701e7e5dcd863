"""Names of `tf.estimator` that scripts use, which TensorFlow no longer has."""

import tensorflow as tf

from ipu_keras.estimators import export as export
from ipu_keras.estimators.run_config import EstimatorRunConfig as RunConfig  # noqa: F401
from ipu_keras.estimators.specs import EstimatorSpec as EstimatorSpec
from ipu_keras.estimators.specs import ModeKeys as ModeKeys
from ipu_keras.estimators.specs import WarmStartSettings as WarmStartSettings

CheckpointSaverHook = tf.compat.v1.train.CheckpointSaverHook
CheckpointSaverListener = tf.compat.v1.train.CheckpointSaverListener
FeedFnHook = tf.compat.v1.train.FeedFnHook
FinalOpsHook = tf.compat.v1.train.FinalOpsHook
GlobalStepWaiterHook = tf.compat.v1.train.GlobalStepWaiterHook
LoggingTensorHook = tf.compat.v1.train.LoggingTensorHook
NanLossDuringTrainingError = tf.compat.v1.train.NanLossDuringTrainingError
NanTensorHook = tf.compat.v1.train.NanTensorHook
ProfilerHook = tf.compat.v1.train.ProfilerHook
SecondOrStepTimer = tf.compat.v1.train.SecondOrStepTimer
SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunContext = tf.compat.v1.train.SessionRunContext
SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunValues = tf.compat.v1.train.SessionRunValues
StepCounterHook = tf.compat.v1.train.StepCounterHook
StopAtStepHook = tf.compat.v1.train.StopAtStepHook
SummarySaverHook = tf.compat.v1.train.SummarySaverHook
VocabInfo = tf.compat.v1.train.VocabInfo


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"tf.estimator has no {name!r} here: TensorFlow has dropped estimators, and ipu_keras has "
        "those of IPUs, `ipu.ipu_estimator.IPUEstimator` and "
        "`ipu.ipu_pipeline_estimator.IPUPipelineEstimator`. In place of `train_and_evaluate` call "
        "their `train`, with growing `max_steps`, and `evaluate` in turns."
    )
