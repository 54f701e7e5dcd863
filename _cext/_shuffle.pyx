"""The order in which a shuffled dataset would read the rows that it is made of."""

from array import array

from libc.stdint cimport int64_t, uint32_t


def shuffled_rows(const uint32_t[::1] draws, Py_ssize_t num_rows, Py_ssize_t buffer_size):
    """The order in which a buffer of rows is drawn from, as `tf.data.Dataset.shuffle` does.

    The buffer is a ring. Each draw takes one of the rows that it holds, whose place the row that
    is first in the ring gets; the next row of the input takes the place of that one.

    Args:
        draws: One random number for each row wanted, at most `num_rows`.
        num_rows: Of the input.
        buffer_size: Rows that the buffer holds.

    Returns:
        An array of int64, the positions in the input of the first `len(draws)` rows.

    Raises:
        ValueError: More rows are wanted than there are, or the buffer holds none.
    """
    cdef Py_ssize_t wanted = draws.shape[0]
    cdef Py_ssize_t size = min(buffer_size, num_rows)
    cdef Py_ssize_t first, chosen, entering
    if wanted > num_rows or buffer_size < 1:
        raise ValueError(
            "At most all rows can be drawn, from a buffer of at least one. Received: "
            f"{wanted} draws, num_rows={num_rows}, buffer_size={buffer_size}")
    order = array("q", bytes(8 * wanted))
    cdef int64_t[::1] rows = order
    cdef int64_t[::1] buffer = array("q", bytes(8 * size))
    with nogil:
        for first in range(size):
            buffer[first] = first
        for first in range(wanted):
            entering = first + size - 1
            if first > 0 and entering < num_rows:
                buffer[entering % size] = entering
            chosen = (first + draws[first] % min(size, num_rows - first)) % size
            rows[first] = buffer[chosen]
            buffer[chosen] = buffer[first % size]
    return order
