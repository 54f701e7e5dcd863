# Written by `python tests/stub_files.py`.
from ipu_keras.ops.summary_ops import ipu_compile_summary as ipu_compile_summary
from ipu_keras.ops.summary_ops import reports_of_programs as reports_of_programs
from ipu_keras.ops.summary_ops import tensor_summary as tensor_summary
