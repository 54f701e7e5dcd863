"""Reports of what programs cost."""

from ipu_keras.report.fixes import Fix as Fix
from ipu_keras.report.fixes import suggest_fixes as suggest_fixes
from ipu_keras.report.report import SCHEMA_VERSION as SCHEMA_VERSION
from ipu_keras.report.report import Report as Report
from ipu_keras.report.rows import Row as Row
from ipu_keras.report.what_if import Choice as Choice
from ipu_keras.report.what_if import WhatIf as WhatIf
