"""The memory of infeeds: super-batches that a thread fills and TensorFlow reads.

A `Ring` hands out slots, each one block of memory that holds the batches of one
execution. A producer thread claims a slot, writes batches and commits it; the
consumer takes slots in order and gives their tensors to TensorFlow through
DLPack, without copying. A slot is written again only when TensorFlow has
released every tensor that reads it, so a result that shares an input's memory
stays valid for as long as somebody holds it.
"""

from array import array
from collections import deque
from math import prod

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, clockid_t, timespec

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** pointer, size_t alignment, size_t size)

cdef extern from *:
    """
    #include <sys/mman.h>
    /* Only Linux knows it; elsewhere pages keep their size. */
    #ifdef MADV_HUGEPAGE
    #define advise_huge_pages(data, size) madvise(data, size, MADV_HUGEPAGE)
    #else
    #define advise_huge_pages(data, size) 0
    #endif
    """
    int advise_huge_pages(void* data, size_t size) nogil

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_condattr_init(pthread_condattr_t* attributes)
    int pthread_condattr_setclock(pthread_condattr_t* attributes, clockid_t clock)
    int pthread_condattr_destroy(pthread_condattr_t* attributes)
    int pthread_cond_init(pthread_cond_t* condition, const pthread_condattr_t* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_cond_timedwait(
        pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* deadline)

# TensorFlow aborts the process on DLPack memory that is not aligned to 64 bytes.
cdef enum:
    ALIGNMENT = 64
    HUGE_PAGE = 1 << 21
    MAX_RANK = 16
    MAX_UNUSED = 5         # an execution's slot, three ahead, and one being written
    MAX_IDLE_BYTES = 1 << 28
    WAIT_MILLISECONDS = 50  # between two looks for Ctrl-C

# --------------------------------------------------------------------------
# DLPack's C structures, version 0 of the protocol (the one TensorFlow reads).

cdef struct DLDevice:
    int32_t device_type
    int32_t device_id

cdef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

cdef struct DLTensor:
    void* data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides
    uint64_t byte_offset

cdef struct DLManagedTensor:
    DLTensor dl_tensor
    void* manager_ctx
    void (*deleter)(DLManagedTensor*) noexcept nogil

cdef enum:
    DL_CPU = 1

_DLPACK_TYPES = {
    "int8": (0, 8), "int32": (0, 32), "uint8": (1, 8), "uint32": (1, 32),
    "float16": (2, 16), "float32": (2, 32), "bool": (6, 8),
}

# --------------------------------------------------------------------------
# Blocks of memory and the pool they return to. Both live outside Python: DLPack
# deleters run on TensorFlow's threads, without the GIL, and possibly after the
# Ring and its FeedMemory are gone.

cdef struct Pool:
    pthread_mutex_t mutex
    Block* unused          # that nobody reads, the last one released first
    int owners             # the FeedMemory, and every block that is in use
    int rings              # that may take blocks
    bint closed            # the FeedMemory is gone: unused blocks are freed

cdef struct Block:
    char* data
    size_t capacity
    int readers            # the Slot object and the tensors given out
    Pool* pool
    Block* next

cdef struct Export:
    DLManagedTensor tensor
    int64_t shape[MAX_RANK]
    Block* block


cdef void free_blocks(Block** first) noexcept nogil:
    """Frees a list of unused blocks."""
    cdef Block* block
    while first[0] != NULL:
        block = first[0]
        first[0] = block.next
        free(block.data)
        free(block)


cdef void disown(Pool* pool) noexcept nogil:
    """Gives up one ownership; the last one frees everything. Mutex held; released here."""
    cdef bint last
    pool.owners -= 1
    last = pool.owners == 0
    if pool.closed:
        free_blocks(&pool.unused)
    pthread_mutex_unlock(&pool.mutex)
    if last:
        pthread_mutex_destroy(&pool.mutex)
        free(pool)


cdef void trim(Pool* pool) noexcept nogil:
    """Frees the blocks that wait for too long, or for nobody. Mutex held."""
    cdef Block** place = &pool.unused
    cdef int count = 0
    cdef size_t total = 0
    while place[0] != NULL:
        count += 1
        total += place[0].capacity
        if count > MAX_UNUSED or (pool.rings == 0 and total > MAX_IDLE_BYTES):
            free_blocks(place)
        else:
            place = &place[0].next


cdef void release_block(Block* block) noexcept nogil:
    """One reader less; without readers the block can be written again."""
    cdef Pool* pool = block.pool
    pthread_mutex_lock(&pool.mutex)
    block.readers -= 1
    if block.readers == 0:
        block.next = pool.unused
        pool.unused = block
        trim(pool)
        disown(pool)
    else:
        pthread_mutex_unlock(&pool.mutex)


cdef void delete_export(DLManagedTensor* tensor) noexcept nogil:
    cdef Export* export = <Export*> tensor.manager_ctx
    release_block(export.block)
    free(export)


cdef void delete_capsule(object capsule) noexcept:
    """Runs for every capsule; TensorFlow renames those that it consumed."""
    cdef DLManagedTensor* tensor
    if PyCapsule_IsValid(capsule, "dltensor"):
        tensor = <DLManagedTensor*> PyCapsule_GetPointer(capsule, "dltensor")
        tensor.deleter(tensor)


cdef Block* allocate(size_t size) noexcept nogil:
    """A block of at least that many bytes; NULL if there is no memory.

    A block that spans huge pages asks for them: with pages of 4 KB, touching
    the memory for the first time takes longer than copying into it. It fills
    them, so that feeds that differ by a few labels can take the same blocks.
    """
    cdef void* data = NULL
    cdef bint is_huge = size >= HUGE_PAGE
    cdef Block* block = <Block*> calloc(1, sizeof(Block))
    if block == NULL:
        return NULL
    if is_huge:
        size = (size + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
    if posix_memalign(&data, HUGE_PAGE if is_huge else ALIGNMENT, size) != 0:
        free(block)
        return NULL
    if is_huge:
        advise_huge_pages(data, size)  # a wish: refused, it changes nothing
    block.data = <char*> data
    block.capacity = size
    return block


cdef Block* take_block(Pool* pool, size_t size) noexcept nogil:
    """The unused block that fits best, with one reader; allocated if none does.

    NULL if there is no memory.
    """
    cdef Block** found = NULL
    cdef Block** place
    cdef Block* block
    pthread_mutex_lock(&pool.mutex)
    place = &pool.unused
    while place[0] != NULL:
        if place[0].capacity >= size and (
                found == NULL or place[0].capacity < found[0].capacity):
            found = place
        place = &place[0].next
    if found != NULL:
        block = found[0]
        found[0] = block.next
    else:
        block = allocate(size)
    if block != NULL:
        block.pool = pool
        block.readers = 1
        pool.owners += 1
    pthread_mutex_unlock(&pool.mutex)
    return block


cdef class FeedMemory:
    """Where rings get their slots from; it outlives them, so that the next ring gets the same.

    Memory that was never touched costs more to fill than to copy into: up to
    1 ms per MB on a virtual machine, which gives it back whenever it is freed.
    At most MAX_UNUSED blocks wait unused, the latest ones, and while no ring
    can take them, no more than MAX_IDLE_BYTES.
    """

    cdef Pool* pool

    def __cinit__(self):
        self.pool = <Pool*> calloc(1, sizeof(Pool))
        if self.pool == NULL:
            raise MemoryError()
        self.pool.owners = 1
        pthread_mutex_init(&self.pool.mutex, NULL)

    def __dealloc__(self):
        if self.pool != NULL:
            pthread_mutex_lock(&self.pool.mutex)
            self.pool.closed = True
            disown(self.pool)

    cdef void _add_rings(self, int change) noexcept:
        pthread_mutex_lock(&self.pool.mutex)
        self.pool.rings += change
        trim(self.pool)
        pthread_mutex_unlock(&self.pool.mutex)

    @property
    def unused_bytes(self):
        """Size of the blocks that wait to be used again."""
        cdef size_t total = 0
        cdef Block* block
        pthread_mutex_lock(&self.pool.mutex)
        block = self.pool.unused
        while block != NULL:
            total += block.capacity
            block = block.next
        pthread_mutex_unlock(&self.pool.mutex)
        return total


# --------------------------------------------------------------------------

cdef class Slot:
    """The batches of one execution; made by `Ring.claim`.

    It holds one block for each tensor of an element, with its batches one
    after the other.
    """

    cdef Block* block
    cdef Py_ssize_t[:] step_sizes
    cdef Py_ssize_t[:] offsets
    cdef Py_ssize_t num_steps

    def __init__(self):
        raise TypeError("A slot is made by the `claim` of a Ring.")

    def __dealloc__(self):
        if self.block != NULL:
            release_block(self.block)

    def write(self, Py_ssize_t step, Py_ssize_t index, array):  # no-cython-lint, as callers may name it
        """Copies one tensor of one batch into its place.

        Args:
            step: Position of the batch in the execution.
            index: Position of the tensor in the element.
            array: C-contiguous buffer of exactly the tensor's size.

        Raises:
            ValueError: The buffer has another size in bytes.
            IndexError: No such step or tensor.
        """
        cdef Py_buffer view
        cdef Py_ssize_t size
        cdef char* target
        if not 0 <= step < self.num_steps:
            raise IndexError(f"A slot of {self.num_steps} steps has no step {step}.")
        self._check_index(index)
        size = self.step_sizes[index]
        target = self.block.data + self.offsets[index] + step * size
        PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS)
        try:
            if view.len != size:
                raise ValueError(
                    f"Tensor {index} of a batch must have {size} bytes. Received: {view.len} bytes")
            with nogil:
                memcpy(target, view.buf, size)
        finally:
            PyBuffer_Release(&view)

    def dlpack(self, Py_ssize_t index, tuple shape, str dtype):
        """A DLPack capsule of one tensor over all steps, sharing the memory.

        Args:
            index: Position of the tensor in the element.
            shape: `(steps, *shape of one batch)`.
            dtype: NumPy name of the element type.

        Returns:
            A capsule named `dltensor`, to be consumed once.

        Raises:
            ValueError: Shape and dtype are not those of the tensor's memory.
            IndexError: No such tensor.
        """
        cdef Py_ssize_t rank = len(shape)
        cdef Export* export
        self._check_index(index)
        if rank > MAX_RANK:
            raise ValueError(f"A tensor has at most {MAX_RANK} dimensions. Received: {rank}")
        if dtype not in _DLPACK_TYPES:
            raise ValueError(
                f"A feed carries {', '.join(_DLPACK_TYPES)}. Received: dtype={dtype!r}")
        code, bits = _DLPACK_TYPES[dtype]
        size = self.step_sizes[index] * self.num_steps
        if min(shape, default=0) < 0 or prod(shape) * (bits // 8) != size:
            raise ValueError(
                f"Tensor {index} of a slot has {size} bytes. "
                f"Received: shape={shape}, dtype={dtype!r}")
        export = <Export*> calloc(1, sizeof(Export))
        if export == NULL:
            raise MemoryError()
        for axis in range(rank):
            export.shape[axis] = shape[axis]
        export.block = self.block
        export.tensor.dl_tensor.data = self.block.data + self.offsets[index]
        export.tensor.dl_tensor.device.device_type = DL_CPU
        export.tensor.dl_tensor.ndim = <int32_t> rank
        export.tensor.dl_tensor.dtype.code = code
        export.tensor.dl_tensor.dtype.bits = bits
        export.tensor.dl_tensor.dtype.lanes = 1
        export.tensor.dl_tensor.shape = export.shape
        export.tensor.manager_ctx = export
        export.tensor.deleter = delete_export
        pthread_mutex_lock(&self.block.pool.mutex)
        self.block.readers += 1
        pthread_mutex_unlock(&self.block.pool.mutex)
        try:
            return PyCapsule_New(&export.tensor, "dltensor", delete_capsule)
        except BaseException:
            delete_export(&export.tensor)
            raise

    cdef int _check_index(self, Py_ssize_t index) except -1:
        if not 0 <= index < self.step_sizes.shape[0]:
            raise IndexError(
                f"A slot of {self.step_sizes.shape[0]} tensors has no tensor {index}.")
        return 0


cdef class Ring:
    """A bounded queue of slots between one producer and one consumer.

    Args:
        step_sizes: Bytes of each tensor of one batch.
        num_steps: Batches per slot.
        depth: Committed slots that may wait for the consumer.
        memory: Of the slots; defaults to memory of the ring's own.

    Raises:
        ValueError: `num_steps` or `depth` is not positive, or a size is negative.
    """

    cdef pthread_mutex_t mutex
    cdef pthread_cond_t changed
    cdef FeedMemory memory
    cdef Py_ssize_t[:] step_sizes
    cdef Py_ssize_t[:] offsets
    cdef size_t size
    cdef readonly Py_ssize_t num_steps
    cdef readonly Py_ssize_t depth
    cdef object committed   # Slots, oldest first; touched under the GIL
    cdef Py_ssize_t num_committed
    cdef bint finished
    cdef readonly bint closed  # whether `close` was called
    cdef object error

    def __cinit__(
            self, step_sizes, Py_ssize_t num_steps, Py_ssize_t depth, FeedMemory memory=None):
        cdef pthread_condattr_t attributes
        pthread_mutex_init(&self.mutex, NULL)
        # Setting the machine's clock must not make a wait longer.
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.changed, &attributes)
        pthread_condattr_destroy(&attributes)
        if num_steps < 1 or depth < 1:
            raise ValueError(
                "`num_steps` and `depth` must be positive. "
                f"Received: num_steps={num_steps}, depth={depth}")
        sizes = array("q", step_sizes)
        if min(sizes, default=0) < 0:
            raise ValueError(
                f"`step_sizes` must not be negative. Received: step_sizes={sizes.tolist()}")
        self.num_steps = num_steps
        self.depth = depth
        self.committed = deque()
        offsets = array("q")
        offset = 0
        for size in sizes:
            offsets.append(offset)
            block = size * num_steps
            offset += (block + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.step_sizes = sizes
        self.offsets = offsets
        self.size = max(offset, ALIGNMENT)
        self.memory = FeedMemory() if memory is None else memory
        self.memory._add_rings(1)

    def __dealloc__(self):
        # The garbage collector may have taken `memory` of a ring that nobody closed:
        # then that memory keeps what it would keep for a ring.
        if self.memory is not None:
            self.memory._add_rings(-1)
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.mutex)

    def claim(self):
        """Waits for room and returns a slot to write, or `None` if the ring was closed.

        Raises:
            MemoryError: There is none for another slot.
            KeyboardInterrupt: Ctrl-C while waiting on the main thread.
        """
        cdef Slot slot
        cdef Block* block
        cdef bint full = True
        while full and not self.closed:
            with nogil:
                pthread_mutex_lock(&self.mutex)
                if self.num_committed >= self.depth and not self.closed:
                    self._wait_a_moment()
                full = self.num_committed >= self.depth
                pthread_mutex_unlock(&self.mutex)
            PyErr_CheckSignals()
        if self.closed:
            return None
        block = take_block(self.memory.pool, self.size)
        if block == NULL:
            raise MemoryError(f"No memory for a super-batch of {self.size} bytes.")
        slot = Slot.__new__(Slot)
        slot.block = block
        slot.step_sizes = self.step_sizes
        slot.offsets = self.offsets
        slot.num_steps = self.num_steps
        return slot

    def commit(self, Slot slot not None):
        """Hands a written slot to the consumer; a closed ring drops it."""
        if not self.closed:
            self.committed.append(slot)
            self._signal(1)

    def finish(self, error=None):
        """Says that no slot will follow; an `error` is raised in the consumer after the last."""
        if not self.closed:
            self.error = error
        self.finished = True
        self._signal(0)

    def take(self):
        """Waits for the oldest committed slot; `None` after the last one.

        Raises:
            BaseException: What the producer gave to `finish`.
            KeyboardInterrupt: Ctrl-C while waiting on the main thread.
        """
        while not self.closed:
            if self.committed:
                slot = self.committed.popleft()
                self._signal(-1)
                return slot
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if self.finished:
                return None
            with nogil:
                pthread_mutex_lock(&self.mutex)
                if self.num_committed == 0 and not self.finished and not self.closed:
                    self._wait_a_moment()
                pthread_mutex_unlock(&self.mutex)
            PyErr_CheckSignals()
        return None

    def close(self):
        """Wakes and stops the producer, and drops what was not taken, an error included."""
        pthread_mutex_lock(&self.mutex)
        self.closed = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.mutex)
        self.committed.clear()
        if self.memory is not None:
            self.memory._add_rings(-1)
            self.memory = None
        self.error = None

    cdef void _wait_a_moment(self) noexcept nogil:
        """Waits for a change, at most WAIT_MILLISECONDS. Mutex held."""
        cdef timespec deadline
        clock_gettime(CLOCK_MONOTONIC, &deadline)
        deadline.tv_nsec += WAIT_MILLISECONDS * 1000000
        if deadline.tv_nsec >= 1000000000:
            deadline.tv_sec += 1
            deadline.tv_nsec -= 1000000000
        pthread_cond_timedwait(&self.changed, &self.mutex, &deadline)

    cdef void _signal(self, int change) noexcept:
        pthread_mutex_lock(&self.mutex)
        self.num_committed += change
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.mutex)
