"""Refuses options of a session that contradict each other, or the model."""

from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.annotation_names import PIPELINE_STAGE, RECOMPUTE
from ipu_keras.popart.model.graph import Node, OnnxGraph
from ipu_keras.popart.options.enumerations import RecomputationType, RecomputeType


def check_main_loops(options: Any) -> None:
    """Refuses loops over batches in the graph without the copies that would be in them."""
    if options.enableExplicitMainLoops and not options.useHostCopyOps:
        raise popart_exception(
            "SessionOptions.enableExplicitMainLoops needs useHostCopyOps, as loops in the graph "
            "copy their inputs and anchors there. Received: enableExplicitMainLoops=True, "
            "useHostCopyOps=False. Set both, or neither."
        )


def check_recomputation(options: Any, graph: OnnxGraph) -> None:
    """Refuses automatic recomputation if nodes of the model ask for recomputation themselves."""
    if options.autoRecomputation is RecomputationType.NoRecompute:
        return
    manual = next((node for node in graph.all_nodes() if _is_recomputed(node)), None)
    if manual is not None:
        raise popart_exception(
            "A mixture of auto and manual recomputation is not supported: leave "
            "SessionOptions.autoRecomputation at RecomputationType.NoRecompute, or out "
            "`builder.recomputeOutput` and `recomputeOutputInBackwardPass`. Received: "
            f"autoRecomputation={options.autoRecomputation}, and {manual.title}, which says that "
            "it is computed again"
        )


def check_order_of_stages(graph: OnnxGraph) -> None:
    """Refuses data that goes back to an earlier stage of a pipeline."""
    stages: dict[str, int] = {}
    for node in graph.nodes:
        stage = node.annotations.get(PIPELINE_STAGE)
        # Constants may be in no stage; every stage may take them.
        if stage is None:
            continue
        for name in node.inputs:
            if stages.get(name, stage) > stage:
                raise popart_exception(
                    "Data must go through the stages of a pipeline in their order. Received: "
                    f"{node.title} in stage {stage}, which takes {name!r} of stage {stages[name]}. "
                    "Put it into that stage, or a later one, with `builder.pipelineStage(k)`."
                )
        stages.update(dict.fromkeys(node.outputs, stage))


def _is_recomputed(node: Node) -> bool:
    return node.annotations.get(RECOMPUTE) == RecomputeType.Recompute.value
