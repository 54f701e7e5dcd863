"""Reports of what programs cost: figures, tables, pages, timelines and comparisons.

Everything here is made from a finished `Model`; nothing here models or traces anything.
"""

from ipu_keras.report.compared import Change as Change
from ipu_keras.report.difference import Difference as Difference
from ipu_keras.report.layers import Layer as Layer
from ipu_keras.report.next_steps import NextStep as NextStep
from ipu_keras.report.plain_options import SCHEMA_VERSION as SCHEMA_VERSION
from ipu_keras.report.report import Report as Report
from ipu_keras.report.rows import Row as Row
from ipu_keras.report.schedule_dot import schedule_dot as schedule_dot
from ipu_keras.report.tensor_map import tensor_map as tensor_map
from ipu_keras.report.what_if import Choice as Choice
from ipu_keras.report.what_if import WhatIf as WhatIf
