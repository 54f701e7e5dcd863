"""Models what a program would cost on an IPU; how the host computes it is no concern of it.

A traced step goes through the passes of `passes.MODEL_PASSES`, each of which gives the next one a
value with more in it (`model`), by what was chosen (`cost_options`). docs/design/0003-cost-model.md
has a line on each, with the module that does its work. `small_programs` knows without a model
that a program fits.
"""

from ipu_keras.cost.pipeline.depth import depth_message as depth_message
from ipu_keras.cost.pipeline.depth import overlap as overlap
