"""Runs code written for IPUs, with TensorFlow and Keras, on a machine without one."""

from ipu_keras import _aliases, _requirements

# First of all, so that a missing TensorFlow is reported with its remedy.
_requirements.check()

from ipu_keras import config as config
from ipu_keras import utils as utils

# Last, as the aliases take the modules that were imported by then.
_aliases.install()
