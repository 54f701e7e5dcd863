# distutils: language = c++
"""Calls of user operations, whose functions take vectors and strings of C++.

Which functions there are, and what they are given, is decided in
`ipu_keras.ops.user_operations`; here is only what Python cannot do: to make a
`std::vector` as the compiler of the library lays it out, and to catch what is thrown.
"""

from libc.stdint cimport uint32_t, uintptr_t
from libcpp.string cimport string
from libcpp.vector cimport vector

ctypedef const void* const_pointer
ctypedef void* pointer

# A function that takes its parameters by value is called in the same way: such values
# are passed by address.
ctypedef void (*UserFunction)(
    const vector[const_pointer]&,
    const vector[uint32_t]&,
    const vector[pointer]&,
    const string&,
    const string&,
) except + nogil


def call(uintptr_t function, inputs, outputs, bytes attributes, bytes name):
    """Calls a user operation, without holding the GIL.

    Args:
        function: Its address.
        inputs: An address and a number of elements for each input.
        outputs: An address for each output. The memory behind all addresses is the
            caller's, and stays where it is.
        attributes: What the user gave the operation.
        name: Of the operation.

    Raises:
        RuntimeError: The function threw an exception; it has its text.
    """
    cdef vector[const_pointer] data
    cdef vector[uint32_t] number_of_elements
    cdef vector[pointer] results
    cdef string given = attributes
    cdef string title = name
    cdef UserFunction run = <UserFunction>function
    for address, count in inputs:
        data.push_back(<const_pointer><uintptr_t>address)
        number_of_elements.push_back(count)
    for address in outputs:
        results.push_back(<pointer><uintptr_t>address)
    with nogil:
        run(data, number_of_elements, results, given, title)
