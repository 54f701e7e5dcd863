"""`popart.torch`, which does not exist here: importing it says what to do instead."""

raise ImportError(
    "ipu-keras has no 'popart.torch', and so no PytorchNetWriter of 'popart.torch.torchwriter', as "
    "it does not need PyTorch. Write the model with PyTorch itself, by torch.onnx.export(module, "
    "inputs, 'model.onnx'), and give 'model.onnx' to popart.InferenceSession; or "
    "inherit popart.NetWriter, and do so in its saveModel.",
    name="popart.torch",
)
