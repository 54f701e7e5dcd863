# Written by `python tests/stub_files.py`.
from ipu_keras.ops.embedding_ops import HostEmbedding as HostEmbedding
from ipu_keras.ops.embedding_ops import HostEmbeddingOptimizerSpec as HostEmbeddingOptimizerSpec
from ipu_keras.ops.embedding_ops import HostEmbeddingSGDGAOptimizerSpec as HostEmbeddingSGDGAOptimizerSpec
from ipu_keras.ops.embedding_ops import create_host_embedding as create_host_embedding
from ipu_keras.ops.embedding_ops import embedding_lookup as embedding_lookup
