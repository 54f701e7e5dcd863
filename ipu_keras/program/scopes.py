"""Name scopes of a trace, by which the cost model tells the parts of a step apart."""

import re

WEIGHT_UPDATE_SCOPE = "weight_update"
_STAGE_SCOPE = "pipeline_stage_{}"

# The prefix of an outlined function's scope; no layer's default name has a full stop.
OUTLINED_SCOPE = "outlined."

# TensorFlow lets a scope be opened by more names than operations in it may have: a backslash, and
# `>` before what does not begin a name.
_NOT_IN_SCOPES = re.compile(r"[^A-Za-z0-9_./>-]|>(?![A-Za-z0-9.])")


def legal_in_scopes(name: str) -> str:
    """Makes any text, such as a user's name, a legal scope behind another one.

    Example:

    >>> legal_in_scopes("error > 0.5"), legal_in_scopes("a>b\\\\c")
    ('error___0.5', 'a>b_c')
    """
    return _NOT_IN_SCOPES.sub("_", name)


def stage_scope(stage: int) -> str:
    return _STAGE_SCOPE.format(stage)
