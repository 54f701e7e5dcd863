"""Name scopes of a trace, by which the cost model tells the parts of a step apart."""

WEIGHT_UPDATE_SCOPE = "weight_update"
_STAGE_SCOPE = "pipeline_stage_{}"

# What the name scope of an outlined function starts with; no layer's default name has a full stop.
OUTLINED_SCOPE = "outlined."


def stage_scope(stage: int) -> str:
    """The name scope of the operations of a pipeline stage."""
    return _STAGE_SCOPE.format(stage)
