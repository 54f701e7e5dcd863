"""TensorFlow's custom-device C API, as an IPU device that computes on the host.

This unit owns the callbacks that TensorFlow invokes for every op, copy and
tensor of one `/device:IPU:k`, the memory behind them, and the counters. Which
devices exist and what they are called is decided in `ipu_keras.device`.

TensorFlow is not needed to build it: the parts of
`tensorflow/c/eager/c_api_experimental.h` in use are declared below (unchanged
between TensorFlow 2.16 and 2.21) and looked up in the loaded library.
"""

import os

import tensorflow

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strcmp, strlen, strncmp


cdef extern from "stdbool.h":
    ctypedef bint c_bool "bool"


cdef extern from "dlfcn.h" nogil:
    const int RTLD_NOW
    const int RTLD_NOLOAD
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* symbol)


cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)


cdef extern from *:
    """
    #include <stdint.h>

    /* Counters order nothing, they only must not lose an increment: relaxed. */
    static inline void atomic_add(int64_t* counter, int64_t amount) {
        __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
    }
    static inline int64_t atomic_read(const int64_t* counter) {
        return __atomic_load_n(counter, __ATOMIC_RELAXED);
    }
    static inline void atomic_write(int64_t* counter, int64_t value) {
        __atomic_store_n(counter, value, __ATOMIC_RELAXED);
    }
    /* Publishing a node makes everything written to it before visible too. */
    static inline void* atomic_take(void* const* slot) {
        return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    }
    static inline void atomic_publish(void** slot, void* node) {
        __atomic_store_n(slot, node, __ATOMIC_RELEASE);
    }
    """
    void atomic_add(int64_t* counter, int64_t amount) noexcept nogil
    int64_t atomic_read(const int64_t* counter) noexcept nogil
    void atomic_write(int64_t* counter, int64_t value) noexcept nogil
    void* atomic_take(void** slot) noexcept nogil
    void atomic_publish(void** slot, void* node) noexcept nogil


# --- TensorFlow's C API -------------------------------------------------------

cdef extern from *:
    """
    typedef struct TF_Status TF_Status;
    typedef struct TF_Buffer {
        const void* data;
        size_t length;
        void (*data_deallocator)(void* data, size_t length);
    } TF_Buffer;
    typedef struct TFE_Context TFE_Context;
    typedef struct TFE_Op TFE_Op;
    typedef struct TFE_OpAttrs TFE_OpAttrs;
    typedef struct TFE_TensorHandle TFE_TensorHandle;
    """
    ctypedef struct TF_Status
    ctypedef struct TF_Buffer:
        const void* data
        size_t length
    ctypedef struct TFE_Context
    ctypedef struct TFE_Op
    ctypedef struct TFE_OpAttrs
    ctypedef struct TFE_TensorHandle

cdef enum:
    TF_OK = 0
    TF_INVALID_ARGUMENT = 3
    TF_FAILED_PRECONDITION = 9
    TF_UNIMPLEMENTED = 12
    TF_INTERNAL = 13
    TF_HALF = 19
    TF_RESOURCE = 20
    TF_VARIANT = 21
    TFE_CUSTOM_DEVICE_VERSION = 4

# Passed to TensorFlow by value, so size and order of the fields are the ABI.
cdef struct TFE_CustomDevice:
    int version
    TFE_TensorHandle* (*copy_tensor_to_device)(
        TFE_Context*, TFE_TensorHandle*, TF_Status*, void*) noexcept nogil
    TFE_TensorHandle* (*copy_tensor_from_device)(
        TFE_Context*, TFE_TensorHandle*, const char*, TF_Status*, void*) noexcept nogil
    void (*execute)(
        const TFE_Op*, int*, TFE_TensorHandle**, TF_Status*, void*) noexcept nogil
    void (*delete_device)(void*) noexcept nogil
    TFE_TensorHandle* (*pack)(
        TFE_Context*, TFE_TensorHandle**, int, TF_Status*, void*) noexcept nogil
    c_bool (*shall_pin_to_this_device)(const TFE_Op*, TF_Status*) noexcept nogil

cdef struct TFE_CustomDeviceTensorHandleMethods:
    int version
    int (*num_dims)(void*, TF_Status*) noexcept nogil
    int64_t (*dim)(void*, int, TF_Status*) noexcept nogil
    void (*deallocator)(void*) noexcept nogil
    TF_Buffer* (*summarize)(void*, TF_Status*) noexcept nogil

cdef struct TensorFlow:
    void (*TF_SetStatus)(TF_Status*, int, const char*) noexcept nogil
    int (*TF_GetCode)(const TF_Status*) noexcept nogil
    size_t (*TF_DataTypeSize)(int) noexcept nogil
    TF_Buffer* (*TF_NewBuffer)() noexcept nogil
    void (*TF_DeleteBuffer)(TF_Buffer*) noexcept nogil
    TFE_Op* (*TFE_NewOp)(TFE_Context*, const char*, TF_Status*) noexcept nogil
    void (*TFE_DeleteOp)(TFE_Op*) noexcept nogil
    const char* (*TFE_OpGetName)(const TFE_Op*, TF_Status*) noexcept nogil
    TFE_Context* (*TFE_OpGetContext)(const TFE_Op*, TF_Status*) noexcept nogil
    void (*TFE_OpSetDevice)(TFE_Op*, const char*, TF_Status*) noexcept nogil
    const char* (*TFE_OpGetDevice)(const TFE_Op*, TF_Status*) noexcept nogil
    const TFE_OpAttrs* (*TFE_OpGetAttrs)(const TFE_Op*) noexcept nogil
    void (*TFE_OpAddAttrs)(TFE_Op*, const TFE_OpAttrs*) noexcept nogil
    void (*TFE_OpAttrsSerialize)(const TFE_OpAttrs*, TF_Buffer*, TF_Status*) noexcept nogil
    void (*TFE_OpAddInput)(TFE_Op*, TFE_TensorHandle*, TF_Status*) noexcept nogil
    int (*TFE_OpGetFlatInputCount)(const TFE_Op*, TF_Status*) noexcept nogil
    TFE_TensorHandle* (*TFE_OpGetFlatInput)(const TFE_Op*, int, TF_Status*) noexcept nogil
    void (*TFE_Execute)(TFE_Op*, TFE_TensorHandle**, int*, TF_Status*) noexcept nogil
    void (*TFE_DeleteTensorHandle)(TFE_TensorHandle*) noexcept nogil
    int (*TFE_TensorHandleDataType)(TFE_TensorHandle*) noexcept nogil
    int (*TFE_TensorHandleNumDims)(TFE_TensorHandle*, TF_Status*) noexcept nogil
    int64_t (*TFE_TensorHandleDim)(TFE_TensorHandle*, int, TF_Status*) noexcept nogil
    int64_t (*TFE_TensorHandleNumElements)(TFE_TensorHandle*, TF_Status*) noexcept nogil
    const char* (*TFE_TensorHandleDeviceName)(TFE_TensorHandle*, TF_Status*) noexcept nogil
    void* (*TFE_TensorHandleDevicePointer)(TFE_TensorHandle*, TF_Status*) noexcept nogil
    TFE_TensorHandle* (*TFE_TensorHandleCopySharingTensor)(
        TFE_TensorHandle*, TF_Status*) noexcept nogil
    TFE_TensorHandle* (*TFE_TensorHandleCopyToDevice)(
        TFE_TensorHandle*, TFE_Context*, const char*, TF_Status*) noexcept nogil
    TFE_TensorHandle* (*TFE_NewCustomDeviceTensorHandle)(
        TFE_Context*, const char*, int, void*, TFE_CustomDeviceTensorHandleMethods,
        TF_Status*) noexcept nogil

cdef TensorFlow tf


cdef void* open_tensorflow() except NULL:
    """The TensorFlow library that this process has already loaded."""
    path = os.path.join(os.path.dirname(tensorflow.__file__), "libtensorflow_cc.so.2")
    cdef bytes encoded = os.fsencode(path)
    cdef void* library = dlopen(encoded, RTLD_NOW | RTLD_NOLOAD)
    if library == NULL:
        raise ImportError(
            f"TensorFlow {tensorflow.__version__} has no loaded library {path!r}. ipu_keras "
            "needs the `tensorflow` or the `tensorflow-cpu` wheel for Linux."
        )
    return library


cdef int find_symbol(void* library, void** function, str name) except -1:
    function[0] = dlsym(library, name.encode())
    if function[0] == NULL:
        raise ImportError(
            f"TensorFlow {tensorflow.__version__} does not export the function {name!r}, which "
            "ipu_keras needs. Install a TensorFlow version that ipu_keras supports."
        )
    return 0


def address_of(str name) -> int:
    """Where the loaded TensorFlow has a function.

    Args:
        name: Of an exported function, as the library has it.

    Raises:
        ImportError: It is missing; the error names the function and the version.
    """
    cdef void* function
    find_symbol(open_tensorflow(), &function, name)
    return <uintptr_t>function


cdef int find_tensorflow() except -1:
    cdef void* lib = open_tensorflow()
    find_symbol(lib, <void**> &tf.TF_SetStatus, "TF_SetStatus")
    find_symbol(lib, <void**> &tf.TF_GetCode, "TF_GetCode")
    find_symbol(lib, <void**> &tf.TF_DataTypeSize, "TF_DataTypeSize")
    find_symbol(lib, <void**> &tf.TF_NewBuffer, "TF_NewBuffer")
    find_symbol(lib, <void**> &tf.TF_DeleteBuffer, "TF_DeleteBuffer")
    find_symbol(lib, <void**> &tf.TFE_NewOp, "TFE_NewOp")
    find_symbol(lib, <void**> &tf.TFE_DeleteOp, "TFE_DeleteOp")
    find_symbol(lib, <void**> &tf.TFE_OpGetName, "TFE_OpGetName")
    find_symbol(lib, <void**> &tf.TFE_OpGetContext, "TFE_OpGetContext")
    find_symbol(lib, <void**> &tf.TFE_OpSetDevice, "TFE_OpSetDevice")
    find_symbol(lib, <void**> &tf.TFE_OpGetDevice, "TFE_OpGetDevice")
    find_symbol(lib, <void**> &tf.TFE_OpGetAttrs, "TFE_OpGetAttrs")
    find_symbol(lib, <void**> &tf.TFE_OpAddAttrs, "TFE_OpAddAttrs")
    find_symbol(lib, <void**> &tf.TFE_OpAttrsSerialize, "TFE_OpAttrsSerialize")
    find_symbol(lib, <void**> &tf.TFE_OpAddInput, "TFE_OpAddInput")
    find_symbol(lib, <void**> &tf.TFE_OpGetFlatInputCount, "TFE_OpGetFlatInputCount")
    find_symbol(lib, <void**> &tf.TFE_OpGetFlatInput, "TFE_OpGetFlatInput")
    find_symbol(lib, <void**> &tf.TFE_Execute, "TFE_Execute")
    find_symbol(lib, <void**> &tf.TFE_DeleteTensorHandle, "TFE_DeleteTensorHandle")
    find_symbol(lib, <void**> &tf.TFE_TensorHandleDataType, "TFE_TensorHandleDataType")
    find_symbol(lib, <void**> &tf.TFE_TensorHandleNumDims, "TFE_TensorHandleNumDims")
    find_symbol(lib, <void**> &tf.TFE_TensorHandleDim, "TFE_TensorHandleDim")
    find_symbol(lib, <void**> &tf.TFE_TensorHandleNumElements, "TFE_TensorHandleNumElements")
    find_symbol(lib, <void**> &tf.TFE_TensorHandleDeviceName, "TFE_TensorHandleDeviceName")
    find_symbol(lib, <void**> &tf.TFE_TensorHandleDevicePointer, "TFE_TensorHandleDevicePointer")
    find_symbol(
        lib, <void**> &tf.TFE_TensorHandleCopySharingTensor, "TFE_TensorHandleCopySharingTensor"
    )
    find_symbol(lib, <void**> &tf.TFE_TensorHandleCopyToDevice, "TFE_TensorHandleCopyToDevice")
    find_symbol(
        lib, <void**> &tf.TFE_NewCustomDeviceTensorHandle, "TFE_NewCustomDeviceTensorHandle"
    )
    return 0


find_tensorflow()


# --- State of one device ------------------------------------------------------

cdef enum:
    NUM_PROGRAM_BUCKETS = 256

cdef const char* HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
# Every device of this unit is called this, followed by its ordinal.
cdef const char* PREFIX = "/job:localhost/replica:0/task:0/device:IPU:"
cdef size_t PREFIX_LENGTH = strlen(PREFIX)

cdef struct Program:
    char* name
    # Those that are run as they are, and whose executions are shown apart.
    int64_t is_registered
    int64_t num_executions
    Program* next

cdef struct Counters:
    int64_t num_operations
    int64_t num_function_calls
    int64_t num_copies_to_device
    int64_t num_copies_from_device
    int64_t num_bytes_to_device
    int64_t num_bytes_from_device

cdef struct DeviceState:
    char* name
    int64_t is_configured
    # Says what the host runs in place of a function or an operation; NULL for what it is given.
    PyObject* substitutes
    # Only an error path takes the lock: it guards the text, not the flag.
    pthread_mutex_t refusal_lock
    char* refusal
    Counters counters
    # Never reset, so that whoever remembers it sees every later write.
    int64_t num_writes
    # Chains only ever grow, so a reader needs no lock.
    Program* programs[NUM_PROGRAM_BUCKETS]
    TFE_CustomDevice callbacks
    DeviceState* next

# Newest first; a device that TensorFlow knows stays in it for ever.
cdef DeviceState* devices = NULL


cdef bint is_device_name(const char* name) noexcept nogil:
    return strncmp(name, PREFIX, PREFIX_LENGTH) == 0


cdef bint is_function(const char* op_name) noexcept nogil:
    # Op types never begin with two underscores; traced functions (`__inference_`,
    # `__forward_`, `__backward_`) always do.
    return op_name[0] == b"_" and op_name[1] == b"_"


cdef DeviceState* device_called(const char* name) noexcept nogil:
    """The device of that name, NULL for a name that is not an IPU's."""
    if not is_device_name(name):
        return NULL
    cdef DeviceState* device = <DeviceState*> atomic_take(<void**> &devices)
    while device != NULL and strcmp(device.name, name) != 0:
        device = device.next
    return device


cdef uint32_t bucket_of(const char* name) noexcept nogil:
    cdef uint32_t value = 2166136261  # FNV-1a
    while name[0] != 0:
        value = (value ^ <unsigned char> name[0]) * 16777619
        name += 1
    return value % NUM_PROGRAM_BUCKETS


cdef Program* find_program(DeviceState* device, const char* name) noexcept nogil:
    cdef Program* program = <Program*> atomic_take(
        <void**> &device.programs[bucket_of(name)])
    while program != NULL and strcmp(program.name, name) != 0:
        program = program.next
    return program


cdef bint writes_variables(const char* op_name) noexcept nogil:
    """True for `AssignVariableOp`, `ResourceScatterAdd`, `ResourceApplyAdam` and their like."""
    if strncmp(op_name, "Resource", 8) == 0:
        return strncmp(op_name, "ResourceGather", 14) != 0
    return strncmp(op_name, "Assign", 6) == 0


cdef void count_execution(
    DeviceState* device, const char* name, Program* program
) noexcept nogil:
    if not is_function(name):
        atomic_add(&device.counters.num_operations, 1)
        if writes_variables(name):
            atomic_add(&device.num_writes, 1)
        return
    atomic_add(&device.counters.num_function_calls, 1)
    # What a function does is not known here.
    atomic_add(&device.num_writes, 1)
    if program != NULL:
        atomic_add(&program.num_executions, 1)


cdef Program* program_called(DeviceState* device, bytes name) except NULL:
    """The function of that name, made if it is not known yet."""
    cdef Program* program = find_program(device, name)
    if program != NULL:
        return program
    program = <Program*> PyMem_RawCalloc(1, sizeof(Program))
    if program == NULL:
        raise MemoryError
    try:
        program.name = duplicate(name.decode())
    except MemoryError:
        PyMem_RawFree(program)
        raise
    # Writers hold the GIL from the search to the end, readers need no lock.
    cdef Program** bucket = &device.programs[bucket_of(name)]
    program.next = bucket[0]
    atomic_publish(<void**> bucket, program)
    return program


cdef bint refused(DeviceState* device, TF_Status* status) noexcept nogil:
    """True, with the reason in `status`, if the device left the configuration."""
    if atomic_read(&device.is_configured):
        return False
    pthread_mutex_lock(&device.refusal_lock)
    tf.TF_SetStatus(status, TF_FAILED_PRECONDITION, device.refusal)
    pthread_mutex_unlock(&device.refusal_lock)
    return True


# --- Tensors ------------------------------------------------------------------
# A tensor of a device is the handle of the host tensor with its value.

cdef int tensor_num_dims(void* data, TF_Status* status) noexcept nogil:
    return tf.TFE_TensorHandleNumDims(<TFE_TensorHandle*> data, status)


cdef int64_t tensor_dim(void* data, int index, TF_Status* status) noexcept nogil:
    return tf.TFE_TensorHandleDim(<TFE_TensorHandle*> data, index, status)


cdef void tensor_delete(void* data) noexcept nogil:
    tf.TFE_DeleteTensorHandle(<TFE_TensorHandle*> data)


cdef TFE_CustomDeviceTensorHandleMethods TENSOR_METHODS
TENSOR_METHODS.version = TFE_CUSTOM_DEVICE_VERSION
TENSOR_METHODS.num_dims = tensor_num_dims
TENSOR_METHODS.dim = tensor_dim
TENSOR_METHODS.deallocator = tensor_delete
# Without a summary TensorFlow prints the value, as for a CPU tensor.
TENSOR_METHODS.summarize = NULL


cdef TFE_TensorHandle* wrap(
    TFE_Context* context, DeviceState* device, TFE_TensorHandle* host, TF_Status* status
) noexcept nogil:
    """The device's tensor with the value of `host`, which it owns from now on.

    On failure TensorFlow deletes `host` through `tensor_delete`.
    """
    return tf.TFE_NewCustomDeviceTensorHandle(
        context, device.name, tf.TFE_TensorHandleDataType(host), host, TENSOR_METHODS, status)


cdef TFE_TensorHandle* copy_on_host(
    TFE_Context* context, TFE_TensorHandle* host, const char* target, TF_Status* status
) noexcept nogil:
    """A new handle on `target` for a tensor on a physical device."""
    cdef const char* source = tf.TFE_TensorHandleDeviceName(host, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    if strcmp(source, target) == 0:
        return tf.TFE_TensorHandleCopySharingTensor(host, status)
    return tf.TFE_TensorHandleCopyToDevice(host, context, target, status)


cdef int64_t num_bytes(TFE_TensorHandle* host, TF_Status* status) noexcept nogil:
    """Size of the value; 0 for strings and resources, which have no fixed size."""
    cdef int64_t num_elements = tf.TFE_TensorHandleNumElements(host, status)
    return num_elements * <int64_t> tf.TF_DataTypeSize(tf.TFE_TensorHandleDataType(host))


cdef void count_copy_to_device(
    DeviceState* device, TFE_TensorHandle* host, TF_Status* status
) noexcept nogil:
    cdef int dtype = tf.TFE_TensorHandleDataType(host)
    if dtype == TF_RESOURCE or dtype == TF_VARIANT:
        return  # A reference to an object that stays where it is.
    cdef int64_t size = num_bytes(host, status)
    if tf.TF_GetCode(status) != TF_OK:
        return
    atomic_add(&device.counters.num_copies_to_device, 1)
    atomic_add(&device.counters.num_bytes_to_device, size)


cdef TFE_TensorHandle* take_off_device(
    TFE_Context* context, TFE_TensorHandle* tensor, DeviceState* device, const char* target,
    TF_Status* status
) noexcept nogil:
    """A new handle on the physical device `target` for a tensor of `device`."""
    if refused(device, status):
        return NULL
    cdef TFE_TensorHandle* host = <TFE_TensorHandle*> tf.TFE_TensorHandleDevicePointer(
        tensor, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    cdef TFE_TensorHandle* copy = copy_on_host(context, host, target, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    cdef int64_t size = num_bytes(copy, status)
    if tf.TF_GetCode(status) != TF_OK:
        tf.TFE_DeleteTensorHandle(copy)
        return NULL
    atomic_add(&device.counters.num_copies_from_device, 1)
    atomic_add(&device.counters.num_bytes_from_device, size)
    return copy


# --- Callbacks ----------------------------------------------------------------

cdef TFE_TensorHandle* copy_tensor_to_device(
    TFE_Context* context, TFE_TensorHandle* tensor, TF_Status* status, void* info
) noexcept nogil:
    cdef DeviceState* device = <DeviceState*> info
    cdef TFE_TensorHandle* host
    if refused(device, status):
        return NULL
    cdef const char* source_name = tf.TFE_TensorHandleDeviceName(tensor, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    cdef DeviceState* source = device_called(source_name)
    if source != NULL:
        host = take_off_device(context, tensor, source, HOST, status)
    else:
        host = copy_on_host(context, tensor, HOST, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    count_copy_to_device(device, host, status)
    if tf.TF_GetCode(status) != TF_OK:
        tf.TFE_DeleteTensorHandle(host)
        return NULL
    return wrap(context, device, host, status)


cdef TFE_TensorHandle* copy_tensor_from_device(
    TFE_Context* context, TFE_TensorHandle* tensor, const char* target, TF_Status* status,
    void* info
) noexcept nogil:
    return take_off_device(context, tensor, <DeviceState*> info, target, status)


cdef void set_foreign_input(
    DeviceState* device, const TFE_Op* op, int index, const char* other, TF_Status* status
) noexcept nogil:
    cdef char message[512]
    cdef const char* op_name = tf.TFE_OpGetName(op, status)
    snprintf(
        message, sizeof(message),
        "%s was placed on %s, but its input %d is on %s. Copy that to the host first, with "
        "`tf.identity` inside `tf.device('/device:CPU:0')`.",
        op_name, device.name, index, other)
    tf.TF_SetStatus(status, TF_INVALID_ARGUMENT, message)


cdef TFE_TensorHandle* host_input(
    DeviceState* device, const TFE_Op* op, int index, TF_Status* status
) noexcept nogil:
    """Borrowed host handle of an input; a tensor not on an IPU is its own."""
    cdef TFE_TensorHandle* tensor = tf.TFE_OpGetFlatInput(op, index, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    cdef const char* owner = tf.TFE_TensorHandleDeviceName(tensor, status)
    if tf.TF_GetCode(status) != TF_OK:
        return NULL
    if not is_device_name(owner):
        count_copy_to_device(device, tensor, status)  # May fail: the caller looks.
        return tensor
    if strcmp(owner, device.name) != 0:
        set_foreign_input(device, op, index, owner, status)
        return NULL
    return <TFE_TensorHandle*> tf.TFE_TensorHandleDevicePointer(tensor, status)


cdef void add_host_inputs(
    DeviceState* device, const TFE_Op* op, TFE_Op* host_op, TF_Status* status
) noexcept nogil:
    cdef TFE_TensorHandle* tensor
    cdef int index
    cdef int num_inputs = tf.TFE_OpGetFlatInputCount(op, status)
    for index in range(num_inputs):
        tensor = host_input(device, op, index, status)
        if tf.TF_GetCode(status) != TF_OK:
            return
        tf.TFE_OpAddInput(host_op, tensor, status)
        if tf.TF_GetCode(status) != TF_OK:
            return


cdef void wrap_outputs(
    TFE_Context* context, DeviceState* device, TFE_TensorHandle** outputs, int num_outputs,
    TF_Status* status
) noexcept nogil:
    """Replaces host handles by the device's; on failure none of either is left."""
    cdef int index, other
    for index in range(num_outputs):
        outputs[index] = wrap(context, device, outputs[index], status)
        if tf.TF_GetCode(status) != TF_OK:
            for other in range(num_outputs):
                if other != index:
                    tf.TFE_DeleteTensorHandle(outputs[other])
            return


cdef void execute_constant(
    DeviceState* device, const TFE_Op* op, TFE_Context* context, TFE_TensorHandle** outputs,
    int* num_outputs, TF_Status* status
) noexcept nogil:
    """Moves a Python value to the device.

    TensorFlow does it by running an identity op on the host's tensor. Sharing
    that tensor instead takes a third of the time (`python benchmarks/eager.py`).
    """
    cdef TFE_TensorHandle* tensor = host_input(device, op, 0, status)
    if tf.TF_GetCode(status) != TF_OK:
        return
    cdef TFE_TensorHandle* host = copy_on_host(context, tensor, HOST, status)
    if tf.TF_GetCode(status) != TF_OK:
        return
    outputs[0] = wrap(context, device, host, status)
    num_outputs[0] = 1


cdef void set_failure(object error, TF_Status* status) noexcept:
    """Has TensorFlow raise an error that Python met in a callback."""
    cdef bytes message = f"{type(error).__name__}: {error}".encode()
    tf.TF_SetStatus(status, TF_INTERNAL, message)


cdef bint may_compute_halves(const TFE_Op* op, const char* name, TF_Status* status) noexcept nogil:
    """Whether an operation is given halves, or may make them of something else."""
    cdef int index
    cdef int num_inputs = tf.TFE_OpGetFlatInputCount(op, status)
    for index in range(num_inputs):
        if tf.TFE_TensorHandleDataType(tf.TFE_OpGetFlatInput(op, index, status)) == TF_HALF:
            return True
    return strcmp(name, "Cast") == 0 or strcmp(name, "CropAndResizeGradImage") == 0


cdef object substitute_of(
    DeviceState* device, const TFE_Op* op, const char* name, TF_Status* status
):
    """The name of what the host runs in place of a function or an operation, or `None`."""
    cdef TF_Buffer* attributes
    if is_function(name):
        return (<object> device.substitutes).of_function((<bytes> name).decode())
    attributes = tf.TF_NewBuffer()
    try:
        tf.TFE_OpAttrsSerialize(tf.TFE_OpGetAttrs(op), attributes, status)
        if tf.TF_GetCode(status) != TF_OK:
            return None
        return (<object> device.substitutes).of_operation(
            PyBytes_FromStringAndSize(<const char*> attributes.data, attributes.length))
    finally:
        tf.TF_DeleteBuffer(attributes)


cdef TFE_Op* op_of_substitute(
    DeviceState* device, const TFE_Op* op, const char* name, TFE_Context* context,
    TF_Status* status
) noexcept with gil:
    """A call of what the host runs in place of what it is given; NULL if that runs as it is.

    It is asked each time, as it depends on the scopes around the call.
    """
    cdef bytes substitute
    try:
        found = substitute_of(device, op, name, status)
        if found is None:
            return NULL
        substitute = found.encode()
        return tf.TFE_NewOp(context, substitute, status)
    except BaseException as error:
        set_failure(error, status)
        return NULL


cdef void forward(
    DeviceState* device, const TFE_Op* op, TFE_Op* host_op, bint has_attributes,
    TFE_TensorHandle** outputs, int* num_outputs, TF_Status* status
) noexcept nogil:
    """Runs `op` on the host's tensors as `host_op`."""
    tf.TFE_OpSetDevice(host_op, HOST, status)
    if tf.TF_GetCode(status) != TF_OK:
        return
    if has_attributes:
        tf.TFE_OpAddAttrs(host_op, tf.TFE_OpGetAttrs(op))
    add_host_inputs(device, op, host_op, status)
    if tf.TF_GetCode(status) != TF_OK:
        return
    tf.TFE_Execute(host_op, outputs, num_outputs, status)


cdef void execute(
    const TFE_Op* op, int* num_outputs, TFE_TensorHandle** outputs, TF_Status* status, void* info
) noexcept nogil:
    cdef DeviceState* device = <DeviceState*> info
    if refused(device, status):
        return
    cdef const char* name = tf.TFE_OpGetName(op, status)
    cdef TFE_Context* context = tf.TFE_OpGetContext(op, status)
    if strcmp(name, "_EagerConst") == 0:
        execute_constant(device, op, context, outputs, num_outputs, status)
        return
    cdef TFE_Op* host_op = NULL
    cdef Program* program = find_program(device, name) if is_function(name) else NULL
    cdef bint may_differ
    if is_function(name):
        may_differ = program == NULL or not atomic_read(&program.is_registered)
    else:
        may_differ = may_compute_halves(op, name, status)
    if device.substitutes != NULL and may_differ:
        host_op = op_of_substitute(device, op, name, context, status)
    if tf.TF_GetCode(status) != TF_OK:
        return
    # What was made in place of an operation has the attributes in it.
    cdef bint has_attributes = host_op == NULL or is_function(name)
    if host_op == NULL:
        # Keeping one op per thread and resetting it saves 0.2 of about 8 microseconds,
        # and would tie its inputs or the context to the life of the thread.
        host_op = tf.TFE_NewOp(context, name, status)
        if tf.TF_GetCode(status) != TF_OK:
            return
    forward(device, op, host_op, has_attributes, outputs, num_outputs, status)
    tf.TFE_DeleteOp(host_op)
    if tf.TF_GetCode(status) != TF_OK:
        return
    count_execution(device, name, program)
    wrap_outputs(context, device, outputs, num_outputs[0], status)


cdef TFE_TensorHandle* pack(
    TFE_Context* context, TFE_TensorHandle** handles, int num_handles, TF_Status* status,
    void* info
) noexcept nogil:
    tf.TF_SetStatus(
        status, TF_UNIMPLEMENTED,
        "Tensors on IPU devices cannot be packed into one tensor. Stack them with `tf.stack`.")
    return NULL


cdef bint has_device_resource(const TFE_Op* op, TF_Status* status) noexcept nogil:
    """True if the op works on a variable, table or iterator of an IPU device."""
    cdef TFE_TensorHandle* tensor
    cdef const char* owner
    cdef int index
    cdef int num_inputs = tf.TFE_OpGetFlatInputCount(op, status)
    for index in range(num_inputs):
        tensor = tf.TFE_OpGetFlatInput(op, index, status)
        if tf.TFE_TensorHandleDataType(tensor) != TF_RESOURCE:
            continue
        owner = tf.TFE_TensorHandleDeviceName(tensor, status)
        if tf.TF_GetCode(status) != TF_OK:
            return False
        if is_device_name(owner):
            return True
    return False


cdef c_bool shall_pin_to_this_device(const TFE_Op* op, TF_Status* status) noexcept nogil:
    """Places an op that has an input on an IPU, as TensorFlow does for its own devices.

    Without a device scope it follows that input. Otherwise the scope decides,
    except that an op on a variable runs where the variable is.
    """
    cdef const char* requested = tf.TFE_OpGetDevice(op, status)
    if requested[0] == 0:
        return True
    # A function asked for on another IPU must not quietly run on this one:
    # that device's `execute` says what is wrong.
    if is_device_name(requested) and is_function(tf.TFE_OpGetName(op, status)):
        return False
    return has_device_resource(op, status)


cdef void delete_device(void* info) noexcept nogil:
    # The state outlives the registration: a later context registers it again.
    pass


# --- Python's view ------------------------------------------------------------

def abi_layout():
    """Sizes of the structures that TensorFlow takes by value, in bytes."""
    return {
        "TFE_CustomDevice": sizeof(TFE_CustomDevice),
        "TFE_CustomDeviceTensorHandleMethods": sizeof(TFE_CustomDeviceTensorHandleMethods),
    }


cdef char* duplicate(str text) except NULL:
    """A C string of its own, to be freed with PyMem_RawFree."""
    cdef bytes encoded = text.encode()
    cdef size_t size = len(encoded) + 1
    cdef char* copy = <char*> PyMem_RawMalloc(size)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, <const char*> encoded, size)
    return copy


cdef class CustomDevice:
    """One IPU device: what TensorFlow calls, and what it counted.

    It starts unconfigured. TensorFlow never tells when it is done with a device
    (its `delete_device` is not called even at exit), so the memory stays once
    `capsules` was called.

    Args:
        name: Full name, "/job:localhost/replica:0/task:0/device:IPU:<ordinal>".
        substitutes: Says what the host runs in place of what it is given. Its method
            `of_function` takes the name of a function, `of_operation` the attributes of an
            operation that may compute halves, a serialized `NameAttrList`. They return the name
            of a function, or `None`. With `None` all runs as it is.
    """

    cdef DeviceState* _state
    cdef bint _is_shared
    cdef object _substitutes

    def __cinit__(self, str name not None, substitutes=None):
        if not name.startswith(PREFIX.decode()):
            raise ValueError(
                f"`name` must be {PREFIX.decode()!r} and an ordinal. Received: name={name!r}")
        self._state = <DeviceState*> PyMem_RawCalloc(1, sizeof(DeviceState))
        if self._state == NULL:
            raise MemoryError
        pthread_mutex_init(&self._state.refusal_lock, NULL)
        self._substitutes = substitutes
        self._state.substitutes = NULL if substitutes is None else <PyObject*> substitutes
        self._state.name = duplicate(name)
        self._state.refusal = duplicate(f"{name} is not configured.")
        self._state.callbacks = TFE_CustomDevice(
            version=TFE_CUSTOM_DEVICE_VERSION,
            copy_tensor_to_device=copy_tensor_to_device,
            copy_tensor_from_device=copy_tensor_from_device,
            execute=execute,
            delete_device=delete_device,
            pack=pack,
            shall_pin_to_this_device=shall_pin_to_this_device,
        )

    def __dealloc__(self):
        if self._state == NULL or self._is_shared:
            return
        self._free_programs()
        pthread_mutex_destroy(&self._state.refusal_lock)
        PyMem_RawFree(self._state.refusal)
        PyMem_RawFree(self._state.name)
        PyMem_RawFree(self._state)

    cdef void _free_programs(self) noexcept:
        cdef Program* program
        cdef int bucket
        for bucket in range(NUM_PROGRAM_BUCKETS):
            while self._state.programs[bucket] != NULL:
                program = self._state.programs[bucket]
                self._state.programs[bucket] = program.next
                PyMem_RawFree(program.name)
                PyMem_RawFree(program)

    def capsules(self):
        """The two capsules that TensorFlow's `register_custom_device` takes.

        Returns:
            The callbacks and the state they are called with.
        """
        if not self._is_shared:
            self._is_shared = True
            Py_INCREF(self._substitutes)
            self._state.next = devices
            atomic_publish(<void**> &devices, self._state)
        return (
            PyCapsule_New(&self._state.callbacks, "TFE_CustomDevice", NULL),
            PyCapsule_New(self._state, "TFE_CustomDevice_DeviceInfo", NULL),
        )

    def configure(self):
        """Lets the device run ops."""
        atomic_write(&self._state.is_configured, 1)

    def refuse(self, str reason not None):
        """Makes every further op and copy fail with FailedPreconditionError.

        Args:
            reason: The error's message.
        """
        cdef char* replacement = duplicate(reason)
        cdef char* previous
        pthread_mutex_lock(&self._state.refusal_lock)
        previous = self._state.refusal
        self._state.refusal = replacement
        pthread_mutex_unlock(&self._state.refusal_lock)
        PyMem_RawFree(previous)
        atomic_write(&self._state.is_configured, 0)

    def register_program(self, str name not None):
        """Runs one function as it is, and counts its executions separately, from now on.

        Registering a name again changes nothing.

        Args:
            name: The function's name in the eager context.
        """
        atomic_write(&program_called(self._state, name.encode()).is_registered, 1)

    def counters(self):
        """Everything counted since the last reset, by name."""
        cdef Counters* counters = &self._state.counters
        return {
            "num_operations": atomic_read(&counters.num_operations),
            "num_function_calls": atomic_read(&counters.num_function_calls),
            "num_copies_to_device": atomic_read(&counters.num_copies_to_device),
            "num_copies_from_device": atomic_read(&counters.num_copies_from_device),
            "num_bytes_to_device": atomic_read(&counters.num_bytes_to_device),
            "num_bytes_from_device": atomic_read(&counters.num_bytes_from_device),
        }

    def num_writes(self):
        """How many ops and functions ran that may have written variables; never reset."""
        return atomic_read(&self._state.num_writes)

    def program_executions(self):
        """Executions of each registered program, by function name."""
        cdef Program* program
        cdef int bucket
        executions = {}
        for bucket in range(NUM_PROGRAM_BUCKETS):
            program = self._state.programs[bucket]
            while program != NULL:
                if atomic_read(&program.is_registered):
                    executions[program.name.decode()] = atomic_read(&program.num_executions)
                program = program.next
        return executions

    def reset_counters(self):
        """Sets every counter to zero; the registered programs stay."""
        cdef Counters* counters = &self._state.counters
        cdef Program* program
        cdef int bucket
        atomic_write(&counters.num_operations, 0)
        atomic_write(&counters.num_function_calls, 0)
        atomic_write(&counters.num_copies_to_device, 0)
        atomic_write(&counters.num_copies_from_device, 0)
        atomic_write(&counters.num_bytes_to_device, 0)
        atomic_write(&counters.num_bytes_from_device, 0)
        for bucket in range(NUM_PROGRAM_BUCKETS):
            program = self._state.programs[bucket]
            while program != NULL:
                atomic_write(&program.num_executions, 0)
                program = program.next
