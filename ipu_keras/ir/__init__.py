"""The compiler's own form of a traced computation."""

from ipu_keras.ir.graph import Graph as Graph
from ipu_keras.ir.graph import Op as Op
