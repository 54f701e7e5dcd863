"""How gradients of several batches are reduced to one, as `ipu.gradient_accumulation`."""

from ipu_keras.settings.gradient_accumulation import (
    GradientAccumulationReductionMethod as GradientAccumulationReductionMethod,
)
