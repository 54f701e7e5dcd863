"""The documented names of tables of embeddings, in the memory of the IPU and on the host."""

from ipu_keras.ops.embedding_lookup import embedding_lookup as embedding_lookup
from ipu_keras.ops.host_embedding import HostEmbedding as HostEmbedding
from ipu_keras.ops.host_embedding import create_host_embedding as create_host_embedding
from ipu_keras.ops.host_embedding_optimizers import (
    HostEmbeddingOptimizerSpec as HostEmbeddingOptimizerSpec,
)
from ipu_keras.ops.host_embedding_optimizers import (
    HostEmbeddingSGDGAOptimizerSpec as HostEmbeddingSGDGAOptimizerSpec,
)
