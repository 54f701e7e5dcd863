"""What the guide for TensorFlow 1 has of estimators, and of several processes."""

import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ipu_run_config import RunConfig

ipu_options = ipu.config.IPUConfig()
ipu_options.auto_select_ipus = 1
ipu_options.floating_point_behaviour.inv = True
# now: ipu_options.optimizations.enable_fast_math = True
ipu_options.optimizations.fast_math = True
ipu_options.configure_ipu_system()
hooks = [ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=1)]
print(RunConfig, hooks, tf.__version__)
