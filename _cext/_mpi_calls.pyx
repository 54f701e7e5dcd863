"""The function that programs call to add tensors over processes: `MPI_Allreduce`, without the GIL.

MPI is not needed to build it. The addresses of its functions come from the library that mpi4py
has loaded, and its handles from mpi4py: an int (MPICH) or a pointer (Open MPI), either of which
fits one machine word.
"""

from libc.stdint cimport int32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

include "xla_ffi.pxi"

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec*)
    int nanosleep(const timespec*, timespec*)

cdef enum:
    # Smaller tensors are packed into one message: below it a call costs more than a copy.
    SMALL_BYTES = 1 << 16
    # XLA's numbers of types end here, as far as any is added.
    NUM_TYPES = 17
    MONOTONIC = 1

ctypedef int (*IAllreduce)(
    const void*, void*, int, uintptr_t, uintptr_t, uintptr_t, void*
) noexcept nogil
ctypedef int (*Test)(void*, int*, void*) noexcept nogil
ctypedef int (*ErrorString)(int, char*, int*) noexcept nogil

# What one process has: one library, one communicator. Written before any program is made.
cdef IAllreduce iallreduce = NULL
cdef Test test = NULL
cdef ErrorString error_string = NULL
cdef uintptr_t communicator = 0
cdef uintptr_t sum_operation = 0
cdef uintptr_t in_place = 0
cdef uintptr_t status_ignore = 0
cdef double limit = 0
cdef uintptr_t types[NUM_TYPES]
cdef int sizes[NUM_TYPES]


cdef double now() noexcept nogil:
    cdef timespec time
    clock_gettime(MONOTONIC, &time)
    return time.tv_sec + 1e-9 * time.tv_nsec


cdef void* failed(const Api* api, const char* what, int code) noexcept nogil:
    cdef char text[700]
    cdef char said[512]
    cdef int length = 0
    said[0] = 0
    if code:
        error_string(code, said, &length)
    snprintf(text, 700, "%s %s", what, said)
    cdef NewError error = NewError(sizeof(NewError), NULL, <const char*>text, CODE_ABORTED)
    return api.create_error(&error)


cdef void* add(const Api* api, const void* given, void* found, int64_t count, int type) noexcept nogil:
    """Adds `count` numbers over all processes, and waits for it, at most as long as the limit."""
    # Requests are an int or a pointer, as handles are.
    cdef uintptr_t request = 0
    cdef int done = 0
    cdef int code = iallreduce(
        given, found, <int>count, types[type], sum_operation, communicator, &request
    )
    cdef double start = now()
    cdef timespec pause = timespec(0, 50000)
    while code == 0:
        code = test(&request, &done, <void*>status_ignore)
        if done or code:
            break
        # A process that is a little late is worth spinning for, one that is very late is not.
        if now() - start > 0.002:
            nanosleep(&pause, NULL)
        if limit > 0 and now() - start > limit:
            return failed(
                api,
                "Other processes did not take part in a reduction in time: they have ended, have "
                "fewer batches, or are late. IPU_KERAS_PROCESS_SECONDS says how long is waited.",
                0,
            )
    return failed(api, "MPI_Iallreduce:", code) if code else NULL


cdef int64_t count_of(const Buffer* buffer) noexcept nogil:
    cdef int64_t count = 1
    cdef int64_t axis
    for axis in range(buffer.rank):
        count *= buffer.dims[axis]
    return count


cdef bint is_small(const Buffer* buffer) noexcept nogil:
    return count_of(buffer) * sizes[buffer.dtype] < SMALL_BYTES


cdef void* all_reduce(CallFrame* frame) noexcept nogil:
    """Adds tensors of one type over all processes; small ones in one message."""
    if is_question(frame):
        return NULL
    cdef Buffers* given = &frame.arguments
    cdef Buffers* found = &frame.results
    cdef int64_t index, num_bytes
    cdef int64_t packed = 0
    cdef void* error = NULL
    cdef char* message
    cdef const void* source
    if given.size == 0:
        return NULL
    cdef int type = given.buffers[0].dtype
    for index in range(given.size):
        if is_small(given.buffers[index]):
            packed += count_of(given.buffers[index])
    if packed:
        message = <char*>malloc(packed * sizes[type])
        if message == NULL:
            return failed(frame.api, "There is no memory for a message.", 0)
        packed = 0
        for index in range(given.size):
            if is_small(given.buffers[index]):
                num_bytes = count_of(given.buffers[index]) * sizes[type]
                memcpy(message + packed, given.buffers[index].data, num_bytes)
                packed += num_bytes
        error = add(frame.api, <const void*>in_place, message, packed // sizes[type], type)
        packed = 0
        for index in range(given.size):
            if is_small(given.buffers[index]) and error == NULL:
                num_bytes = count_of(given.buffers[index]) * sizes[type]
                memcpy(found.buffers[index].data, message + packed, num_bytes)
                packed += num_bytes
        free(message)
    for index in range(given.size):
        if error == NULL and not is_small(given.buffers[index]):
            source = given.buffers[index].data
            if source == found.buffers[index].data:
                source = <const void*>in_place
            error = add(
                frame.api, source, found.buffers[index].data, count_of(given.buffers[index]), type
            )
    return error


def register(uintptr_t get_api, str name):
    """Makes the function known to XLA, for as long as the process lives.

    Args:
        get_api: The address of `xla::ffi::GetXlaFfiApi`.
        name: What calls call.

    Raises:
        RuntimeError: XLA does not take it; the error has its text.
    """
    register_handler((<const Api* (*)() noexcept nogil>get_api)(), name, all_reduce)


def use(
    *,
    dict functions,
    uintptr_t comm,
    uintptr_t operation,
    uintptr_t placed,
    uintptr_t ignored,
    double seconds,
    dict handles,
):
    """Says which library, communicator and types to call with.

    Args:
        functions: Addresses of `MPI_Iallreduce`, `MPI_Test` and `MPI_Error_string`, by name.
        comm: The communicator, whose errors are returned.
        operation: `MPI_SUM`.
        placed: `MPI_IN_PLACE`.
        ignored: `MPI_STATUS_IGNORE`.
        seconds: How long a call waits for the other processes; 0 for as long as it takes.
        handles: For the number that XLA has for a type, MPI's type and the bytes of a number.
    """
    global iallreduce, test, error_string, communicator, sum_operation, in_place, status_ignore
    global limit
    iallreduce = <IAllreduce><uintptr_t>functions["MPI_Iallreduce"]
    test = <Test><uintptr_t>functions["MPI_Test"]
    error_string = <ErrorString><uintptr_t>functions["MPI_Error_string"]
    communicator, sum_operation, in_place, status_ignore = comm, operation, placed, ignored
    limit = seconds
    for number, (handle, size) in handles.items():
        types[number] = handle
        sizes[number] = size
