"""Graphs are built as in the compiler's tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "compiler"))
