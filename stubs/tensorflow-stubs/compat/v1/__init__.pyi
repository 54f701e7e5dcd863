# Written by `python tests/stub_files.py`.
from typing import Any

from tensorflow._api.v2.compat.v1 import *

def __getattr__(name: str) -> Any: ...
