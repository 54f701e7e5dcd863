"""Functions that XLA's programs on the host call for what XLA is slow at.

XLA finds them by name once `register` has run. The calls themselves are made in
`ipu_keras.tracing`; here is what runs.

TensorFlow is not needed to build it: the parts of its C API in use are declared in `xla_ffi.pxi`. XLA
keeps them binary compatible, and asks each function for the version that it was written for.
"""

from libc.stdint cimport uint64_t

include "xla_ffi.pxi"


# --- Random numbers -----------------------------------------------------------

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>

    /* So many blocks are computed together that compilers use vectors for them. */
    enum { NUM_BLOCKS = 64, NUM_WORDS = 4 * NUM_BLOCKS };

    #if defined(__x86_64__) && defined(__GNUC__)
    /* Vectors of 256 bits take half the time; which CPU it is shows at run time. */
    #define WITH_WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
    #else
    #define WITH_WIDE_VECTORS
    #endif

    /* Philox 4x32 with 10 rounds: J. K. Salmon et al., "Parallel random numbers: as easy as
       1, 2, 3", SC'11. Both halves of a product are written as if it was computed twice: gcc
       makes vectors of them, but not of a product of 64 bits that is split. The counter of each
       block is `stride` more than that of the one before. */
    WITH_WIDE_VECTORS
    static void philox(
        uint32_t* words, uint64_t key, uint64_t low, uint64_t high, uint64_t stride
    ) {
        const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
        uint32_t a[NUM_BLOCKS], b[NUM_BLOCKS], c[NUM_BLOCKS], d[NUM_BLOCKS];
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int i = 0; i < NUM_BLOCKS; i++) {
            uint64_t own_low = low + i * stride, own_high = high + (own_low < low);
            a[i] = (uint32_t)own_low;
            b[i] = (uint32_t)(own_low >> 32);
            c[i] = (uint32_t)own_high;
            d[i] = (uint32_t)(own_high >> 32);
        }
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < NUM_BLOCKS; i++) {
                uint32_t high0 = (uint32_t)(((uint64_t)m0 * a[i]) >> 32), low0 = m0 * a[i];
                uint32_t high1 = (uint32_t)(((uint64_t)m1 * c[i]) >> 32), low1 = m1 * c[i];
                a[i] = high1 ^ b[i] ^ k0;
                b[i] = low1;
                c[i] = high0 ^ d[i] ^ k1;
                d[i] = low0;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int i = 0; i < NUM_BLOCKS; i++) {
            words[4 * i] = a[i];
            words[4 * i + 1] = b[i];
            words[4 * i + 2] = c[i];
            words[4 * i + 3] = d[i];
        }
    }

    /* 23 bits of mantissa under the exponent of 1 give [1, 2). */
    static inline float unit_interval(uint32_t bits) {
        union { uint32_t bits; float number; } value;
        value.bits = (bits & 0x7FFFFFu) | 0x3F800000u;
        return value.number - 1.0f;
    }

    /* TensorFlow calls both at once where there is such a function. */
    #if defined(__linux__)
    extern void sincosf(float, float*, float*);
    #else
    static inline void sincosf(float x, float* sine, float* cosine) {
        *sine = sinf(x);
        *cosine = cosf(x);
    }
    #endif

    /* G. E. P. Box, M. E. Muller, "A note on the generation of random normal deviates", 1958.
       Rounded where TensorFlow's kernel rounds, and by the same functions of the C library. */
    static inline void box_muller(const uint32_t* words, float* pair) {
        float uniform = unit_interval(words[0]);
        if (uniform < 1.0e-7f) uniform = 1.0e-7f;
        float angle = (float)(2 * 3.14159265358979323846 * unit_interval(words[1]));
        float radius = sqrtf(-2.0f * logf(uniform));
        sincosf(angle, &pair[0], &pair[1]);
        pair[0] *= radius;
        pair[1] *= radius;
    }
    """
    enum:
        NUM_BLOCKS
        NUM_WORDS
    void philox(
        uint32_t* words, uint64_t key, uint64_t low, uint64_t high, uint64_t stride
    ) noexcept nogil
    float unit_interval(uint32_t bits) noexcept nogil
    void box_muller(const uint32_t* words, float* pair) noexcept nogil

cdef enum:
    WORDS_OF_BLOCK = 4
    # So many blocks of the stream are TensorFlow's for four truncated numbers: it draws until it
    # has them.
    RESERVED_BLOCKS = 256

# Fills `left` numbers from where a stream of Philox is, which it leaves behind them.
ctypedef void (*Fill)(Stream* stream, float* numbers, int64_t left) noexcept nogil

cdef struct Stream:
    uint64_t key
    uint64_t low
    uint64_t high


cdef void* uniform(CallFrame* frame) noexcept nogil:
    """Fills its result with what TensorFlow's `StatelessRandomUniformV2` draws."""
    return answer(frame, fill_uniform)


cdef void* normal(CallFrame* frame) noexcept nogil:
    """Fills its result with what TensorFlow's `StatelessRandomNormalV2` draws."""
    return answer(frame, fill_normal)


cdef void* truncated_normal(CallFrame* frame) noexcept nogil:
    """Fills its result with what TensorFlow's `StatelessTruncatedNormalV2` draws."""
    return answer(frame, fill_truncated_normal)


cdef void* answer(CallFrame* frame, Fill fill) noexcept nogil:
    """A call whose arguments are a key and a counter of Philox; the numbers are float32."""
    if is_question(frame):
        return NULL
    cdef uint64_t* counter = <uint64_t*>frame.arguments.buffers[1].data
    cdef Stream stream = Stream(
        (<uint64_t*>frame.arguments.buffers[0].data)[0], counter[0], counter[1]
    )
    cdef Buffer* result = frame.results.buffers[0]
    cdef int64_t size = 1
    cdef int64_t i
    for i in range(result.rank):
        size *= result.dims[i]
    fill(&stream, <float*>result.data, size)
    return NULL


cdef inline void skip(Stream* stream, uint64_t num_blocks) noexcept nogil:
    stream.low += num_blocks
    stream.high += stream.low < num_blocks


cdef inline void draw(Stream* stream, uint32_t* words) noexcept nogil:
    philox(words, stream.key, stream.low, stream.high, 1)
    skip(stream, NUM_BLOCKS)


cdef void fill_uniform(Stream* stream, float* numbers, int64_t left) noexcept nogil:
    cdef uint32_t words[NUM_WORDS]
    cdef int64_t i
    while left > 0:
        draw(stream, words)
        for i in range(min(left, <int64_t>NUM_WORDS)):
            numbers[i] = unit_interval(words[i])
        numbers += NUM_WORDS
        left -= NUM_WORDS


cdef void fill_normal(Stream* stream, float* numbers, int64_t left) noexcept nogil:
    cdef uint32_t words[NUM_WORDS]
    cdef float pair[2]
    cdef int64_t i
    while left > 0:
        draw(stream, words)
        for i in range(0, min(left, <int64_t>NUM_WORDS), 2):
            box_muller(&words[i], pair)
            numbers[i] = pair[0]
            if i + 1 < left:
                numbers[i + 1] = pair[1]
        numbers += NUM_WORDS
        left -= NUM_WORDS


cdef void fill_truncated_normal(Stream* stream, float* numbers, int64_t left) noexcept nogil:
    """Leaves out numbers that are not nearer to 0 than 2.

    Four numbers come from the first of the blocks that are theirs, a few of them from the second,
    and hardly one from a third: the first blocks of many are drawn together, then the second.
    """
    cdef uint32_t words[NUM_WORDS]
    cdef int num_found[NUM_BLOCKS]
    cdef Stream following
    cdef int64_t block, num_wanted
    cdef bint again
    while left > 0:
        for block in range(NUM_BLOCKS):
            num_found[block] = 0
        following = stream[0]
        again = True
        while again:
            philox(words, following.key, following.low, following.high, RESERVED_BLOCKS)
            skip(&following, 1)
            again = False
            for block in range(NUM_BLOCKS):
                num_wanted = min(<int64_t>WORDS_OF_BLOCK, left - block * WORDS_OF_BLOCK)
                if num_found[block] < num_wanted:
                    num_found[block] = take_truncated(
                        &words[block * WORDS_OF_BLOCK],
                        &numbers[block * WORDS_OF_BLOCK],
                        num_found[block],
                        num_wanted,
                    )
                    again |= num_found[block] < num_wanted
        skip(stream, NUM_BLOCKS * RESERVED_BLOCKS)
        numbers += NUM_WORDS
        left -= NUM_WORDS


cdef inline int take_truncated(
    const uint32_t* words, float* numbers, int num_found, int64_t num_wanted
) noexcept nogil:
    """Takes what a block gives of the numbers that are wanted; returns how many there are then."""
    cdef float pair[2]
    cdef int i, k
    for i in range(0, WORDS_OF_BLOCK, 2):
        box_muller(&words[i], pair)
        for k in range(2):
            if num_found < num_wanted and -2 < pair[k] and pair[k] < 2:
                numbers[num_found] = pair[k]
                num_found += 1
    return num_found


# --- Registration -------------------------------------------------------------

def register(uintptr_t get_api, str name, str distribution):
    """Makes a function known to XLA, for as long as the process lives.

    It takes a key, `uint64[1]`, and a counter, `uint64[2]`, and has one float32 result, which
    it fills with what TensorFlow's kernel draws.

    Args:
        get_api: The address of `xla::ffi::GetXlaFfiApi`.
        name: What calls call.
        distribution: `"uniform"`, `"normal"` or `"truncated_normal"`.

    Raises:
        RuntimeError: XLA does not take it; the error has its text.
    """
    global taken_minor
    cdef Handler handler
    if distribution == "uniform":
        handler = uniform
    elif distribution == "normal":
        handler = normal
    else:
        assert distribution == "truncated_normal"
        handler = truncated_normal
    register_handler((<const Api* (*)() noexcept nogil>get_api)(), name, handler)


def abi_layout():
    """Where the structures that XLA hands over have what is read or written, in bytes."""
    cdef CallFrame* frame = NULL
    cdef Buffers* buffers = NULL
    cdef Buffer* buffer = NULL
    cdef MetadataExtension* extension = NULL
    cdef Metadata* metadata = NULL
    cdef Version* version = NULL
    cdef Registration* registration = NULL
    cdef NewError* created = NULL
    cdef ErrorMessage* message = NULL
    cdef Api* api = NULL
    return {
        "XLA_FFI_CallFrame": {
            "extension_start": <size_t>&frame.extension_start,
            "api": <size_t>&frame.api,
            "args": <size_t>&frame.arguments,
            "rets": <size_t>&frame.results,
        },
        "XLA_FFI_Args": {"args": <size_t>&buffers.buffers},
        "XLA_FFI_Rets": {"rets": <size_t>&buffers.buffers},
        "XLA_FFI_Buffer": {
            "dtype": <size_t>&buffer.dtype,
            "data": <size_t>&buffer.data,
            "rank": <size_t>&buffer.rank,
            "dims": <size_t>&buffer.dims,
        },
        "XLA_FFI_Metadata_Extension": {"metadata": <size_t>&extension.metadata},
        "XLA_FFI_Metadata": {"api_version": <size_t>&metadata.api_version},
        "XLA_FFI_Api_Version": {
            "major_version": <size_t>&version.major_version,
            "minor_version": <size_t>&version.minor_version,
        },
        "XLA_FFI_Handler_Register_Args": {
            "name": <size_t>&registration.name,
            "platform": <size_t>&registration.platform,
            "bundle": <size_t>&registration.instantiate,
            "traits": <size_t>&registration.traits,
        },
        "XLA_FFI_Error_Create_Args": {
            "message": <size_t>&created.message,
            "errc": <size_t>&created.code,
        },
        "XLA_FFI_Error_GetMessage_Args": {
            "message": <size_t>&message.message,
            "error": <size_t>&message.error,
        },
        "XLA_FFI_Api": {
            "api_version": <size_t>&api.version,
            "XLA_FFI_Error_Create": <size_t>&api.create_error,
            "XLA_FFI_Error_GetMessage": <size_t>&api.get_message,
            "XLA_FFI_Handler_Register": <size_t>&api.register_handler,
        },
    }
