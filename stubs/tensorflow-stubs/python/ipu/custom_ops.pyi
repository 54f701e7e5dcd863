# Written by `python tests/stub_files.py`.
from ipu_keras.ops.custom_ops import codelet_expression_op as codelet_expression_op
from ipu_keras.ops.custom_ops import cpu_user_operation as cpu_user_operation
from ipu_keras.ops.custom_ops import precompiled_user_op as precompiled_user_op
