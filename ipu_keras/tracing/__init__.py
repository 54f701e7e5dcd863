"""Turns TensorFlow functions into graphs of the compiler, and takes traces apart for the host."""

from ipu_keras.tracing.as_written import Replaced as Replaced
from ipu_keras.tracing.as_written import as_written as as_written
from ipu_keras.tracing.concrete import graph_of as graph_of
from ipu_keras.tracing.extraction import ExtractedPart as ExtractedPart
from ipu_keras.tracing.garbage_collection import no_garbage_collection as no_garbage_collection
from ipu_keras.tracing.layer_scopes import layer_scopes as layer_scopes
from ipu_keras.tracing.replication import has_exchanges as has_exchanges
from ipu_keras.tracing.replication import replicated as replicated
from ipu_keras.tracing.xla import traced_for_xla as traced_for_xla
