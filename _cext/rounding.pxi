# How numbers are rounded to halves, to the nearest or at random, and widened; and the keys of what
# is at random.

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

    /* The finalizer of SplitMix64: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom
       number generators", OOPSLA '14. */
    static inline uint64_t mixed(uint64_t x) {
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        return x ^ (x >> 31);
    }

    /* Number `i` of a result: the hash `lowbias32` (C. Wellons, "Prospecting for hash functions",
       2018) of its position, with half of the key before and half of it within. */
    static inline uint32_t drawn(uint32_t i, uint32_t before, uint32_t within) {
        uint32_t x = i + before;
        x = (x ^ (x >> 16)) * 0x7FEB352Du ^ within;
        x = (x ^ (x >> 15)) * 0x846CA68Bu;
        return x ^ (x >> 16);
    }

    /* To one of the two halves around a number, the nearer the likelier, as float32: 13 bits at
       random are added below the last one of the half, and what is below that is cut off. Below
       2^-14 halves lie 2^-24 apart, as floats from there on do if so many bits are cut off. Masks,
       and no conditions, are what gcc makes vectors of. Results from 65536 on are no halves. */
    static inline uint32_t random_half(uint32_t bits, uint32_t added) {
        uint32_t sign = bits & 0x80000000u, size = bits ^ sign;
        float moved = float_of(0x38800000u & -(uint32_t)(size < 0x38800000u));
        uint32_t cut = (bits_of(float_of(size) + moved) + added) & 0xFFFFE000u;
        return sign | bits_of(float_of(cut) - moved);
    }

    static inline float random_or_limited(float x, uint32_t added, int overflow) {
        int is_large = (bits_of(x) & 0x7FFFFFFFu) >= 0x47800000u;
        float found = is_large ? x : float_of(random_half(bits_of(x), added));
        return widened(limited(nearest_half(found), x, overflow));
    }

    /* What an operation has of its own is one number: a salt, and above what becomes of overflows. */
    enum { BITS_OF_OVERFLOW = 2 };

    /* Each number that is drawn serves two elements of a block. */
    enum { NUMBERS_OF_BLOCK = 128, ELEMENTS_OF_BLOCK = 256, BLOCKS_OF_KEY = 1 << 24 };

    #if defined(__x86_64__) && defined(__GNUC__)
    /* Vectors of 512 or 256 bits; which CPU it is shows at run time. */
    #define WITH_WIDE_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define WITH_WIDE_VECTORS
    #endif

    static inline uint32_t added_to_first(uint32_t number) { return number & 0x1FFFu; }
    static inline uint32_t added_to_second(uint32_t number) { return number >> 19; }

    /* Whether a result is 65536 or more, and so no half. */
    WITH_WIDE_VECTORS
    static int round_block_randomly(
        const float* wide, float* rounded, uint32_t start, uint32_t before, uint32_t within
    ) {
        uint32_t sums = 0;
        for (uint32_t i = 0; i < NUMBERS_OF_BLOCK; i++) {
            uint32_t number = drawn(start + i, before, within);
            uint32_t first = random_half(bits_of(wide[i]), added_to_first(number));
            uint32_t second = random_half(
                bits_of(wide[i + NUMBERS_OF_BLOCK]), added_to_second(number));
            rounded[i] = float_of(first);
            rounded[i + NUMBERS_OF_BLOCK] = float_of(second);
            sums |= (first & 0x7FFFFFFFu) + (0x80000000u - 0x47800000u);
            sums |= (second & 0x7FFFFFFFu) + (0x80000000u - 0x47800000u);
        }
        return sums >> 31;
    }

    /* The same for a part of a block, and where numbers are too large. */
    static void round_part_randomly(
        const float* wide, float* rounded, int64_t count, uint32_t start, uint32_t before,
        uint32_t within, int overflow
    ) {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t number = drawn(start + i % NUMBERS_OF_BLOCK, before, within);
            uint32_t added = i < NUMBERS_OF_BLOCK ? added_to_first(number) : added_to_second(number);
            rounded[i] = random_or_limited(wide[i], added, overflow);
        }
    }

    /* The key of an operation, of that of its function and what it has of its own. */
    static inline uint64_t key_of(uint64_t key, uint64_t own) {
        return mixed(key + 0x9E3779B97F4A7C15u * (own >> BITS_OF_OVERFLOW));
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define WITH_AVX512 __attribute__((target("avx512f")))

    /* As `random_half`, of sixteen numbers to halves; `most` becomes the largest size. */
    WITH_AVX512
    static inline void round_sixteen_randomly(
        const float* wide, uint16_t* halves, __m512i added, __m512i* most
    ) {
        const __m512i sign = _mm512_set1_epi32((int)0x80000000u);
        const __m512 least = _mm512_set1_ps(0x1p-14f);
        __m512i bits = _mm512_loadu_si512(wide), size = _mm512_andnot_si512(sign, bits);
        __mmask16 is_small = _mm512_cmplt_epu32_mask(size, _mm512_castps_si512(least));
        __m512 x = _mm512_castsi512_ps(size);
        __m512i sum = _mm512_castps_si512(_mm512_mask_add_ps(x, is_small, x, least));
        sum = _mm512_add_epi32(sum, added);
        sum = _mm512_and_si512(sum, _mm512_set1_epi32((int)0xFFFFE000u));
        x = _mm512_castsi512_ps(sum);
        __m512i found = _mm512_castps_si512(_mm512_mask_sub_ps(x, is_small, x, least));
        *most = _mm512_max_epu32(*most, found);
        found = _mm512_or_si512(found, _mm512_and_si512(sign, bits));
        _mm256_storeu_si256(
            (__m256i*)halves,
            _mm512_cvtps_ph(_mm512_castsi512_ps(found), _MM_FROUND_TO_NEAREST_INT));
    }

    /* As `round_block_randomly`, to halves in one pass: 0.21 ns a number, and 0.32 in two. */
    WITH_AVX512
    static int round_block_to_halves(
        const float* wide, uint16_t* halves, uint32_t start, uint32_t before, uint32_t within
    ) {
        const __m512i within_all = _mm512_set1_epi32((int)within);
        __m512i most = _mm512_setzero_si512();
        __m512i place = _mm512_add_epi32(
            _mm512_set1_epi32((int)(start + before)),
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        for (int i = 0; i < NUMBERS_OF_BLOCK; i += 16) {
            __m512i x = _mm512_xor_si512(place, _mm512_srli_epi32(place, 16));
            x = _mm512_mullo_epi32(x, _mm512_set1_epi32(0x7FEB352D));
            x = _mm512_xor_si512(x, within_all);
            x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
            x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)0x846CA68Bu));
            x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
            round_sixteen_randomly(
                wide + i, halves + i, _mm512_and_si512(x, _mm512_set1_epi32(0x1FFF)), &most);
            round_sixteen_randomly(
                wide + i + NUMBERS_OF_BLOCK, halves + i + NUMBERS_OF_BLOCK,
                _mm512_srli_epi32(x, 19), &most);
            place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
        }
        return _mm512_reduce_max_epu32(most) >= 0x47800000u;
    }

    static int has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
    #else
    static int has_avx512(void) { return 0; }
    #define round_block_to_halves(wide, halves, start, before, within) 1
    #endif

    /* Rounded to halves, which are kept as float32 or not: `kept`, which may be `wide`, or `halves`
       is NULL. */
    static void round_randomly(
        const float* wide, float* kept, uint16_t* halves, int64_t size, uint64_t key, uint64_t own,
        void (*round_halves)(const float*, uint16_t*, int64_t, int)
    ) {
        int overflow = own & ((1 << BITS_OF_OVERFLOW) - 1);
        int in_one_pass = halves && has_avx512();
        float found[ELEMENTS_OF_BLOCK];
        key = key_of(key, own);
        for (int64_t block = 0, start = 0; start < size; block++, start += ELEMENTS_OF_BLOCK) {
            if (block == BLOCKS_OF_KEY) { block = 0; key = mixed(key); }
            uint32_t first = (uint32_t)block * NUMBERS_OF_BLOCK;
            uint32_t before = (uint32_t)key, within = (uint32_t)(key >> 32);
            int64_t count = size - start < ELEMENTS_OF_BLOCK ? size - start : ELEMENTS_OF_BLOCK;
            int is_part = count < ELEMENTS_OF_BLOCK;
            if (in_one_pass && !is_part
                && !round_block_to_halves(wide + start, halves + start, first, before, within))
                continue;
            if (is_part || round_block_randomly(wide + start, found, first, before, within))
                round_part_randomly(wide + start, found, count, first, before, within, overflow);
            if (kept) memcpy(kept + start, found, 4 * count);
            else round_halves(found, halves + start, count, INFINITE);
        }
    }

    /* Where a device is among its keys. Executions that run at the same time take others. The
       lowest bit of a key says whether replicas have others, and is that of all that follow. */
    typedef struct { uint64_t seed, count, apart; } KeyStream;

    static uint64_t next_key(KeyStream* stream) {
        uint64_t seed = __atomic_load_n(&stream->seed, __ATOMIC_RELAXED);
        uint64_t count = __atomic_fetch_add(&stream->count, 1, __ATOMIC_RELAXED);
        uint64_t apart = __atomic_load_n(&stream->apart, __ATOMIC_RELAXED);
        return (mixed(seed + 0x9E3779B97F4A7C15u * count) & ~(uint64_t)1) | apart;
    }

    static void restart(KeyStream* stream, uint64_t seed, uint64_t apart) {
        __atomic_store_n(&stream->apart, apart, __ATOMIC_RELAXED);
        __atomic_store_n(&stream->seed, mixed(seed), __ATOMIC_RELAXED);
        __atomic_store_n(&stream->count, 0, __ATOMIC_RELAXED);
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
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
    void round_randomly(
        const float*, float*, uint16_t*, int64_t, uint64_t, uint64_t,
        void (*)(const float*, uint16_t*, int64_t, int) noexcept nogil
    ) noexcept nogil
    ctypedef struct KeyStream:
        uint64_t seed
        uint64_t count
    uint64_t next_key(KeyStream*) noexcept nogil
    void restart(KeyStream*, uint64_t, uint64_t) noexcept nogil
    enum:
        BITS_OF_OVERFLOW


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


def rounded_randomly(const float[::1] wide, uint16_t[::1] halves, uint64_t key, int64_t own):
    """Rounds numbers (IN) to halves (OUT) at random, as the kernel does; see `rounded`.

    Args:
        key: The key of the function that an operation is in.
        own: Of `own_number`.
    """
    assert wide.shape[0] == halves.shape[0]
    if wide.shape[0] == 0:
        return
    with nogil:
        round_randomly(
            &wide[0], NULL, &halves[0], wide.shape[0], key, own, round_halves
        )


def own_number(int salt, int overflow):
    """What an operation has of its own, as one number.

    Args:
        salt: Not that of another operation in the same function.
        overflow: As for `rounded`.
    """
    return salt << BITS_OF_OVERFLOW | overflow


cdef class RoundingKeys:
    """The keys of a device's executions, for what they round at random.

    Programs have its `address`, so it has to live as long as they may run.

    Args:
        seed: Where they start, as for `restart`.
    """

    cdef KeyStream stream

    def __cinit__(self, seed):
        self.restart(seed)

    @property
    def address(self):
        return <uintptr_t>&self.stream

    def restart(self, seed, identical_replicas=False):
        """Starts the keys anew from a seed, an integer of any size.

        Executions of all replicas have the same keys if these are to be identical.
        """
        restart(&self.stream, <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF), not identical_replicas)

    def following(self):
        """Returns the next key, which an execution would take."""
        return next_key(&self.stream)
