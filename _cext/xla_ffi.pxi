# What units need whose functions XLA's programs call: the parts in use of XLA's C API, which
# TensorFlow has as `xla/ffi/api/c_api.h`. Included by the units; TensorFlow is not needed to build.

from libc.stdint cimport int64_t, uint32_t, uintptr_t

cdef enum:
    FFI_MAJOR = 0
    # TensorFlow 2.19 has 1, from 2.20 on it is 2; what is used here is the same in both.
    FFI_OLDEST_MINOR = 1
    FFI_MINOR = 2
    EXTENSION_METADATA = 1
    CODE_ABORTED = 10

cdef struct Extension:
    size_t struct_size
    int type
    Extension* next

cdef struct Version:
    size_t struct_size
    Extension* extension_start
    int major_version
    int minor_version

cdef struct Metadata:
    size_t struct_size
    Version api_version
    uint32_t traits
    int64_t state_type

cdef struct MetadataExtension:
    Extension base
    Metadata* metadata

cdef struct Buffer:
    size_t struct_size
    Extension* extension_start
    int dtype
    void* data
    int64_t rank
    int64_t* dims

# Both of the arguments and of the results.
cdef struct Buffers:
    size_t struct_size
    Extension* extension_start
    int64_t size
    int* types
    Buffer** buffers

cdef struct Api

# What follows is not read.
cdef struct CallFrame:
    size_t struct_size
    Extension* extension_start
    const Api* api
    void* context
    int stage
    Buffers arguments
    Buffers results

# Errors are XLA's; a null pointer is success.
ctypedef void* (*Handler)(CallFrame* frame) noexcept nogil

# The codes are TensorFlow's own.
cdef struct NewError:
    size_t struct_size
    Extension* extension_start
    const char* message
    int code

cdef struct ByteSpan:
    const char* start
    size_t size

cdef struct Registration:
    size_t struct_size
    Extension* extension_start
    ByteSpan name
    ByteSpan platform
    Handler instantiate
    Handler prepare
    Handler initialize
    Handler execute
    uint32_t traits

cdef struct ErrorMessage:
    size_t struct_size
    Extension* extension_start
    void* error
    const char* message

# What follows is not used.
cdef struct Api:
    size_t struct_size
    Extension* extension_start
    Version version
    const void* internal
    void* (*create_error)(NewError*) noexcept nogil
    void (*get_message)(ErrorMessage*) noexcept nogil
    const void* destroy_error
    void* (*register_handler)(Registration*) noexcept nogil


# Which version XLA takes; the question comes without the API that would say it. There is one XLA in
# a process, and it is written before that asks.
cdef int taken_minor = FFI_MINOR


cdef bint is_question(CallFrame* frame) noexcept nogil:
    """Answers XLA if it asks what a function is, instead of calling it."""
    cdef Extension* extension = frame.extension_start
    if extension == NULL or extension.type != EXTENSION_METADATA:
        return False
    cdef Version* version = &(<MetadataExtension*>extension).metadata.api_version
    version.major_version = FFI_MAJOR
    version.minor_version = taken_minor
    return True


cdef register_handler(const Api* api, str name, Handler handler):
    """Makes a function known to XLA, for as long as the process lives.

    Raises:
        RuntimeError: XLA does not take it; the error has its text.
    """
    global taken_minor
    if FFI_OLDEST_MINOR <= api.version.minor_version <= FFI_MINOR:
        taken_minor = api.version.minor_version
    cdef bytes encoded = name.encode()
    cdef Registration registration = Registration(
        sizeof(Registration),
        NULL,
        ByteSpan(encoded, len(encoded)),
        ByteSpan(b"Host", 4),
        NULL,
        NULL,
        NULL,
        handler,
        0,
    )
    cdef void* error = api.register_handler(&registration)
    cdef ErrorMessage message
    if error != NULL:
        message = ErrorMessage(sizeof(ErrorMessage), NULL, error, NULL)
        api.get_message(&message)
        raise RuntimeError(
            f"XLA of this TensorFlow does not take functions for its programs. Install a "
            f"version that ipu_keras supports. Received: {message.message.decode()}"
        )
