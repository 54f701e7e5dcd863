"""Kernels of TensorFlow's executor that round float32 to halves, and widen halves.

TensorFlow's own casts of halves are integer code, as its wheels are built for CPUs without an
instruction for it, and clipping and looking for infinities are passes of their own.
`ipu_keras.host.halves` says where the kernels are called.

TensorFlow is not needed to build it: what is used of its C API is looked up in the loaded
library by `ipu_keras._device`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uintptr_t
from libc.stddef cimport size_t

# --- Numbers -----------------------------------------------------------------

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>

    /* What becomes of a number that is too large for a half: the largest half; that, or NaN if
       it was infinite; NaN in either case; an infinity. */
    enum { SATURATED = 0, SATURATED_IF_FINITE = 1, NEVER_FINITE = 2, INFINITE = 3 };

    static inline uint32_t bits_of(float x) {
        uint32_t bits;
        memcpy(&bits, &x, 4);
        return bits;
    }

    static inline float float_of(uint32_t bits) {
        float x;
        memcpy(&x, &bits, 4);
        return x;
    }

    /* To the nearest half, of two as near to the even one; the bits of the instruction
       `vcvtps2ph`, of NaNs too. */
    static inline uint16_t nearest_half(float x) {
        uint32_t bits = bits_of(x), sign = bits & 0x80000000u, size = bits ^ sign;
        /* Larger than 2^15 times 2. */
        uint32_t special = size > 0x7F800000u ? 0x7E00u | ((size >> 13) & 0x3FFu) : 0x7C00u;
        /* Below 2^-14 halves lie as far apart as floats from 0.5 on. */
        uint32_t subnormal = bits_of(float_of(size) + 0.5f) - 0x3F000000u;
        uint32_t normal = (size - 0x38000000u + 0xFFFu + ((size >> 13) & 1u)) >> 13;
        uint32_t half = size >= 0x47800000u ? special : size < 0x38800000u ? subnormal : normal;
        return (uint16_t)(half | (sign >> 16));
    }

    static inline float widened(uint16_t half) {
        uint32_t sign = (uint32_t)(half & 0x8000u) << 16, size = half & 0x7FFFu;
        uint32_t special = 0x7F800000u | (size & 0x3FFu) << 13 | (size > 0x7C00u ? 0x400000u : 0u);
        uint32_t subnormal = bits_of((float)(int32_t)size * 0x1p-24f);
        uint32_t normal = (size << 13) + 0x38000000u;
        uint32_t bits = size >= 0x7C00u ? special : size < 0x400u ? subnormal : normal;
        return float_of(bits | sign);
    }

    static inline uint16_t limited(uint16_t half, float x, int overflow) {
        uint16_t sign = half & 0x8000u;
        int is_infinite = (half & 0x7FFFu) == 0x7C00u;
        int was_infinite = (bits_of(x) & 0x7FFFFFFFu) == 0x7F800000u;
        int is_nan = overflow == NEVER_FINITE || (overflow == SATURATED_IF_FINITE && was_infinite);
        uint16_t instead = is_nan ? 0x7E00u : sign | 0x7BFFu;
        return is_infinite && overflow != INFINITE ? instead : half;
    }

    static void round_plainly(const float* wide, uint16_t* halves, int64_t size, int overflow) {
        for (int64_t i = 0; i < size; i++)
            halves[i] = limited(nearest_half(wide[i]), wide[i], overflow);
    }

    /* Rounded, and kept as float32: `rounded` may be `wide`. */
    static void keep_plainly(const float* wide, float* rounded, int64_t size, int overflow) {
        for (int64_t i = 0; i < size; i++)
            rounded[i] = widened(limited(nearest_half(wide[i]), wide[i], overflow));
    }

    static void widen_plainly(const uint16_t* halves, float* wide, int64_t size) {
        for (int64_t i = 0; i < size; i++) wide[i] = widened(halves[i]);
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>
    #define WITH_INSTRUCTIONS __attribute__((target("avx2,f16c")))

    /* Of x86's CPUs of the last ten years nearly all have them. */
    static int has_instructions(void) {
        unsigned int a, b, c = 0, d;
        return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    }

    WITH_INSTRUCTIONS
    static void round_by_instructions(
        const float* wide, uint16_t* halves, int64_t size, int overflow
    ) {
        int64_t i = 0;
        const __m128i infinity = _mm_set1_epi16(0x7C00), sizes = _mm_set1_epi16(0x7FFF);
        for (; i + 8 <= size; i += 8) {
            __m256 x = _mm256_loadu_ps(wide + i);
            __m128i found = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
            __m128i is_infinite = _mm_cmpeq_epi16(_mm_and_si128(found, sizes), infinity);
            if (__builtin_expect(!_mm_testz_si128(is_infinite, is_infinite), 0))
                round_plainly(wide + i, halves + i, 8, overflow);
            else
                _mm_storeu_si128((__m128i*)(halves + i), found);
        }
        round_plainly(wide + i, halves + i, size - i, overflow);
    }

    WITH_INSTRUCTIONS
    static void widen_by_instructions(const uint16_t* halves, float* wide, int64_t size) {
        int64_t i = 0;
        for (; i + 8 <= size; i += 8)
            _mm256_storeu_ps(
                wide + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(halves + i)))
            );
        widen_plainly(halves + i, wide + i, size - i);
    }

    WITH_INSTRUCTIONS
    static void keep_by_instructions(
        const float* wide, float* rounded, int64_t size, int overflow
    ) {
        int64_t i = 0;
        const __m256i infinity = _mm256_set1_epi32(0x7F800000);
        const __m256i sizes = _mm256_set1_epi32(0x7FFFFFFF);
        for (; i + 8 <= size; i += 8) {
            __m256 x = _mm256_loadu_ps(wide + i);
            __m256 found = _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
            __m256i size_of = _mm256_and_si256(_mm256_castps_si256(found), sizes);
            __m256i is_infinite = _mm256_cmpeq_epi32(size_of, infinity);
            if (__builtin_expect(!_mm256_testz_si256(is_infinite, is_infinite), 0))
                keep_plainly(wide + i, rounded + i, 8, overflow);
            else
                _mm256_storeu_ps(rounded + i, found);
        }
        keep_plainly(wide + i, rounded + i, size - i, overflow);
    }

    #else
    static int has_instructions(void) { return 0; }
    #define keep_by_instructions keep_plainly
    #define round_by_instructions round_plainly
    #define widen_by_instructions widen_plainly
    #endif
    """
    enum:
        SATURATED
    void round_plainly(const float*, uint16_t*, int64_t, int) noexcept nogil
    void widen_plainly(const uint16_t*, float*, int64_t) noexcept nogil
    void keep_plainly(const float*, float*, int64_t, int) noexcept nogil
    int has_instructions() noexcept nogil
    void keep_by_instructions(const float*, float*, int64_t, int) noexcept nogil
    void round_by_instructions(const float*, uint16_t*, int64_t, int) noexcept nogil
    void widen_by_instructions(const uint16_t*, float*, int64_t) noexcept nogil


# Chosen once, when the module is imported.
cdef void (*round_halves)(const float*, uint16_t*, int64_t, int) noexcept nogil
cdef void (*keep_rounded)(const float*, float*, int64_t, int) noexcept nogil
cdef void (*widen_halves)(const uint16_t*, float*, int64_t) noexcept nogil
if has_instructions():
    round_halves, widen_halves = round_by_instructions, widen_by_instructions
    keep_rounded = keep_by_instructions
else:
    round_halves, widen_halves = round_plainly, widen_plainly
    keep_rounded = keep_plainly


def rounded(const float[::1] wide, uint16_t[::1] halves, int overflow, *, bint plainly):
    """Rounds numbers, as the kernel does, or `plainly` as it does on other CPUs.

    Args:
        wide: IN. Float32 numbers.
        halves: OUT. As many halves, as integers of 16 bits.
        overflow: What becomes of too large numbers: 0 is the largest half, 1 is that unless they
            are infinite and NaN if they are, 2 is NaN, 3 is infinite.
        plainly: Whether to use no instructions that only some CPUs have.
    """
    assert wide.shape[0] == halves.shape[0]
    if wide.shape[0] == 0:
        return
    with nogil:
        (round_plainly if plainly else round_halves)(&wide[0], &halves[0], wide.shape[0], overflow)


def widened(const uint16_t[::1] halves, float[::1] wide, *, bint plainly):
    """Widens halves, given as integers of 16 bits (IN), to float32 (OUT); see `rounded`."""
    assert wide.shape[0] == halves.shape[0]
    if wide.shape[0] == 0:
        return
    with nogil:
        (widen_plainly if plainly else widen_halves)(&halves[0], &wide[0], wide.shape[0])


# --- TensorFlow's C API -------------------------------------------------------

cdef enum:
    TF_OK = 0
    TF_FLOAT = 1
    TF_HALF = 19
    MOST_DIMENSIONS = 254  # of TensorFlow's shapes

cdef extern from *:
    """
    typedef struct Status Status;
    typedef struct Tensor Tensor;
    typedef struct Context Context;
    typedef struct Construction Construction;
    typedef struct KernelBuilder KernelBuilder;
    typedef struct OperationBuilder OperationBuilder;
    typedef struct ShapeContext ShapeContext;
    typedef struct ShapeHandle ShapeHandle;
    """
    ctypedef struct Status
    ctypedef struct Tensor
    ctypedef struct Context
    ctypedef struct Construction
    ctypedef struct KernelBuilder
    ctypedef struct OperationBuilder
    ctypedef struct ShapeContext
    ctypedef struct ShapeHandle

ctypedef void* (*Create)(Construction*) noexcept nogil
ctypedef void (*Compute)(void*, Context*) noexcept nogil
ctypedef void (*Delete)(void*) noexcept nogil
ctypedef void (*InferShape)(ShapeContext*, Status*) noexcept nogil

cdef struct TensorFlow:
    Status* (*TF_NewStatus)() noexcept nogil
    void (*TF_DeleteStatus)(Status*) noexcept nogil
    int (*TF_GetCode)(const Status*) noexcept nogil
    const char* (*TF_Message)(const Status*) noexcept nogil
    void (*TF_DeleteTensor)(Tensor*) noexcept nogil
    int (*TF_NumDims)(const Tensor*) noexcept nogil
    int64_t (*TF_Dim)(const Tensor*, int) noexcept nogil
    void* (*TF_TensorData)(const Tensor*) noexcept nogil
    int64_t (*TF_TensorElementCount)(const Tensor*) noexcept nogil
    void (*TF_GetInput)(Context*, int, Tensor**, Status*) noexcept nogil
    Tensor* (*TF_AllocateOutput)(
        Context*, int, int, const int64_t*, int, size_t, Status*) noexcept nogil
    Tensor* (*TF_ForwardInputOrAllocateOutput)(
        Context*, const int*, int, int, const int64_t*, int, int*, Status*) noexcept nogil
    void (*TF_OpKernelContext_Failure)(Context*, Status*) noexcept nogil
    void (*TF_OpKernelConstruction_Failure)(Construction*, Status*) noexcept nogil
    void (*TF_OpKernelConstruction_GetAttrInt32)(
        Construction*, const char*, int32_t*, Status*) noexcept nogil
    KernelBuilder* (*TF_NewKernelBuilder)(
        const char*, const char*, Create, Compute, Delete) noexcept nogil
    void (*TF_RegisterKernelBuilder)(const char*, KernelBuilder*, Status*) noexcept nogil
    OperationBuilder* (*TF_NewOpDefinitionBuilder)(const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderAddAttr)(OperationBuilder*, const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderAddInput)(OperationBuilder*, const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderAddOutput)(OperationBuilder*, const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderSetShapeInferenceFunction)(
        OperationBuilder*, InferShape) noexcept nogil
    void (*TF_RegisterOpDefinition)(OperationBuilder*, Status*) noexcept nogil
    ShapeHandle* (*TF_NewShapeHandle)() noexcept nogil
    void (*TF_DeleteShapeHandle)(ShapeHandle*) noexcept nogil
    void (*TF_ShapeInferenceContextGetInput)(
        ShapeContext*, int, ShapeHandle*, Status*) noexcept nogil
    void (*TF_ShapeInferenceContextSetOutput)(
        ShapeContext*, int, ShapeHandle*, Status*) noexcept nogil

cdef TensorFlow tf


cdef void same_shape(ShapeContext* context, Status* status) noexcept nogil:
    cdef ShapeHandle* shape = tf.TF_NewShapeHandle()
    tf.TF_ShapeInferenceContextGetInput(context, 0, shape, status)
    if tf.TF_GetCode(status) == TF_OK:
        tf.TF_ShapeInferenceContextSetOutput(context, 0, shape, status)
    tf.TF_DeleteShapeHandle(shape)


cdef void* create_rounding(Construction* construction) noexcept nogil:
    """What becomes of overflows is the state of a kernel, in place of a pointer to it."""
    cdef Status* status = tf.TF_NewStatus()
    cdef int32_t overflow = SATURATED
    tf.TF_OpKernelConstruction_GetAttrInt32(construction, b"overflow", &overflow, status)
    if tf.TF_GetCode(status) != TF_OK:
        tf.TF_OpKernelConstruction_Failure(construction, status)
    tf.TF_DeleteStatus(status)
    return <void*><uintptr_t>overflow


cdef void compute_rounding(void* state, Context* context) noexcept nogil:
    cdef Tensor* wide = NULL
    cdef Tensor* halves = NULL
    if begin(context, &wide, TF_HALF, sizeof(uint16_t), &halves):
        round_halves(
            <const float*>tf.TF_TensorData(wide),
            <uint16_t*>tf.TF_TensorData(halves),
            tf.TF_TensorElementCount(wide),
            <int><uintptr_t>state,
        )
    end(wide, halves)


cdef void compute_keeping(void* state, Context* context) noexcept nogil:
    cdef Tensor* wide = NULL
    cdef Tensor* rounded = NULL
    if begin(context, &wide, TF_FLOAT, 0, &rounded):
        keep_rounded(
            <const float*>tf.TF_TensorData(wide),
            <float*>tf.TF_TensorData(rounded),
            tf.TF_TensorElementCount(wide),
            <int><uintptr_t>state,
        )
    end(wide, rounded)


cdef void compute_widening(void* state, Context* context) noexcept nogil:
    cdef Tensor* halves = NULL
    cdef Tensor* wide = NULL
    if begin(context, &halves, TF_FLOAT, sizeof(float), &wide):
        widen_halves(
            <const uint16_t*>tf.TF_TensorData(halves),
            <float*>tf.TF_TensorData(wide),
            tf.TF_TensorElementCount(halves),
        )
    end(halves, wide)


cdef bint begin(
    Context* context, Tensor** given, int dtype, size_t size_of_one, Tensor** result
) noexcept nogil:
    """Takes a kernel's input and allocates an output of its shape; says whether that went well.

    Without a `size_of_one`, the output is the input itself if nothing else needs that.
    """
    cdef Status* status = tf.TF_NewStatus()
    cdef int64_t shape[MOST_DIMENSIONS]
    cdef int num_dimensions, k
    cdef bint is_well
    tf.TF_GetInput(context, 0, given, status)
    if tf.TF_GetCode(status) == TF_OK:
        num_dimensions = tf.TF_NumDims(given[0])
        for k in range(num_dimensions):
            shape[k] = tf.TF_Dim(given[0], k)
        if size_of_one:
            result[0] = tf.TF_AllocateOutput(
                context,
                0,
                dtype,
                shape,
                num_dimensions,
                size_of_one * tf.TF_TensorElementCount(given[0]),
                status,
            )
        else:
            result[0] = allocate_or_forward(context, given, shape, num_dimensions, status)
    is_well = tf.TF_GetCode(status) == TF_OK
    if not is_well:
        tf.TF_OpKernelContext_Failure(context, status)
    tf.TF_DeleteStatus(status)
    return is_well


cdef Tensor* allocate_or_forward(
    Context* context, Tensor** given, const int64_t* shape, int num_dimensions, Status* status
) noexcept nogil:
    cdef int position = 0
    cdef int forwarded = -1
    cdef Tensor* result
    # TensorFlow counts the references to an input, and this is one.
    tf.TF_DeleteTensor(given[0])
    given[0] = NULL
    result = tf.TF_ForwardInputOrAllocateOutput(
        context, &position, 1, 0, shape, num_dimensions, &forwarded, status
    )
    if tf.TF_GetCode(status) == TF_OK:
        tf.TF_GetInput(context, 0, given, status)
    return result


cdef void end(Tensor* given, Tensor* result) noexcept nogil:
    if given != NULL:
        tf.TF_DeleteTensor(given)
    if result != NULL:
        tf.TF_DeleteTensor(result)


def register(address_of) -> None:
    """Makes the operations `IpuRound`, `IpuRoundWide` and `IpuWiden` known to TensorFlow, once in a process.

    Args:
        address_of: Returns the address of a function of the loaded TensorFlow, by its name.
    """
    find_tensorflow(address_of)
    cdef OperationBuilder* builder = tf.TF_NewOpDefinitionBuilder(b"IpuRound")
    tf.TF_OpDefinitionBuilderAddInput(builder, b"wide: float")
    tf.TF_OpDefinitionBuilderAddOutput(builder, b"halves: half")
    tf.TF_OpDefinitionBuilderAddAttr(builder, b"overflow: int")
    define(builder)
    add_kernel(b"IpuRound", create_rounding, compute_rounding)
    builder = tf.TF_NewOpDefinitionBuilder(b"IpuRoundWide")
    tf.TF_OpDefinitionBuilderAddInput(builder, b"wide: float")
    tf.TF_OpDefinitionBuilderAddOutput(builder, b"rounded: float")
    tf.TF_OpDefinitionBuilderAddAttr(builder, b"overflow: int")
    define(builder)
    add_kernel(b"IpuRoundWide", create_rounding, compute_keeping)
    builder = tf.TF_NewOpDefinitionBuilder(b"IpuWiden")
    tf.TF_OpDefinitionBuilderAddInput(builder, b"halves: half")
    tf.TF_OpDefinitionBuilderAddOutput(builder, b"wide: float")
    define(builder)
    add_kernel(b"IpuWiden", NULL, compute_widening)


cdef int define(OperationBuilder* builder) except -1:
    cdef Status* status = tf.TF_NewStatus()
    tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, same_shape)
    tf.TF_RegisterOpDefinition(builder, status)
    return finish(status)


cdef int add_kernel(const char* name, Create create, Compute compute) except -1:
    cdef Status* status = tf.TF_NewStatus()
    cdef KernelBuilder* builder = tf.TF_NewKernelBuilder(
        name, b"CPU", create, compute, NULL
    )
    tf.TF_RegisterKernelBuilder(name, builder, status)
    return finish(status)


cdef int finish(Status* status) except -1:
    cdef bytes message = tf.TF_Message(status)
    cdef bint is_well = tf.TF_GetCode(status) == TF_OK
    tf.TF_DeleteStatus(status)
    if not is_well:
        raise RuntimeError(
            "TensorFlow does not take the operations that round halves. Install a version that "
            f"ipu_keras supports. Received: {message.decode()}"
        )
    return 0


cdef int find(void** function, address_of, str name) except -1:
    function[0] = <void*><uintptr_t>address_of(name)
    return 0


cdef int find_tensorflow(address_of) except -1:
    find(<void**>&tf.TF_NewStatus, address_of, "TF_NewStatus")
    find(<void**>&tf.TF_DeleteStatus, address_of, "TF_DeleteStatus")
    find(<void**>&tf.TF_GetCode, address_of, "TF_GetCode")
    find(<void**>&tf.TF_Message, address_of, "TF_Message")
    find(<void**>&tf.TF_DeleteTensor, address_of, "TF_DeleteTensor")
    find(<void**>&tf.TF_NumDims, address_of, "TF_NumDims")
    find(<void**>&tf.TF_Dim, address_of, "TF_Dim")
    find(<void**>&tf.TF_TensorData, address_of, "TF_TensorData")
    find(<void**>&tf.TF_TensorElementCount, address_of, "TF_TensorElementCount")
    find(<void**>&tf.TF_GetInput, address_of, "TF_GetInput")
    find(<void**>&tf.TF_AllocateOutput, address_of, "TF_AllocateOutput")
    find(
        <void**>&tf.TF_ForwardInputOrAllocateOutput, address_of, "TF_ForwardInputOrAllocateOutput"
    )
    find(<void**>&tf.TF_OpKernelContext_Failure, address_of, "TF_OpKernelContext_Failure")
    find(<void**>&tf.TF_OpKernelConstruction_Failure, address_of, "TF_OpKernelConstruction_Failure")
    find(<void**>&tf.TF_OpKernelConstruction_GetAttrInt32, address_of, "TF_OpKernelConstruction_GetAttrInt32")
    find(<void**>&tf.TF_NewKernelBuilder, address_of, "TF_NewKernelBuilder")
    find(<void**>&tf.TF_RegisterKernelBuilder, address_of, "TF_RegisterKernelBuilder")
    find(<void**>&tf.TF_NewOpDefinitionBuilder, address_of, "TF_NewOpDefinitionBuilder")
    find(<void**>&tf.TF_OpDefinitionBuilderAddAttr, address_of, "TF_OpDefinitionBuilderAddAttr")
    find(<void**>&tf.TF_OpDefinitionBuilderAddInput, address_of, "TF_OpDefinitionBuilderAddInput")
    find(<void**>&tf.TF_OpDefinitionBuilderAddOutput, address_of, "TF_OpDefinitionBuilderAddOutput")
    find(<void**>&tf.TF_OpDefinitionBuilderSetShapeInferenceFunction, address_of, "TF_OpDefinitionBuilderSetShapeInferenceFunction")
    find(<void**>&tf.TF_RegisterOpDefinition, address_of, "TF_RegisterOpDefinition")
    find(<void**>&tf.TF_NewShapeHandle, address_of, "TF_NewShapeHandle")
    find(<void**>&tf.TF_DeleteShapeHandle, address_of, "TF_DeleteShapeHandle")
    find(<void**>&tf.TF_ShapeInferenceContextGetInput, address_of, "TF_ShapeInferenceContextGetInput")
    find(<void**>&tf.TF_ShapeInferenceContextSetOutput, address_of, "TF_ShapeInferenceContextSetOutput")
    return 0
