# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_session_run_hooks import IPULoggingTensorHook as IPULoggingTensorHook
