# Written by `python tests/stub_files.py`.
from ipu_keras.popart.builder import AiGraphcore as AiGraphcore
from ipu_keras.popart.builder import AiGraphcoreOpset1 as AiGraphcoreOpset1
from ipu_keras.popart.builder import AiOnnx as AiOnnx
from ipu_keras.popart.builder import AiOnnx10 as AiOnnx10
from ipu_keras.popart.builder import AiOnnx11 as AiOnnx11
from ipu_keras.popart.builder import AiOnnx6 as AiOnnx6
from ipu_keras.popart.builder import AiOnnx7 as AiOnnx7
from ipu_keras.popart.builder import AiOnnx8 as AiOnnx8
from ipu_keras.popart.builder import AiOnnx9 as AiOnnx9
from ipu_keras.popart.builder import AiOnnxMl as AiOnnxMl
from ipu_keras.popart.builder import Builder as Builder
from ipu_keras.popart.builder import Opset as Opset
