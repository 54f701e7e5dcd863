"""Parts of a program that the host computes: an IPU sends what they take, and gets the results."""

from collections.abc import Mapping
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.pipeline.offloading import REMOTE
from ipu_keras.ir import Op

# What tracing marks scopes of `outside_compilation_scope` as, and users' operations on the host.
OUTSIDE_COMPILATION_FAMILY = "OutsideCompilation"
USER_OPERATION_FAMILY = "CpuUserOperation"

_ON_HOST = frozenset({OUTSIDE_COMPILATION_FAMILY, USER_OPERATION_FAMILY})


def leave_to_host(program: FlatProgram) -> FlatProgram:
    """Replaces what the host computes by copies.

    Args:
        program: A step, written out.
    """
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
    """The copies in the place of what the host computes.

    Args:
        one: It.
        values: Of the program, by name; what is not on tiles is not copied.
    """
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
