import re

import pytest

MESSAGE = re.escape(
    "ipu-keras has no 'popart.torch', and so no PytorchNetWriter of 'popart.torch.torchwriter', as "
    "it does not need PyTorch. Write the model with PyTorch itself, by torch.onnx.export(module, "
    "inputs, 'model.onnx'), and give 'model.onnx' to popart.InferenceSession; or "
    "inherit popart.NetWriter"
)


@pytest.mark.parametrize(
    "statement",
    [
        "import popart.torch",
        "import popart.torch.torchwriter",
        "from popart import torch",
        "from popart.torch import torchwriter",
        "from popart.torch.torchwriter import PytorchNetWriter",
        "import ipu_keras.popart.torch",
        "from ipu_keras.popart.torch import torchwriter",
    ],
)
def test_imports_say_what_to_use_instead(statement):
    with pytest.raises(ImportError, match=f"^{MESSAGE}") as caught:
        exec(statement)
    assert caught.value.name == "popart.torch"
