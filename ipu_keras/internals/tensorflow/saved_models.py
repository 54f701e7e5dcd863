"""What SavedModels say of the results of a graph, as estimators described it, and what writes them.

TensorFlow has kept these classes and functions under no public name.
"""

from typing import Any

from ipu_keras.internals.forms import Class, Function, Module, PrivateName

_OUTPUT_MODULE = "tensorflow.python.saved_model.model_utils.export_output"
_FUNCTION_MODULE = "tensorflow.python.saved_model.model_utils.export_utils"
_OUTPUT = PrivateName(_OUTPUT_MODULE, "ExportOutput", Class("as_signature_def"))
_CLASSIFICATION = PrivateName(
    _OUTPUT_MODULE,
    "ClassificationOutput",
    Class(members={"__init__": Function("self", "scores", "classes")}),
)
_REGRESSION = PrivateName(
    _OUTPUT_MODULE, "RegressionOutput", Class(members={"__init__": Function("self", "value")})
)
_PREDICTION = PrivateName(
    _OUTPUT_MODULE, "PredictOutput", Class(members={"__init__": Function("self", "outputs")})
)
_FOR_MODE = PrivateName(
    _FUNCTION_MODULE,
    "export_outputs_for_mode",
    Function("mode", "serving_export_outputs", "predictions", "loss", "metrics"),
)
_SIGNATURES = PrivateName(
    _FUNCTION_MODULE,
    "build_all_signature_defs",
    Function(
        "receiver_tensors",
        "export_outputs",
        "receiver_tensors_alternatives",
        keywords=("serving_only",),
    ),
)
_WRITING = PrivateName(
    "tensorflow.python.saved_model",
    "save",
    Module(save_and_return_nodes=Function("obj", "export_dir")),
)

# What users' model functions make and compare with, so they are the classes themselves.
ExportOutput: Any = _OUTPUT.get()
ClassificationOutput: Any = _CLASSIFICATION.get()
RegressionOutput: Any = _REGRESSION.get()
PredictOutput: Any = _PREDICTION.get()


def outputs_for_mode(
    mode: str, export_outputs: Any, predictions: Any, loss: Any, metrics: Any
) -> Any:
    """Returns the outputs of a graph by the names of their signatures."""
    return _FOR_MODE.get()(mode, export_outputs, predictions, loss, metrics)


def signatures_of(
    receiver_tensors: Any, outputs: Any, alternatives: Any, *, serving_only: bool
) -> Any:
    """Returns the `SignatureDef` of each output, for whatever is fed."""
    return _SIGNATURES.get()(receiver_tensors, outputs, alternatives, serving_only=serving_only)


def writing_module() -> Any:
    """Returns the module in which `tf.saved_model.save` looks up what writes an object."""
    return _WRITING.get()
