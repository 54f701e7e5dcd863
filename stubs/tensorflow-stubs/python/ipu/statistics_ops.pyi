# Written by `python tests/stub_files.py`.
from ipu_keras.ops.statistics_ops import fixed_width_bins as fixed_width_bins
from ipu_keras.ops.statistics_ops import histogram as histogram
from ipu_keras.ops.statistics_ops import histogram_update as histogram_update
