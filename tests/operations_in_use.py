"""Which operations of a traced function its results need."""


def operations_in_use(concrete):
    """Those of a `tf.ConcreteFunction`; replaced ones stay in its graph without a use."""
    found, pending = set(), [tensor.op for tensor in concrete.graph.outputs]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending.extend(tensor.op for tensor in op.inputs)
    return found
