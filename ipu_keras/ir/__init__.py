"""Defines the compiler's own form of a traced computation."""

from ipu_keras.ir.families import REJECTING_DRAWS as REJECTING_DRAWS
from ipu_keras.ir.families import UNKNOWN as UNKNOWN
from ipu_keras.ir.families import OpWork as OpWork
from ipu_keras.ir.families import family_of as family_of
from ipu_keras.ir.families import family_of_op as family_of_op
from ipu_keras.ir.families import num_elements as num_elements
from ipu_keras.ir.families import scanned_axis as scanned_axis
from ipu_keras.ir.families import work_of as work_of
from ipu_keras.ir.graph import CHECKPOINT as CHECKPOINT
from ipu_keras.ir.graph import NOT_LOWERED as NOT_LOWERED
from ipu_keras.ir.graph import POPLAR_CALL as POPLAR_CALL
from ipu_keras.ir.graph import POPNN_ACTIVATIONS as POPNN_ACTIVATIONS
from ipu_keras.ir.graph import RELU_GRADIENT as RELU_GRADIENT
from ipu_keras.ir.graph import Graph as Graph
from ipu_keras.ir.graph import LayeredStep as LayeredStep
from ipu_keras.ir.graph import Op as Op
from ipu_keras.ir.graph import Variants as Variants
from ipu_keras.ir.tensor_spec import TensorSpec as TensorSpec
