"""PopART: builds, runs and trains ONNX models, as `import popart`."""

from ipu_keras.popart.model.transformer import GraphTransformer as GraphTransformer
