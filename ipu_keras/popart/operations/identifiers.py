"""Lists of the operations that there are, as scripts ask for them."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx.defs

from ipu_keras.popart.model.graph import AI_ONNX, AI_ONNX_ML
from ipu_keras.popart.operations.table import OPERATIONS

# The last version of each domain of ONNX that models may have.
_LAST = {AI_ONNX: 11, AI_ONNX_ML: 1}


@dataclass(frozen=True, order=True)
class OperatorIdentifier:
    """Which operation is meant.

    Args:
        domain: Whose it is, such as `"ai.onnx"`.
        type: Its kind, such as `"Add"`.
        version: The version of the domain since which it is so.
    """

    domain: str
    type: str
    version: int


def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """The operations that models may have, each in all versions that differ.

    Args:
        includeInternal: Has no effect: there are no operations that only programs have.

    Example:

    >>> OperatorIdentifier("ai.graphcore", "Gelu", 1) in getSupportedOperations()
    True
    """
    return sorted(
        OperatorIdentifier(one.domain, one.kind, one.since)
        for versions in OPERATIONS.values()
        for one in versions
    )


def getUnsupportedOperations() -> list[OperatorIdentifier]:
    """Those operations of ONNX that models may not have, in the last version that counts.

    Example:

    >>> {each.domain for each in getUnsupportedOperations()} <= {"ai.onnx", "ai.onnx.ml"}
    True
    """
    return sorted(each for each in _of_onnx() if (each.domain, each.type) not in OPERATIONS)


def _of_onnx() -> Iterator[OperatorIdentifier]:
    kinds = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    for domain, last in _LAST.items():
        named = "" if domain == AI_ONNX else domain
        for kind in kinds:
            if onnx.defs.has(kind, last, named):
                schema = onnx.defs.get_schema(kind, last, named)
                if not schema.deprecated:
                    yield OperatorIdentifier(domain, kind, schema.since_version)
