"""Tables that stay on the host: a program fetches rows of them and sends gradients back."""

from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import REMOTE, FlatProgram
from ipu_keras.cost.flat.host_work import host_copy

# The family with which `ipu.embedding_ops` marks lookups in such tables, and their gradients.
HOST_TABLE_FAMILY = "HostEmbedding"


def keep_tables_on_host(program: FlatProgram) -> FlatProgram:
    """Replaces lookups in tables on the host by copies of the rows.

    A variable that only lookups and their gradients use is on the host: a table, or a slot of
    its optimizer. It takes no memory of tiles.
    """
    tables = _variables_on_host(program)
    if not tables:
        return program
    updates = {new: name for new, name in program.updates.items() if name not in tables}
    stay = program.updates.keys() - updates.keys()
    values = {
        name: value
        for name, value in program.values.items()
        # A variable on the host may become a constant that others read too.
        if name not in stay or value.role == "constant"
    }
    values.update((name, replace(values[name], role=REMOTE)) for name in tables)
    return replace(
        program,
        compute_sets=tuple(
            host_copy(
                replace(one, writes=tuple(v for v in one.writes if v.name not in stay)), values
            )
            if one.family == HOST_TABLE_FAMILY
            else one
            for one in program.compute_sets
        ),
        values=values,
        results=tuple(name for name in program.results if name not in stay),
        updates=updates,
    )


def _variables_on_host(program: FlatProgram) -> set[str]:
    users: dict[str, set[str]] = {}
    for one in program.compute_sets:
        written = (program.updates.get(value.name) for value in one.writes)
        for name in (*one.reads, *(name for name in written if name is not None)):
            users.setdefault(name, set()).add(one.family)
    return {
        name
        for name, families in users.items()
        if program.values[name].role == "variable" and families == {HOST_TABLE_FAMILY}
    }
