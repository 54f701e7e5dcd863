"""What users read and set: the pipeline stage of one layer, or of one call of a layer."""

from typing import Any

import keras

from ipu_keras.keras.extensions.pipeline_stage import checked_stage


class _LayerAssignment:
    """A layer and the stage that it is assigned to."""

    def __init__(self, layer: keras.Layer, pipeline_stage: int | None):
        self._layer = layer
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> keras.Layer:
        """The layer that is assigned."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """The stage of the layer; `None` if it has none. Can be set.

        Raises:
            ValueError: The new value is not a stage.
        """
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, stage: int | None) -> None:
        self._pipeline_stage = None if stage is None else checked_stage(stage)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._layer.name}, stage {self._pipeline_stage})"


class SequentialLayerPipelineStageAssignment(_LayerAssignment):
    """The pipeline stage of a layer of a Sequential model.

    Args:
        layer: The layer that is assigned.
        pipeline_stage: Stage of the layer, from 0; `None` for none.

    Raises:
        ValueError: `pipeline_stage` is not a stage.
    """

    def __init__(self, layer: keras.Layer, pipeline_stage: int | None = None):
        super().__init__(layer, pipeline_stage)


class _CallAssignment(_LayerAssignment):
    """A call of a layer and the stage that it is assigned to."""

    def __init__(self, layer: keras.Layer, node_index: int, pipeline_stage: int | None = None):
        super().__init__(layer, pipeline_stage)
        self._node_index = node_index

    @property
    def node_index(self) -> int:
        """Which of the calls of the layer is assigned."""
        return self._node_index

    def __repr__(self) -> str:
        call = f"{self._layer.name}, call {self._node_index}"
        return f"{type(self).__name__}({call}, stage {self._pipeline_stage})"


class FunctionalLayerPipelineStageAssignment(_CallAssignment):
    """The pipeline stage of a call of a layer in a Functional model.

    Args:
        layer: The layer that is called.
        node_index: Which call of the layer it is: the position among all its symbolic calls,
            also those outside of the model.
        pipeline_stage: The stage of the call, from 0; `None` for none.

    Raises:
        ValueError: `pipeline_stage` is not a stage.
    """

    @property
    def inbound_layers(self) -> list[keras.Layer]:
        """The layers whose results the call takes, by which calls can be told apart."""
        return _layers_before(self._layer._inbound_nodes[self._node_index])


class ModelLayerPipelineStageAssignment(_CallAssignment):
    """The pipeline stage of a call of a layer in a `keras.Model` subclass.

    Args:
        layer: The layer that is called.
        node_index: Which of the calls of the layer in one pass through the model's `call` it is.
        pipeline_stage: The stage of the call, from 0; `None` for none.

    Raises:
        ValueError: `pipeline_stage` is not a stage.
    """

    _inbound_layers: list[keras.Layer] | None = None

    @property
    def inbound_layers(self) -> list[keras.Layer]:
        """The layers whose results the call takes, by which calls can be told apart.

        Raises:
            AttributeError: The object was not returned by `get_pipeline_stage_assignment`, so
                its model is not known.
        """
        if self._inbound_layers is None:
            raise AttributeError(
                f"The inbound layers of {self!r} are not known, as it was made without its model. "
                "Take it from `get_pipeline_stage_assignment()` of the model instead."
            )
        return list(self._inbound_layers)


def _layers_before(node: Any) -> list[keras.Layer]:
    """Returns the layers whose results a node takes, directly or through other operations."""
    found: list[keras.Layer] = []
    for parent in node.parent_nodes:
        layers = [parent.operation]
        if not isinstance(parent.operation, keras.Layer):
            layers = _layers_before(parent)
        found.extend(layer for layer in layers if layer not in found)
    return found
