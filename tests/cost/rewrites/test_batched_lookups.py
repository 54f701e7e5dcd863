"""Batched gathers and scatters, built by hand and as TensorFlow traces them, and computed."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, missing_references, op

from ipu_keras import profile
from ipu_keras.cost.rewrites.batched_lookups import num_batches, num_lookups, with_batched_lookups
from ipu_keras.ir import TensorSpec
from ipu_keras.tracing.hlo import hlo_graph

_ELEMENTWISE = {
    "add": np.add,
    "copy": lambda x: x,
    "multiply": np.multiply,
    "select": np.where,
}
_COMPARED = {"LT": np.less, "GE": np.greater_equal}


def computed(of, *arguments):
    """The results of a graph, by NumPy: a twin of the operations that lookups consist of."""
    given = iter(arguments)
    values = {}
    for one in of.ops:
        inputs = [values[name] for name in one.inputs]
        values[one.name] = next(given) if one.kind == "parameter" else _result(one, inputs)
    return [values[name] for name in of.results]


def _result(one, inputs):
    (spec,), has = one.outputs, one.attributes
    if one.kind == "constant":
        return _constant(spec, has)
    if one.kind == "iota":
        return _counted(spec.shape, has["dimensions"][0], 1)
    if one.kind == "reshape":
        return inputs[0].reshape(spec.shape)
    if one.kind == "transpose":
        return inputs[0].transpose(has["dimensions"])
    if one.kind == "convert":
        return inputs[0].astype(spec.dtype)
    if one.kind == "broadcast":
        sizes = [1] * len(spec.shape)
        for axis, size in zip(has["dimensions"], inputs[0].shape, strict=True):
            sizes[axis] = size
        return np.broadcast_to(inputs[0].reshape(sizes), spec.shape)
    if one.kind == "concatenate":
        return np.concatenate(inputs, has["dimensions"][0])
    if one.kind == "compare":
        return _COMPARED[has["direction"]](*inputs)
    if one.kind == "gather":
        return _gathered(*inputs, spec, has)
    if one.kind == "scatter":
        return _scattered(*inputs, has)
    return _ELEMENTWISE[one.kind](*inputs)


def _constant(spec, has):
    if "value" in has:
        return np.asarray(has["value"], spec.dtype)
    return _counted(spec.shape, *has["progression"])


def _counted(shape, axis, step):
    along = [-1 if k == axis else 1 for k in range(len(shape))]
    return np.broadcast_to((step * np.arange(shape[axis])).reshape(along), shape)


def _starts(table, indices, has, looked_up, batching, of_indices):
    """Where each window begins, as XLA's documentation of both operations says."""
    if has["index_vector_dim"] == indices.ndim:
        indices = indices[..., None]
    assert has["index_vector_dim"] == indices.ndim - 1
    for at in np.ndindex(indices.shape[:-1]):
        start = [0] * table.ndim
        for dim, number in zip(has[looked_up], indices[at], strict=True):
            start[dim] = int(number)
        for dim, axis in zip(has.get(batching, ()), has.get(of_indices, ()), strict=True):
            start[dim] = at[axis]
        yield at, start


def _gathered(table, indices, spec, has):
    dropped = {*has["collapsed_slice_dims"], *has.get("operand_batching_dims", ())}
    sizes = has["slice_sizes"]
    window = [size for dim, size in enumerate(sizes) if dim not in dropped]
    outside = [size for k, size in enumerate(spec.shape) if k not in has["offset_dims"]]
    result = np.empty((*outside, *window), table.dtype)
    names = "start_index_map", "operand_batching_dims", "start_indices_batching_dims"
    for at, start in _starts(table, indices, has, *names):
        part = table[tuple(slice(s, s + n) for s, n in zip(start, sizes, strict=True))]
        result[at] = part.reshape(window)
    return np.moveaxis(result, range(len(outside), result.ndim), has["offset_dims"])


def _scattered(table, indices, updates, has):
    dropped = {*has["inserted_window_dims"], *has.get("input_batching_dims", ())}
    window = has["update_window_dims"]
    updates = np.moveaxis(updates, window, range(updates.ndim - len(window), updates.ndim))
    widths = iter(updates.shape[updates.ndim - len(window) :])
    sizes = [1 if dim in dropped else next(widths) for dim in range(table.ndim)]
    result = np.array(table)
    names = (
        "scatter_dims_to_operand_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
    )
    for at, start in _starts(table, indices, has, *names):
        place = tuple(slice(s, s + n) for s, n in zip(start, sizes, strict=True))
        result[place] += updates[at].reshape(sizes)
    return result


def gradient(function):
    def of(x, *others):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, *others)
        return tape.gradient(y, x, output_gradients=3.0 * y)

    return of


def spelled_out(x, indices):
    """As code by hand has it: rows of one long table."""
    batch, size = x.shape[:2]
    starts = tf.reshape(tf.range(batch) * size, [-1, 1])
    return tf.gather(tf.reshape(x, [-1, x.shape[2]]), tf.reshape(indices + starts, [-1]))


LOOKUPS = {
    "gather": (lambda x, i: tf.gather(x, i, batch_dims=1), (3, 5, 2), (3, 4), 3),
    "two batches": (lambda x, i: tf.gather(x, i, batch_dims=2), (2, 3, 5, 2), (2, 3, 4), 6),
    "batch of one": (lambda x, i: tf.gather(x, i, batch_dims=2), (1, 3, 5, 2), (1, 3, 4), 3),
    "last axis": (lambda x, i: tf.gather(x, i, batch_dims=1, axis=2), (3, 2, 5), (3, 4), 3),
    "labels": (lambda x, i: tf.gather(x, i, batch_dims=1), (3, 5), (3,), 3),
    "vectors": (lambda x, i: tf.gather_nd(x, i, batch_dims=1), (3, 5, 6, 2), (3, 4, 2), 3),
    "along axis": (lambda x, i: keras.ops.take_along_axis(x, i, axis=1), (3, 5, 2), (3, 4, 2), 6),
    "spelled out": (spelled_out, (3, 5, 2), (3, 4), 3),
}


@pytest.mark.parametrize("case", LOOKUPS)
@pytest.mark.parametrize("wrapped", [lambda function: function, gradient])
def test_tensorflows_lookups_have_batches(case, wrapped):
    function, shape, of_indices, batches = LOOKUPS[case]
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape).astype(np.float32)
    indices = rng.integers(0, 5, of_indices).astype(np.int32)
    traced = tf.function(wrapped(function)).get_concrete_function(
        tf.TensorSpec(shape), tf.TensorSpec(of_indices, tf.int32)
    )
    written = hlo_graph(traced)
    batched = with_batched_lookups(written)
    assert missing_references(batched) == []
    expected = traced(tf.constant(x), tf.constant(indices)).numpy()
    for each in (written, batched):
        (found,) = computed(each, x, indices)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    specs = {one.name: one.outputs[0] for one in batched.ops}
    lookups = [one for one in batched.ops if one.kind in ("gather", "scatter")]
    assert lookups
    for one in lookups:
        table, numbers = (specs[name] for name in one.inputs[:2])
        assert num_batches(one, table) == batches
        rows = of_indices[:-1] if case == "vectors" else of_indices
        assert num_lookups(one, numbers) == math.prod(rows)
    # Nothing is left that counted the elements of the batch.
    kinds = {one.kind for one in batched.ops}
    assert not kinds & {"concatenate", "iota"}


def test_indices_of_their_own_stay():
    """Both components say something: no batch."""
    traced = tf.function(tf.gather_nd).get_concrete_function(
        tf.TensorSpec((3, 5, 2)), tf.TensorSpec((4, 2), tf.int32)
    )
    written = hlo_graph(traced)
    assert with_batched_lookups(written) == written
    (one,) = (one for one in written.ops if one.kind == "gather")
    assert num_batches(one, TensorSpec((3, 5, 2), "float32")) == 1
    assert num_lookups(one, TensorSpec((4, 2), "int32")) == 4


def counted(table, *, counts, dropped=(0, 1), results=("rows",), axis=0):
    """A gather whose index vectors are `counts` and what is looked up."""
    return graph(
        argument("table", *table),
        op("indices", "parameter", (3, 4, 1), role="argument", dtype="int32"),
        op("counts", "iota", (3, 4, 1), dtype="int32", dimensions=(axis,)),
        op("vectors", "concatenate", (3, 4, 2), *counts, dtype="int32", dimensions=(2,)),
        op(
            "rows",
            "gather",
            (3, 4, 2),
            "table",
            "vectors",
            offset_dims=(2,),
            collapsed_slice_dims=dropped,
            start_index_map=(0, 1),
            index_vector_dim=2,
            slice_sizes=(1, 1, 2),
        ),
        results=results,
    )


def test_components_that_count_become_a_batching_dimension():
    found = with_batched_lookups(counted((3, 5, 2), counts=("counts", "indices")))
    assert [one.name for one in found.ops] == ["table", "indices", "rows"]
    rows = found.ops[-1]
    assert rows.inputs == ("table", "indices")
    assert rows.attributes["operand_batching_dims"] == (0,)
    assert rows.attributes["start_indices_batching_dims"] == (0,)
    assert rows.attributes["collapsed_slice_dims"] == rows.attributes["start_index_map"] == (1,)
    # Whichever comes first.
    swapped = with_batched_lookups(counted((5, 3, 2), counts=("indices", "counts")))
    assert swapped.ops[-1].attributes["operand_batching_dims"] == (1,)
    # What somebody else needs stays.
    both = with_batched_lookups(
        counted((3, 5, 2), counts=("counts", "indices"), results=("rows", "vectors"))
    )
    assert "vectors" in [one.name for one in both.ops]
    assert both.ops[-1].inputs == ("table", "indices")


@pytest.mark.parametrize(
    "same",
    [
        # More tables than the batch has elements.
        counted((4, 5, 2), counts=("counts", "indices")),
        # Each lookup has a table of its own, of a batch that counts another axis.
        counted((3, 5, 2), counts=("counts", "indices"), axis=1),
        # Two components that are looked up, or none.
        counted((3, 5, 2), counts=("indices", "indices")),
        counted((3, 3, 2), counts=("counts", "counts"), dropped=(2,)),
    ],
)
def test_what_is_no_batch_stays(same):
    assert with_batched_lookups(same) == same


def flat(*, step, tables=3, axis=0, first="indices"):
    """Updates of 3 x 4 rows of one long table of `tables` x 5."""
    return graph(
        argument("table", tables * 5, 2),
        op("indices", "parameter", (3, 4), role="argument", dtype="int32"),
        argument("updates", 12, 2),
        op("starts", "constant", (3, 1), dtype="int32", progression=(0, step)),
        op("column", "reshape", (3,), "starts", dtype="int32"),
        op("wide", "broadcast", (3, 4), "column", dtype="int32", dimensions=(axis,)),
        op("sum", "add", (3, 4), first, "wide", dtype="int32"),
        op("numbers", "reshape", (12,), "sum", dtype="int32"),
        op(
            "sums",
            "scatter",
            (tables * 5, 2),
            "table",
            "numbers",
            "updates",
            update_window_dims=(1,),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            operation="add",
        ),
        op("y", "negate", (tables * 5, 2), "sums"),
        results=("y", "sums"),
    )


def test_one_long_table_becomes_several():
    found = with_batched_lookups(flat(step=5))
    assert missing_references(found) == []
    assert [(one.name, one.kind, one.outputs[0].shape) for one in found.ops[3:]] == [
        ("sums/tables", "reshape", (3, 5, 2)),
        ("sums/updates", "reshape", (3, 4, 2)),
        ("sums", "scatter", (3, 5, 2)),
        ("sums/flat", "reshape", (15, 2)),
        ("y", "negate", (15, 2)),
    ]
    assert found.results == ("y", "sums/flat")
    assert found.ops[-1].inputs == ("sums/flat",)
    scatter = found.ops[5]
    assert scatter.inputs == ("sums/tables", "indices", "sums/updates")
    assert scatter.attributes["update_window_dims"] == (2,)
    assert scatter.attributes["scatter_dims_to_operand_dims"] == (1,)


@pytest.mark.parametrize(
    "same",
    [
        # Tables would overlap, or have rows between them.
        flat(step=4),
        flat(step=5, tables=4),
        # 15 rows are not 4 tables of 5: there is no element of the batch for each column.
        flat(step=5, axis=1),
        # The same twice: of constants, there is nothing that is looked up.
        flat(step=5, first="wide"),
    ],
)
def test_other_sums_of_indices_stay(same):
    assert with_batched_lookups(same) == same


def test_called_graphs_are_rewritten():
    inner = flat(step=5)
    ops = [inner_parameter("table", 15, 2), *inner.ops[1:]]
    outer = graph(argument("x", 3), functions={"body": graph(*ops, results=inner.results)})
    body = with_batched_lookups(outer).functions["body"]
    assert "sums/flat" in [one.name for one in body.ops]


def cycles(function, *specs):
    return profile(tf.function(function), *specs).model.compute_cycles


def test_a_row_of_a_batch_costs_no_more_than_one_of_an_embedding():
    """512 rows of 64, of one table or of 16."""
    one = tf.TensorSpec((1000, 64)), tf.TensorSpec((512,), tf.int32)
    many = tf.TensorSpec((16, 100, 64)), tf.TensorSpec((16, 32), tf.int32)

    def batched(x, indices):
        return tf.gather(x, indices, batch_dims=1)

    assert cycles(batched, *many) < cycles(tf.gather, *one)
    assert cycles(gradient(batched), *many) < 2 * cycles(tf.gather, *one)
