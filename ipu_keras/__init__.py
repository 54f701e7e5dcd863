"""Runs code written for IPUs, with TensorFlow and Keras, on a machine without one."""

from ipu_keras import _aliases, _requirements

# First of all, so that a missing TensorFlow is reported with its remedy.
_requirements.check()

from ipu_keras import config as config
from ipu_keras import ipu_strategy as ipu_strategy
from ipu_keras import keras as keras
from ipu_keras import utils as utils
from ipu_keras.device import DRIVER
from ipu_keras.keras.profiling import profile as profile
from ipu_keras.keras.profiling import what_if as what_if
from ipu_keras.profiling import last_report as last_report
from ipu_keras.system import SYSTEM

# The devices of TensorFlow follow the configuration of the system from now on.
SYSTEM.connect(DRIVER)
DRIVER.install()

# Last, as the aliases take the modules that were imported by then.
_aliases.install()
