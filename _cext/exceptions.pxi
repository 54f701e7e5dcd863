# What `ipu_keras.host.exceptions` needs in programs: notes whether numbers are finite, and keeps
# what variables were.

cdef extern from *:
    """
    /* The sum reaches the bit of the sign if the exponent is full. There is hardly ever one, and
       gcc makes vectors of loops without an early end. */
    #define NOT_FINITE(name, type, full)                                                    \\
        WITH_WIDE_VECTORS                                                                   \\
        static int name(const type* bits, int64_t size) {                                   \\
            const type sign = (type)((type)1 << (8 * sizeof(type) - 1));                    \\
            type found = 0;                                                                 \\
            for (int64_t i = 0; i < size; i++)                                              \\
                found |= (type)((bits[i] & (type)~sign) + (type)(sign - (type)full));       \\
            return (found & sign) != 0;                                                     \\
        }
    NOT_FINITE(not_finite_halves, uint16_t, 0x7C00u)
    NOT_FINITE(not_finite_floats, uint32_t, 0x7F800000u)
    NOT_FINITE(not_finite_doubles, uint64_t, 0x7FF0000000000000u)

    /* Threads that look at the same time write the same. */
    static void note_not_finite(const void* numbers, int64_t size, size_t width, int64_t* flag) {
        int found = width == 8 ? not_finite_doubles((const uint64_t*)numbers, size)
                  : width == 4 ? not_finite_floats((const uint32_t*)numbers, size)
                               : not_finite_halves((const uint16_t*)numbers, size);
        if (found) __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
    }
    """
    void note_not_finite(const void*, int64_t, size_t, int64_t*) noexcept nogil
    void* memcpy(void*, const void*, size_t) noexcept nogil


cdef class NotFiniteFlag:
    """Whether an execution has met NaN or an infinity where it looked.

    Programs have its `address`, so it has to live as long as they may run.
    """

    cdef int64_t raised

    @property
    def address(self):
        return <uintptr_t>&self.raised

    @property
    def is_raised(self):
        return self.raised != 0

    def lower(self):
        self.raised = 0


cdef inline size_t size_with_padding(size_t size) noexcept nogil:
    """Bytes from what is kept to what is kept next."""
    return (size + (BYTES_OF_LINE - 1)) // BYTES_OF_LINE * BYTES_OF_LINE
