"""The function that programs call to add tensors over processes: `MPI_Allreduce`, without the GIL.

Before the first call of an execution, and before each one that belongs to none, processes agree: each
tells all others what it is about to do, in one small message. One that does something else, or has
ended, would have the others wait for it without end, or add up what does not belong together.

MPI is not needed to build it. The addresses of its functions come from the library that mpi4py
has loaded, and its handles from mpi4py: an int (MPICH) or a pointer (Open MPI), either of which
fits one machine word.
"""

from libc.stdint cimport int32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strcmp, strncpy

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
    # What a process tells the others before an execution: one of these, and a text that ends with zero.
    MESSAGE_BYTES = 256
    RUNS = 1
    HAS_ENDED = 2
    # The tag of these messages; `processes/checkpoints.py` has another one.
    TOLD = 1

ctypedef int (*IAllreduce)(
    const void*, void*, int, uintptr_t, uintptr_t, uintptr_t, void*
) noexcept nogil
ctypedef int (*ISend)(const void*, int, uintptr_t, int, int, uintptr_t, void*) noexcept nogil
ctypedef int (*IReceive)(void*, int, uintptr_t, int, int, uintptr_t, void*) noexcept nogil
ctypedef int (*Test)(void*, int*, void*) noexcept nogil
ctypedef int (*ErrorString)(int, char*, int*) noexcept nogil

# What one process has: one library, one communicator. Written before any program is made.
cdef IAllreduce iallreduce = NULL
cdef ISend isend = NULL
cdef IReceive ireceive = NULL
cdef Test test = NULL
cdef ErrorString error_string = NULL
cdef uintptr_t communicator = 0
cdef uintptr_t sum_operation = 0
cdef uintptr_t in_place = 0
cdef uintptr_t status_ignore = 0
cdef double limit = 0
cdef uintptr_t types[NUM_TYPES]
cdef int sizes[NUM_TYPES]

# Of the agreement: who is in it, what is told and heard, which processes
# have ended, and whether one was not heard of in time, whose message may still arrive in the memory.
cdef uintptr_t byte_type = 0
cdef int num_processes = 1
cdef int own_rank = 0
cdef char* own_message = NULL
cdef char* messages = NULL
cdef uintptr_t* requests = NULL
cdef char* has_ended = NULL
cdef bint is_lost = False
# How often all have agreed, which is equally often in each of them.
cdef long agreements = 0

cdef enum Phase:
    OUTSIDE
    ANNOUNCED
    AGREED

# Whether an execution runs, and has agreed; and what it is.
cdef Phase phase = OUTSIDE
cdef char announced[MESSAGE_BYTES]
# What the last agreement found wrong.
cdef char problem[1200]


cdef double now() noexcept nogil:
    cdef timespec time
    clock_gettime(MONOTONIC, &time)
    return time.tv_sec + 1e-9 * time.tv_nsec


cdef void* failed(const Api* api, const char* what, int code) noexcept nogil:
    cdef char text[1800]
    cdef char said[512]
    cdef int length = 0
    said[0] = 0
    if code:
        error_string(code, said, &length)
    snprintf(text, sizeof(text), "%s %s", what, said)
    cdef NewError error = NewError(sizeof(NewError), NULL, <const char*>text, CODE_ABORTED)
    return api.create_error(&error)


cdef bint wait_for_all(int count, double seconds) noexcept nogil:
    """Waits until requests are done, at most so many seconds; 0 is without end."""
    cdef double start = now()
    cdef timespec pause = timespec(0, 50000)
    cdef int index
    cdef int done = 0
    for index in range(count):
        done = 0
        while requests[index] and not done:
            if test(&requests[index], &done, <void*>status_ignore):
                return False
            if done:
                requests[index] = 0
                break
            if now() - start > 0.002:
                nanosleep(&pause, NULL)
            if seconds > 0 and now() - start > seconds:
                return False
    return True


cdef void note_missing() noexcept nogil:
    """Writes into `problem` which processes were not heard of."""
    cdef int rank, length
    cdef int done = 0
    length = snprintf(problem, sizeof(problem), "no word from rank(s)")
    for rank in range(num_processes):
        done = 0
        if requests[rank]:
            test(&requests[rank], &done, <void*>status_ignore)
        if requests[rank] and not done and length < 1000:
            length += snprintf(problem + length, sizeof(problem) - length, " %d", rank)
    snprintf(
        problem + length,
        sizeof(problem) - length,
        " for %.0f s, while rank %d is at: %s. They are stuck, or very late: "
        "IPU_KERAS_PROCESS_SECONDS says how long is waited.",
        limit,
        own_rank,
        own_message + 1,
    )


cdef bint tell(char state, const char* text, double seconds) noexcept nogil:
    """Tells all other processes what this one does, and hears what they do; false if one is lost."""
    cdef int rank
    cdef uintptr_t* sent = requests + num_processes
    own_message[0] = state
    strncpy(own_message + 1, text, MESSAGE_BYTES - 2)
    for rank in range(num_processes):
        requests[rank] = sent[rank] = 0
        if rank == own_rank or has_ended[rank]:
            continue
        ireceive(
            messages + rank * MESSAGE_BYTES, MESSAGE_BYTES, byte_type, rank, TOLD, communicator,
            &requests[rank],
        )
        isend(own_message, MESSAGE_BYTES, byte_type, rank, TOLD, communicator, &sent[rank])
    return wait_for_all(2 * num_processes, seconds)


cdef bint agree(const char* text) noexcept nogil:
    """Whether all processes are about to do the same; else `problem` says who is not."""
    global is_lost, agreements
    cdef int rank
    cdef const char* other
    if num_processes == 1:
        return True
    if is_lost:
        return False
    if not tell(RUNS, text, limit):
        is_lost = True
        note_missing()
        return False
    for rank in range(num_processes):
        other = messages + rank * MESSAGE_BYTES
        if rank != own_rank and not has_ended[rank] and other[0] == HAS_ENDED:
            has_ended[rank] = 1
    for rank in range(num_processes):
        if has_ended[rank]:
            snprintf(
                problem,
                sizeof(problem),
                "rank %d has ended while rank %d is at: %s. It had fewer batches, or left a loop "
                "earlier.",
                rank,
                own_rank,
                text,
            )
            return False
    for rank in range(num_processes):
        other = messages + rank * MESSAGE_BYTES + 1
        if rank != own_rank and strcmp(other, own_message + 1) != 0:
            snprintf(
                problem,
                sizeof(problem),
                "processes do different things. Rank %d: %s. Rank %d: %s.",
                own_rank,
                own_message + 1,
                rank,
                other,
            )
            return False
    agreements += 1
    return True


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
    cdef char text[64]
    global phase
    if given.size == 0:
        return NULL
    if phase != AGREED:
        if phase == OUTSIDE:
            snprintf(text, sizeof(text), "a sum of %ld tensors", <long>(given.size - 1))
        if not agree(<char*>announced if phase == ANNOUNCED else <char*>text):
            return failed(frame.api, problem, 0)
        if phase == ANNOUNCED:
            phase = AGREED
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
    int size,
    int rank,
    uintptr_t byte,
    uintptr_t operation,
    uintptr_t placed,
    uintptr_t ignored,
    double seconds,
    dict handles,
):
    """Says which library, communicator and types to call with.

    Args:
        functions: Addresses of MPI's functions, by name.
        comm: The communicator, whose errors are returned.
        size: How many processes there are.
        rank: The number of this one.
        byte: `MPI_BYTE`.
        operation: `MPI_SUM`.
        placed: `MPI_IN_PLACE`.
        ignored: `MPI_STATUS_IGNORE`.
        seconds: How long a call waits for the other processes; 0 for as long as it takes.
        handles: For the number that XLA has for a type, MPI's type and the bytes of a number.
    """
    global iallreduce, test, error_string, communicator, sum_operation, in_place, status_ignore
    global limit, isend, ireceive, byte_type, num_processes, own_rank, is_lost, phase
    global own_message, messages, requests, has_ended, agreements
    cdef size_t num = size
    # Memory of an earlier world stays: a message may still arrive there.
    own_message = <char*>calloc(1, MESSAGE_BYTES)
    messages = <char*>calloc(num, MESSAGE_BYTES)
    requests = <uintptr_t*>calloc(2 * num, sizeof(uintptr_t))
    has_ended = <char*>calloc(num, 1)
    if own_message == NULL or messages == NULL or requests == NULL or has_ended == NULL:
        raise MemoryError()
    byte_type, num_processes, own_rank = byte, size, rank
    is_lost, phase, agreements = False, OUTSIDE, 0
    isend = <ISend><uintptr_t>functions["MPI_Isend"]
    ireceive = <IReceive><uintptr_t>functions["MPI_Irecv"]
    iallreduce = <IAllreduce><uintptr_t>functions["MPI_Iallreduce"]
    test = <Test><uintptr_t>functions["MPI_Test"]
    error_string = <ErrorString><uintptr_t>functions["MPI_Error_string"]
    communicator, sum_operation, in_place, status_ignore = comm, operation, placed, ignored
    limit = seconds
    for number, (handle, size) in handles.items():
        types[number] = handle
        sizes[number] = size


def announce(str what):
    """Says which execution begins; its first call of MPI has all processes agree on that."""
    global phase
    cdef bytes text = what.encode()
    strncpy(announced, text, MESSAGE_BYTES - 2)
    announced[MESSAGE_BYTES - 2] = 0
    phase = ANNOUNCED


def conclude():
    """Says that the execution has ended."""
    global phase
    phase = OUTSIDE


def num_agreements():
    """Returns how often all processes have agreed; -1 if the first is not heard any longer."""
    return -1 if is_lost or has_ended == NULL or has_ended[0] else agreements


def agree_on(str what):
    """Waits until all processes are about to do the same.

    Raises:
        RuntimeError: One does something else, has ended, or is not heard of in time.
    """
    cdef bytes encoded = what.encode()
    cdef const char* text = encoded
    cdef bint agreed
    with nogil:
        agreed = agree(text)
    if not agreed:
        raise RuntimeError(problem.decode(errors="replace"))


def leave():
    """Tells the other processes that this one ends, and waits until they end, or know.

    Returns whether all have heard of it: false if one was lost before.
    """
    cdef bint heard
    if num_processes == 1 or is_lost:
        return not is_lost
    with nogil:
        heard = tell(HAS_ENDED, b"the end", 0)
    return heard
