"""Parts of a program that the host computes: an IPU sends their inputs and gets the results."""

from collections.abc import Mapping
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import REMOTE, ComputeSet, FlatProgram, Value
from ipu_keras.ir import Op

# The families with which tracing marks scopes of `outside_compilation_scope`, and users'
# operations on the host.
OUTSIDE_COMPILATION_FAMILY = "OutsideCompilation"
USER_OPERATION_FAMILY = "CpuUserOperation"

_ON_HOST = frozenset({OUTSIDE_COMPILATION_FAMILY, USER_OPERATION_FAMILY})


def leave_to_host(program: FlatProgram) -> FlatProgram:
    """Replaces what the host computes by copies."""
    if not any(one.family in _ON_HOST for one in program.compute_sets):
        return program
    return replace(
        program,
        compute_sets=tuple(
            host_copy(one, program.values) if one.family in _ON_HOST else one
            for one in program.compute_sets
        ),
    )


def host_copy(one: ComputeSet, values: Mapping[str, Value]) -> ComputeSet:
    """Returns the copies in place of a compute set that the host computes."""
    # What lies in remote memory is not on tiles, and constants are known at compile time.
    sent = tuple(n for n in one.reads if values[n].role not in (REMOTE, "constant"))
    operands = tuple(values[name].spec for name in sent)
    received = tuple(value.spec for value in one.writes)
    return replace(
        one,
        ops=(Op(one.name, "host-copy", received, inputs=sent),),
        operands=operands,
        reads=sent,
        flops=0,
        bytes_read=sum(spec.nbytes for spec in operands),
        bytes_written=sum(spec.nbytes for spec in received),
        body=None,
    )
