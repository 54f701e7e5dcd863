"""From TensorFlow functions to the compiler's graphs."""

from ipu_keras.tracing.concrete import graph_of as graph_of
from ipu_keras.tracing.extraction import Part as Part
from ipu_keras.tracing.fused_batch_norms import batch_norms as batch_norms
from ipu_keras.tracing.fused_batch_norms import use_fused_batch_norm as use_fused_batch_norm
from ipu_keras.tracing.garbage_collection import no_garbage_collection as no_garbage_collection
from ipu_keras.tracing.joint_batches import bytes_of_batch as bytes_of_batch
from ipu_keras.tracing.joint_batches import can_join as can_join
from ipu_keras.tracing.joint_batches import joint_function as joint_function
from ipu_keras.tracing.late_tiles import late_tiles as late_tiles
from ipu_keras.tracing.layer_scopes import layer_scopes as layer_scopes
from ipu_keras.tracing.pooling import POOLING_GRADIENT as POOLING_GRADIENT
from ipu_keras.tracing.pooling import fast_pooling_gradients as fast_pooling_gradients
from ipu_keras.tracing.random_bits import RANDOM_UNIFORM as RANDOM_UNIFORM
from ipu_keras.tracing.random_bits import compilable_random as compilable_random
from ipu_keras.tracing.replacement import Replaced as Replaced
from ipu_keras.tracing.replacement import as_written as as_written
from ipu_keras.tracing.replacement import undone as undone
from ipu_keras.tracing.replication import EXCHANGES as EXCHANGES
from ipu_keras.tracing.replication import replicated as replicated
from ipu_keras.tracing.segments import replicate as replicate
from ipu_keras.tracing.segments import written_captures as written_captures
from ipu_keras.tracing.splitting import before_return as before_return
from ipu_keras.tracing.splitting import open_step as open_step
from ipu_keras.tracing.splitting import split_step as split_step
from ipu_keras.tracing.summed_products import joint_summed_products as joint_summed_products
from ipu_keras.tracing.xla import traced_for_xla as traced_for_xla
