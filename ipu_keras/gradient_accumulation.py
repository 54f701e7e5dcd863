"""How gradients of several batches become one, as `ipu.gradient_accumulation`."""

from ipu_keras.settings.gradient_accumulation import (
    GradientAccumulationReductionMethod as GradientAccumulationReductionMethod,
)
