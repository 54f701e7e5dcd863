"""Computes what halves are on an IPU, and watches for exceptions, within programs.

Kernels of TensorFlow's executor do so, and functions that XLA's programs call, which give the same
bits. The included files have what both do.

TensorFlow's own casts of halves are integer code, as its wheels are built for CPUs without an
instruction for it, and clipping and looking for infinities are passes of their own.
`ipu_keras.host.halves` says where the kernels are called.

TensorFlow is not needed to build it: what is used of its C API is looked up in the loaded
library by `ipu_keras._device`.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t, uintptr_t
from libc.stddef cimport size_t

include "xla_ffi.pxi"
include "rounding.pxi"
include "partial_sums.pxi"
include "exceptions.pxi"

# --- TensorFlow's C API -------------------------------------------------------

cdef enum:
    TF_OK = 0
    TF_RESOURCE_EXHAUSTED = 8
    TF_FLOAT = 1
    TF_INT64 = 9
    TF_HALF = 19
    MOST_DIMENSIONS = 254  # of TensorFlow's shapes
    # Images, filters, geometry, key and the operation's own number.
    INPUTS_OF_PARTIAL_SUMS = 5
    # XLA's own numbers of types.
    XLA_F16 = 10
    XLA_F32 = 11
    BYTES_OF_LINE = 64  # of a cache

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
    size_t (*TF_TensorByteSize)(const Tensor*) noexcept nogil
    int (*TF_NumInputs)(Context*) noexcept nogil
    void (*TF_GetInput)(Context*, int, Tensor**, Status*) noexcept nogil
    Tensor* (*TF_AllocateOutput)(
        Context*, int, int, const int64_t*, int, size_t, Status*) noexcept nogil
    Tensor* (*TF_ForwardInputOrAllocateOutput)(
        Context*, const int*, int, int, const int64_t*, int, int*, Status*) noexcept nogil
    void (*TF_OpKernelContext_Failure)(Context*, Status*) noexcept nogil
    void (*TF_OpKernelConstruction_Failure)(Construction*, Status*) noexcept nogil
    void (*TF_OpKernelConstruction_GetAttrInt32)(
        Construction*, const char*, int32_t*, Status*) noexcept nogil
    void (*TF_OpKernelConstruction_GetAttrInt64)(
        Construction*, const char*, int64_t*, Status*) noexcept nogil
    KernelBuilder* (*TF_NewKernelBuilder)(
        const char*, const char*, Create, Compute, Delete) noexcept nogil
    void (*TF_RegisterKernelBuilder)(const char*, KernelBuilder*, Status*) noexcept nogil
    OperationBuilder* (*TF_NewOpDefinitionBuilder)(const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderAddAttr)(OperationBuilder*, const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderAddInput)(OperationBuilder*, const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderAddOutput)(OperationBuilder*, const char*) noexcept nogil
    void (*TF_OpDefinitionBuilderSetShapeInferenceFunction)(
        OperationBuilder*, InferShape) noexcept nogil
    void (*TF_OpDefinitionBuilderSetIsStateful)(OperationBuilder*, bint) noexcept nogil
    void (*TF_RegisterOpDefinition)(OperationBuilder*, Status*) noexcept nogil
    ShapeHandle* (*TF_NewShapeHandle)() noexcept nogil
    void (*TF_DeleteShapeHandle)(ShapeHandle*) noexcept nogil
    void (*TF_ShapeInferenceContextGetInput)(
        ShapeContext*, int, ShapeHandle*, Status*) noexcept nogil
    void (*TF_ShapeInferenceContextSetOutput)(
        ShapeContext*, int, ShapeHandle*, Status*) noexcept nogil
    ShapeHandle* (*TF_ShapeInferenceContextScalar)(ShapeContext*) noexcept nogil
    void (*TF_ShapeInferenceContextSetUnknownShape)(ShapeContext*, Status*) noexcept nogil
    void (*TF_SetStatus)(Status*, int, const char*) noexcept nogil

cdef TensorFlow tf


cdef void same_shape(ShapeContext* context, Status* status) noexcept nogil:
    cdef ShapeHandle* shape = tf.TF_NewShapeHandle()
    tf.TF_ShapeInferenceContextGetInput(context, 0, shape, status)
    if tf.TF_GetCode(status) == TF_OK:
        tf.TF_ShapeInferenceContextSetOutput(context, 0, shape, status)
    tf.TF_DeleteShapeHandle(shape)


cdef void scalar_shape(ShapeContext* context, Status* status) noexcept nogil:
    cdef ShapeHandle* shape = tf.TF_ShapeInferenceContextScalar(context)
    tf.TF_ShapeInferenceContextSetOutput(context, 0, shape, status)
    tf.TF_DeleteShapeHandle(shape)


cdef void no_shape(ShapeContext* context, Status* status) noexcept nogil:
    """What gives nothing has no shapes."""


cdef void* create_from(Construction* construction, const char* attribute) noexcept nogil:
    """A number that the operation has as attribute is the state of a kernel, as a pointer."""
    cdef Status* status = tf.TF_NewStatus()
    cdef int64_t number = 0
    tf.TF_OpKernelConstruction_GetAttrInt64(construction, attribute, &number, status)
    if tf.TF_GetCode(status) != TF_OK:
        tf.TF_OpKernelConstruction_Failure(construction, status)
    tf.TF_DeleteStatus(status)
    return <void*><uintptr_t>number


cdef void* create_random_rounding(Construction* construction) noexcept nogil:
    return create_from(construction, b"own")


cdef void* create_keys(Construction* construction) noexcept nogil:
    return create_from(construction, b"stream")


cdef void* create_noting(Construction* construction) noexcept nogil:
    return create_from(construction, b"flag")


cdef void compute_noting(void* state, Context* context) noexcept nogil:
    cdef Tensor* given = NULL
    cdef int64_t size
    cdef int k
    for k in range(tf.TF_NumInputs(context)):
        if not later_input(context, k, &given):
            return
        size = tf.TF_TensorElementCount(given)
        if size:
            note_not_finite(
                tf.TF_TensorData(given), size, tf.TF_TensorByteSize(given) // size, <int64_t*>state
            )
        tf.TF_DeleteTensor(given)


cdef void* create_keeping(Construction* construction) noexcept nogil:
    return create_from(construction, b"memory")


cdef void compute_keeping_values(void* state, Context* context) noexcept nogil:
    cdef Tensor* given = NULL
    cdef char* memory = <char*>state
    cdef size_t size
    cdef int k
    for k in range(tf.TF_NumInputs(context)):
        if not later_input(context, k, &given):
            return
        size = tf.TF_TensorByteSize(given)
        memcpy(memory, tf.TF_TensorData(given), size)
        memory += size_with_padding(size)
        tf.TF_DeleteTensor(given)


cdef void compute_random_rounding(void* state, Context* context) noexcept nogil:
    cdef Tensor* wide = NULL
    cdef Tensor* rounded = NULL
    cdef Tensor* key = NULL
    if later_input(context, 1, &key):
        if begin(context, &wide, TF_FLOAT, 0, &rounded):
            round_randomly(
                <const float*>tf.TF_TensorData(wide),
                <float*>tf.TF_TensorData(rounded),
                NULL,
                tf.TF_TensorElementCount(wide),
                (<const uint64_t*>tf.TF_TensorData(key))[0],
                <uint64_t><uintptr_t>state,
                round_halves,
            )
        end(wide, rounded)
        tf.TF_DeleteTensor(key)


cdef bint later_input(Context* context, int k, Tensor** given) noexcept nogil:
    cdef Status* status = tf.TF_NewStatus()
    tf.TF_GetInput(context, k, given, status)
    cdef bint is_well = tf.TF_GetCode(status) == TF_OK
    if not is_well:
        tf.TF_OpKernelContext_Failure(context, status)
    tf.TF_DeleteStatus(status)
    return is_well


cdef void compute_key(void* state, Context* context) noexcept nogil:
    cdef Status* status = tf.TF_NewStatus()
    cdef Tensor* key = tf.TF_AllocateOutput(
        context, 0, TF_INT64, NULL, 0, sizeof(uint64_t), status
    )
    if tf.TF_GetCode(status) == TF_OK:
        (<uint64_t*>tf.TF_TensorData(key))[0] = next_key(<KeyStream*>state)
        tf.TF_DeleteTensor(key)
    else:
        tf.TF_OpKernelContext_Failure(context, status)
    tf.TF_DeleteStatus(status)


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


cdef void unknown_shape(ShapeContext* context, Status* status) noexcept nogil:
    tf.TF_ShapeInferenceContextSetUnknownShape(context, status)


cdef void compute_partial_sums(void* state, Context* context) noexcept nogil:
    cdef Tensor* given[INPUTS_OF_PARTIAL_SUMS]
    cdef bint is_well = True
    cdef int k
    for k in range(INPUTS_OF_PARTIAL_SUMS):
        given[k] = NULL
        is_well = is_well and later_input(context, k, &given[k])
    if is_well:
        compute_results(context, given)
    for k in range(INPUTS_OF_PARTIAL_SUMS):
        if given[k] != NULL:
            tf.TF_DeleteTensor(given[k])


cdef void compute_results(Context* context, Tensor** given) noexcept nogil:
    cdef Status* status = tf.TF_NewStatus()
    cdef int64_t images[RANK_OF_IMAGES]
    cdef int64_t filters[RANK_OF_IMAGES]
    cdef int64_t shape[RANK_OF_IMAGES]
    cdef const int64_t* geometry = <const int64_t*>tf.TF_TensorData(given[2])
    cdef int64_t size = 1
    cdef int k
    for k in range(RANK_OF_IMAGES):
        images[k], filters[k] = tf.TF_Dim(given[0], k), tf.TF_Dim(given[1], k)
        shape[k] = images[k] if k < 2 else geometry[k - 2]
    shape[RANK_OF_IMAGES - 1] = filters[RANK_OF_IMAGES - 1]
    for k in range(RANK_OF_IMAGES):
        size *= shape[k]
    cdef Tensor* results = tf.TF_AllocateOutput(
        context, 0, TF_FLOAT, shape, RANK_OF_IMAGES, sizeof(float) * size, status
    )
    cdef Convolution convolution = convolution_of(images, filters, geometry)
    cdef PartialRounding rounding = partial_rounding(
        (<const uint64_t*>tf.TF_TensorData(given[3]))[0],
        (<const uint64_t*>tf.TF_TensorData(given[4]))[0],
    )
    if tf.TF_GetCode(status) == TF_OK:
        if not add_in_passes(
            &convolution,
            &rounding,
            <const float*>tf.TF_TensorData(given[0]),
            <const float*>tf.TF_TensorData(given[1]),
            <float*>tf.TF_TensorData(results),
        ):
            tf.TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, b"No memory to add up partial sums.")
        tf.TF_DeleteTensor(results)
    if tf.TF_GetCode(status) != TF_OK:
        tf.TF_OpKernelContext_Failure(context, status)
    tf.TF_DeleteStatus(status)


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
    """Makes `IpuRound` and the other operations of halves known to TensorFlow, once in a process.

    Args:
        address_of: Returns the address of a function of the loaded TensorFlow, by its name.
    """
    find_tensorflow(address_of)
    define(b"IpuRound", [b"wide: float"], b"halves: half", b"overflow: int", same_shape)
    add_kernel(b"IpuRound", create_rounding, compute_rounding)
    define(b"IpuRoundWide", [b"wide: float"], b"rounded: float", b"overflow: int", same_shape)
    add_kernel(b"IpuRoundWide", create_rounding, compute_keeping)
    define(b"IpuWiden", [b"halves: half"], b"wide: float", None, same_shape)
    add_kernel(b"IpuWiden", NULL, compute_widening)
    define(
        b"IpuRoundRandomly",
        [b"wide: float", b"key: int64"],
        b"rounded: float",
        b"own: int",
        same_shape,
    )
    add_kernel(b"IpuRoundRandomly", create_random_rounding, compute_random_rounding)
    define(b"IpuRoundingKey", [], b"key: int64", b"stream: int", scalar_shape)
    add_kernel(b"IpuRoundingKey", create_keys, compute_key)
    inputs = [
        b"images: float", b"filters: float", b"geometry: int64", b"key: int64", b"own: int64"
    ]
    define(b"IpuPartialSums", inputs, b"sums: float", None, unknown_shape)
    add_kernel(b"IpuPartialSums", NULL, compute_partial_sums)
    types = b"T: list({half, float, double})"
    define(b"IpuNoteNotFinite", [b"numbers: T"], None, b"flag: int", no_shape, types)
    add_kernel(b"IpuNoteNotFinite", create_noting, compute_noting)
    define(b"IpuKeep", [b"values: T"], None, b"memory: int", no_shape, b"T: list(type)")
    add_kernel(b"IpuKeep", create_keeping, compute_keeping_values)


cdef int define(
    bytes name,
    list inputs,
    bytes output,
    bytes attribute,
    InferShape shape,
    bytes types=None,
) except -1:
    """Defines an operation.

    What takes no inputs gives a number that is another each time, and what gives nothing writes.
    """
    cdef Status* status = tf.TF_NewStatus()
    cdef OperationBuilder* builder = tf.TF_NewOpDefinitionBuilder(name)
    for each in inputs:
        tf.TF_OpDefinitionBuilderAddInput(builder, each)
    if output is not None:
        tf.TF_OpDefinitionBuilderAddOutput(builder, output)
    for each in (attribute, types):
        if each is not None:
            tf.TF_OpDefinitionBuilderAddAttr(builder, each)
    tf.TF_OpDefinitionBuilderSetIsStateful(builder, not inputs or output is None)
    tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shape)
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
            "TensorFlow does not take the operations that round halves and look for infinities. Install a version that "
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
    find(<void**>&tf.TF_TensorByteSize, address_of, "TF_TensorByteSize")
    find(<void**>&tf.TF_NumInputs, address_of, "TF_NumInputs")
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
    find(
        <void**>&tf.TF_OpKernelConstruction_GetAttrInt64,
        address_of,
        "TF_OpKernelConstruction_GetAttrInt64",
    )
    find(
        <void**>&tf.TF_OpDefinitionBuilderSetIsStateful,
        address_of,
        "TF_OpDefinitionBuilderSetIsStateful",
    )
    find(
        <void**>&tf.TF_ShapeInferenceContextScalar, address_of, "TF_ShapeInferenceContextScalar"
    )
    find(
        <void**>&tf.TF_ShapeInferenceContextSetUnknownShape,
        address_of,
        "TF_ShapeInferenceContextSetUnknownShape",
    )
    find(<void**>&tf.TF_SetStatus, address_of, "TF_SetStatus")
    return 0


# --- XLA's programs -----------------------------------------------------------

cdef void* round_in_xla(CallFrame* frame) noexcept nogil:
    """Takes float32, a key and the operation's own number; gives halves."""
    if is_question(frame):
        return NULL
    cdef Buffer* result = frame.results.buffers[0]
    cdef int64_t size = 1
    cdef int64_t i
    for i in range(result.rank):
        size *= result.dims[i]
    round_randomly(
        <const float*>frame.arguments.buffers[0].data,
        NULL,
        <uint16_t*>result.data,
        size,
        (<uint64_t*>frame.arguments.buffers[1].data)[0],
        (<uint64_t*>frame.arguments.buffers[2].data)[0],
        round_halves,
    )
    return NULL


cdef void* key_in_xla(CallFrame* frame) noexcept nogil:
    """Takes the address of a stream of keys; gives the next one."""
    if is_question(frame):
        return NULL
    cdef KeyStream* stream = (<KeyStream**>frame.arguments.buffers[0].data)[0]
    (<uint64_t*>frame.results.buffers[0].data)[0] = next_key(stream)
    return NULL


cdef void* add_in_xla(CallFrame* frame) noexcept nogil:
    """Takes what the kernel of `IpuPartialSums` takes; gives its results as float32."""
    if is_question(frame):
        return NULL
    cdef Buffer** given = frame.arguments.buffers
    cdef Convolution convolution = convolution_of(
        given[0].dims, given[1].dims, <const int64_t*>given[2].data
    )
    cdef PartialRounding rounding = partial_rounding(
        (<const uint64_t*>given[3].data)[0], (<const uint64_t*>given[4].data)[0]
    )
    cdef NewError error
    if not add_in_passes(
        &convolution,
        &rounding,
        <const float*>given[0].data,
        <const float*>given[1].data,
        <float*>frame.results.buffers[0].data,
    ):
        error = NewError(
            sizeof(NewError), NULL, b"No memory to add up partial sums.", TF_RESOURCE_EXHAUSTED
        )
        return frame.api.create_error(&error)
    return NULL


cdef void* note_in_xla(CallFrame* frame) noexcept nogil:
    """Takes vectors of numbers and the address of a flag, which is what it gives, too."""
    if is_question(frame):
        return NULL
    cdef int64_t last = frame.arguments.size - 1
    cdef int64_t* flag = (<int64_t**>frame.arguments.buffers[last].data)[0]
    cdef Buffer* given
    cdef int64_t k
    for k in range(last):
        given = frame.arguments.buffers[k]
        note_not_finite(
            given.data,
            given.dims[0],
            2 if given.dtype == XLA_F16 else 4 if given.dtype == XLA_F32 else 8,
            flag,
        )
    (<int64_t**>frame.results.buffers[0].data)[0] = flag
    return NULL


cdef void* keep_in_xla(CallFrame* frame) noexcept nogil:
    """Takes vectors, their sizes in bytes, and the address of memory, which it gives, too."""
    if is_question(frame):
        return NULL
    cdef int64_t last = frame.arguments.size - 1
    cdef char* memory = (<char**>frame.arguments.buffers[last].data)[0]
    cdef const int64_t* sizes = <const int64_t*>frame.arguments.buffers[last - 1].data
    cdef int64_t k
    (<char**>frame.results.buffers[0].data)[0] = memory
    for k in range(last - 1):
        memcpy(memory, frame.arguments.buffers[k].data, sizes[k])
        memory += size_with_padding(sizes[k])
    return NULL


def register_in_xla(uintptr_t get_api, str rounding, str key, str partial_sums, str noting, str keeping):
    """Makes five functions known to XLA, by these names, for as long as the process lives.

    Args:
        get_api: The address of `xla::ffi::GetXlaFfiApi`.
        rounding: Takes `float32[n]`, `int64[]` of a key, and `int64[]` of `own_number`; has one
            result, `float16[n]`.
        key: Takes `int64[]` with the address of `RoundingKeys`; has one result, `int64[]`.
        partial_sums: Takes what the function `partial_sums` takes, key and own number as `int64[]`,
            and any further arguments; has one result, that function's.
        noting: Takes any number of `float16[n]`, `float32[n]` or `float64[n]`, and `int64[]` with
            the address of a `NotFiniteFlag`; has one result, that address.
        keeping: Takes any number of vectors, their sizes in bytes, `int64[number]`, and `int64[]`
            with the address of the memory for them; has one result, that address.

    Raises:
        RuntimeError: XLA does not take them; the error has its text.
    """
    cdef const Api* api = (<const Api* (*)() noexcept nogil>get_api)()
    register_handler(api, rounding, round_in_xla)
    register_handler(api, key, key_in_xla)
    register_handler(api, partial_sums, add_in_xla)
    register_handler(api, noting, note_in_xla)
    register_handler(api, keeping, keep_in_xla)
