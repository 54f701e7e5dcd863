"""Runs code written for IPUs, with TensorFlow and Keras, on a machine without one."""

import sys

# `python -m ipu_keras` has the current folder first, whose modules are the user's: `check` runs
# none of them, whatever they are called. As for `ipu-keras`, the command's folder is the first.
if sys.argv[:1] == ["-m"] and "ipu_keras" in sys.orig_argv and not sys.flags.safe_path:
    sys.path[0] = __path__[0].rpartition("/")[0]

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from ipu_keras import _aliases, _requirements

# First of all, so that a missing TensorFlow is reported with its remedy.
_requirements.check()

from ipu_keras import config as config
from ipu_keras import data as data
from ipu_keras import dataset_benchmark as dataset_benchmark
from ipu_keras import gradient_accumulation as gradient_accumulation
from ipu_keras import ipu_compiler as ipu_compiler
from ipu_keras import ipu_estimator as ipu_estimator
from ipu_keras import ipu_infeed_queue as ipu_infeed_queue
from ipu_keras import ipu_multi_worker_strategy as ipu_multi_worker_strategy
from ipu_keras import ipu_outfeed_queue as ipu_outfeed_queue
from ipu_keras import ipu_pipeline_estimator as ipu_pipeline_estimator
from ipu_keras import ipu_run_config as ipu_run_config
from ipu_keras import ipu_session_run_hooks as ipu_session_run_hooks
from ipu_keras import ipu_strategy as ipu_strategy
from ipu_keras import keras as keras
from ipu_keras import loops as loops
from ipu_keras import ops as ops
from ipu_keras import optimizers as optimizers
from ipu_keras import pipelining_ops as pipelining_ops
from ipu_keras import scopes as scopes
from ipu_keras import serving as serving
from ipu_keras import sharding as sharding
from ipu_keras import utils as utils
from ipu_keras.device import DRIVER
from ipu_keras.host.substitutes import SubstitutesOfHalves
from ipu_keras.keras import layers as layers
from ipu_keras.keras import losses as losses
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import all_to_all_op as all_to_all_op
from ipu_keras.ops import cross_replica_ops as cross_replica_ops
from ipu_keras.ops import custom_ops as custom_ops
from ipu_keras.ops import embedding_ops as embedding_ops
from ipu_keras.ops import functional_ops as functional_ops
from ipu_keras.ops import image_ops as image_ops
from ipu_keras.ops import internal_ops as internal_ops
from ipu_keras.ops import math_ops as math_ops
from ipu_keras.ops import nn_ops as nn_ops
from ipu_keras.ops import normalization_ops as normalization_ops
from ipu_keras.ops import rand_ops as rand_ops
from ipu_keras.ops import reduce_scatter_op as reduce_scatter_op
from ipu_keras.ops import replication_ops as replication_ops
from ipu_keras.ops import rnn_ops as rnn_ops
from ipu_keras.ops import slicing_ops as slicing_ops
from ipu_keras.ops import statistics_ops as statistics_ops
from ipu_keras.ops import summary_ops as summary_ops
from ipu_keras.ops.functional_ops import outlined_function as outlined_function
from ipu_keras.optimizers import cross_replica_optimizer as cross_replica_optimizer
from ipu_keras.optimizers import gradient_accumulation_optimizer as gradient_accumulation_optimizer
from ipu_keras.optimizers import ipu_optimizer as ipu_optimizer
from ipu_keras.optimizers import map_gradient_optimizer as map_gradient_optimizer
from ipu_keras.optimizers import sharded_optimizer as sharded_optimizer

# It is documented among the operations too, which cannot import it: it uses optimizers, and they
# use operations.
setattr(ops, "pipelining_ops", pipelining_ops)  # noqa: B010

# The devices of TensorFlow follow the configuration of the system from now on.
DRIVER.have_run_instead(SubstitutesOfHalves)
SYSTEM.connect(DRIVER)
DRIVER.install()

# Last, as the aliases take the modules that were imported by then.
_aliases.install()

# Whoever only trains need not wait for these: the cost model takes as long to import as all the
# rest of the package.
_LATE = {
    "EstimatedCycles": "ipu_keras.keras.estimated_cycles",
    "FindNan": "ipu_keras.keras.find_nan",
    "find_nan": "ipu_keras.keras.find_nan",
    "last_report": "ipu_keras.profiling.reports",
    "profile": "ipu_keras.keras.model_profile",
    "suggest_pipeline": "ipu_keras.keras.suggest_pipeline",
    "what_if": "ipu_keras.keras.model_profile",
}
# Modules for applications of several processes.
_LATE_MODULES = {"distributed": "ipu_keras.horovod", "horovod": "ipu_keras.horovod"}

if TYPE_CHECKING:
    # What `__getattr__` finds, for checkers.
    from ipu_keras import horovod as horovod
    from ipu_keras.keras.estimated_cycles import EstimatedCycles as EstimatedCycles
    from ipu_keras.keras.find_nan import FindNan as FindNan
    from ipu_keras.keras.find_nan import find_nan as find_nan
    from ipu_keras.keras.model_profile import profile as profile
    from ipu_keras.keras.model_profile import what_if as what_if
    from ipu_keras.keras.suggest_pipeline import suggest_pipeline as suggest_pipeline
    from ipu_keras.profiling.reports import last_report as last_report

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("ipu-keras")
    if name in _LATE_MODULES:
        return importlib.import_module(_LATE_MODULES[name])
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, *_LATE_MODULES})
