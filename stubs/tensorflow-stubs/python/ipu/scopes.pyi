# Written by `python tests/stub_files.py`.
from ipu_keras.scopes import frontend_attribute as frontend_attribute
from ipu_keras.scopes import ipu_jit_scope as ipu_jit_scope
from ipu_keras.scopes import ipu_scope as ipu_scope
from ipu_keras.scopes import ipu_shard as ipu_shard
from ipu_keras.scopes import outside_compilation_scope as outside_compilation_scope
from ipu_keras.scopes import partials_type as partials_type
from ipu_keras.scopes import stochastic_rounding as stochastic_rounding
