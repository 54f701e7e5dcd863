"""The methods of models that assign their layers to pipeline stages."""

from collections.abc import Callable
from typing import Any

from ipu_keras.keras.extensions.argument_notes import notes_arguments
from ipu_keras.keras.extensions.stage_summary import print_summary


class ModelPipeline:
    """Methods by which a model made in an `IPUStrategy`'s scope shows and takes pipeline
    stages."""

    # The extension defines the first, Keras the second.
    _ipu: Any
    name: str

    def get_pipeline_stage_assignment(self) -> list:
        """Returns the stages of the model's layers, in the order in which they are executed.

        Returns:
            An assignment for each call of a layer, without input layers: as last set, else as
                the `PipelineStage` scopes say. Change them and set them to assign others.

        Raises:
            RuntimeError: The model has not been built yet.
        """
        return self._ipu.stages.assignments()

    @notes_arguments()
    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list) -> None:
        """Assigns the layers of the model to pipeline stages, whatever scopes they were made in.

        Args:
            pipeline_stage_assignment: List as `get_pipeline_stage_assignment` returns it, with a
                stage in each entry; for Sequential models and subclasses of `keras.Model` also
                plain integers, in the same order. Saved with the model.

        Raises:
            ValueError: The argument is not a list, has another length or order than the layers,
                leaves a layer without a stage, or lets one need the result of a later stage.
            RuntimeError: A stage has no layer, or the model has not been built yet.
        """
        stages = self._ipu.stages.checked(pipeline_stage_assignment)
        self._ipu.set(stages=stages, operation_stages=())

    def reset_pipeline_stage_assignment(self) -> None:
        """Takes the layers out of their stages; the model is no longer pipelined."""
        self._ipu.set(stages=(), operation_stages=())

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], Any] | None = None
    ) -> None:
        """Prints a table of the layers and their stages.

        Args:
            line_length: Number of characters in a line; `None` for 98.
            print_fn: Called with each line; `None` for `print`.

        Raises:
            RuntimeError: The model has not been built yet.
        """
        print_summary(
            self.name, self.get_pipeline_stage_assignment(), line_length, print_fn or print
        )
