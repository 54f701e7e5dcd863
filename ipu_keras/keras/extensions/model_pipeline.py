"""The methods of models that assign their layers to pipeline stages."""

from collections.abc import Callable, Sequence
from typing import Any

from ipu_keras.keras.extensions.argument_notes import notes_arguments


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


_LINE_LENGTH = 98
_STAGE = "Pipeline Stage"


def print_summary(
    name: str, assignments: Sequence[Any], line_length: int | None, print_fn: Callable[[str], Any]
) -> None:
    """Prints the stages of a model's layers, or of the calls of its layers, as a table.

    `line_length` is in characters; `None` gives the default.
    """
    length = _LINE_LENGTH if line_length is None else line_length
    of_calls = any(hasattr(assignment, "node_index") for assignment in assignments)
    heading: tuple[str, ...] = ("Layer (type)", _STAGE)
    if of_calls:
        heading = ("Layer (type) (node index)", "Input Layers", _STAGE)
    print_fn(f'Model: "{name}"')
    print_fn("_" * length)
    print_fn(_line(heading, length))
    print_fn("=" * length)
    for assignment in assignments:
        print_fn(_line(_row(assignment, of_calls), length))
    print_fn("_" * length)


def _row(assignment: Any, of_calls: bool) -> tuple[str, ...]:
    layer = f"{assignment.layer.name} ({type(assignment.layer).__name__})"
    stage = str(assignment.pipeline_stage)
    if not of_calls:
        return layer, stage
    inbound = ", ".join(before.name for before in assignment.inbound_layers)
    return f"{layer} ({assignment.node_index})", inbound, stage


def _line(columns: Sequence[str], length: int) -> str:
    """Returns the columns, cut to widths: the last as wide as its heading, the others alike."""
    *first, stage = columns
    width = (length - len(_STAGE)) // len(first)
    # At least one space stays between columns.
    cells = [column[: width - 1].ljust(width) for column in first]
    return "".join([*cells, stage])
