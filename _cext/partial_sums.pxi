# Convolutions and products of halves whose partial sums are halves. Included by `_rounding.pyx`,
# whose functions round.

cdef extern from *:
    """
    #include <stdlib.h>

    /* What one result adds up: a convolution, of which a matrix product has a single place.

       images [groups, batch, s0, s1, s2, channels] and filters [groups, w0, w1, w2, channels,
       features] make results [groups, batch, r0, r1, r2, features]. What is at place r and
       position w of the window is that at r * stride + w * dilation - before of the image, which
       has spread - 1 zeros between its elements, and zeros around it. */
    typedef struct {
        int64_t groups, batch, channels, features;
        int64_t image[3], window[3], result[3], stride[3], dilation[3], spread[3], before[3];
    } Convolution;

    /* How partial sums are rounded. */
    typedef struct {
        void (*to_nearest)(const float*, float*, int64_t, int);
        int overflow, at_random;
        uint64_t key;
    } PartialRounding;

    /* An AMP unit takes so many input channels in a pass. */
    enum { CHANNELS_OF_PASS = 16 };

    /* Results that are computed together: of so many places, and so many features. */
    enum { PLACES = 4, MOST_FEATURES = 32, FEW_FEATURES = 8 };

    static inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

    /* Passes go over groups of channels, and within each over the positions of the window: all
       that is packed is in this order. Returns how many numbers there are of one place or one
       feature. */
    static int64_t numbers_of_result(const Convolution* c) {
        return c->window[0] * c->window[1] * c->window[2] * c->channels;
    }

    /* Of up to `width` features of one group, [numbers, width], with zeros for those beyond. */
    static void pack_filters(
        const Convolution* c, const float* filters, int64_t first_feature, int width, float* packed
    ) {
        int64_t positions = c->window[0] * c->window[1] * c->window[2];
        int64_t count = at_most(width, c->features - first_feature);
        for (int64_t first = 0; first < c->channels; first += CHANNELS_OF_PASS)
            for (int64_t position = 0; position < positions; position++)
                for (int64_t k = first; k < at_most(first + CHANNELS_OF_PASS, c->channels); k++) {
                    const float* found =
                        filters + (position * c->channels + k) * c->features + first_feature;
                    for (int64_t f = 0; f < width; f++) *packed++ = f < count ? found[f] : 0.0f;
                }
    }

    /* Where the channels of an image are that a place has at a position, NULL if that is a zero. */
    static const float* channels_at(
        const Convolution* c, const float* image, const int64_t* place, const int64_t* position
    ) {
        int64_t index = 0;
        for (int d = 0; d < 3; d++) {
            int64_t at = place[d] * c->stride[d] + position[d] * c->dilation[d] - c->before[d];
            if (at < 0 || at % c->spread[d] || at / c->spread[d] >= c->image[d]) return NULL;
            index = index * c->image[d] + at / c->spread[d];
        }
        return image + index * c->channels;
    }

    /* Of one of the PLACES, [numbers, PLACES]. */
    static void pack_place(
        const Convolution* c, const float* image, const int64_t* place, float* packed
    ) {
        int64_t position[3];
        for (int64_t first = 0; first < c->channels; first += CHANNELS_OF_PASS) {
            int64_t count = at_most(CHANNELS_OF_PASS, c->channels - first);
            for (position[0] = 0; position[0] < c->window[0]; position[0]++)
                for (position[1] = 0; position[1] < c->window[1]; position[1]++)
                    for (position[2] = 0; position[2] < c->window[2]; position[2]++) {
                        const float* found = channels_at(c, image, place, position);
                        for (int64_t k = 0; k < count; k++, packed += PLACES)
                            *packed = found ? found[first + k] : 0.0f;
                    }
        }
    }

    /* Numbers that compilers keep in registers, wherever they are in memory. */
    typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));

    /* Products of halves are exact in float32, so it is all the same whether an instruction rounds
       them before it adds them. */
    #define ADD_PASS(name, width) \\
        WITH_WIDE_VECTORS \\
        static void name(const float* places, const float* filters, int64_t count, float* sums) { \\
            enum { VECTORS = width / 8 }; \\
            Vector pass[PLACES][VECTORS] = {{{0}}}; \\
            for (int64_t k = 0; k < count; k++, places += PLACES, filters += width) \\
                for (int p = 0; p < PLACES; p++) \\
                    for (int f = 0; f < VECTORS; f++) \\
                        pass[p][f] += places[p] * ((const Vector*)filters)[f]; \\
            for (int p = 0; p < PLACES; p++) \\
                for (int f = 0; f < VECTORS; f++) \\
                    ((Vector*)sums)[p * VECTORS + f] += pass[p][f]; \\
        }
    ADD_PASS(add_pass_of_many, MOST_FEATURES)
    ADD_PASS(add_pass_of_few, FEW_FEATURES)

    static void round_partials(
        const PartialRounding* rounding, float* sums, int width, int64_t first_number,
        int64_t features, uint64_t pass
    ) {
        if (!rounding->at_random) {
            rounding->to_nearest(sums, sums, PLACES * width, rounding->overflow);
            return;
        }
        uint64_t key = mixed(rounding->key + 0x9E3779B97F4A7C15u * pass);
        uint32_t before = (uint32_t)key, within = (uint32_t)(key >> 32);
        for (int p = 0; p < PLACES; p++)
            for (int f = 0; f < width; f++) {
                uint32_t number = (uint32_t)(first_number + p * features + f);
                uint32_t added = added_to_first(drawn(number, before, within));
                float* sum = sums + p * width + f;
                *sum = random_or_limited(*sum, added, rounding->overflow);
            }
    }

    /* All passes of PLACES times `width` results; the first is number `first_number` of all. */
    static void add_passes(
        const Convolution* c, const PartialRounding* rounding, const float* places,
        const float* filters, int width, int64_t first_number, float* sums
    ) {
        int64_t positions = c->window[0] * c->window[1] * c->window[2];
        uint64_t pass = 0;
        for (int i = 0; i < PLACES * width; i++) sums[i] = 0.0f;
        for (int64_t first = 0; first < c->channels; first += CHANNELS_OF_PASS) {
            int64_t count = at_most(CHANNELS_OF_PASS, c->channels - first);
            for (int64_t position = 0; position < positions; position++, pass++) {
                if (width == MOST_FEATURES) add_pass_of_many(places, filters, count, sums);
                else add_pass_of_few(places, filters, count, sums);
                round_partials(rounding, sums, width, first_number, c->features, pass);
                places += count * PLACES;
                filters += count * width;
            }
        }
    }

    /* Up to `width` features of one group, of all places. */
    static void add_features(
        const Convolution* c, const PartialRounding* rounding, const float* images,
        const float* filters, int64_t group, int64_t first_feature, int width, float* buffer,
        float* results
    ) {
        int64_t numbers = numbers_of_result(c), count = at_most(width, c->features - first_feature);
        int64_t of_image = c->image[0] * c->image[1] * c->image[2] * c->channels;
        int64_t of_batch = c->result[0] * c->result[1] * c->result[2];
        int64_t num_places = c->batch * of_batch;
        float *packed_filters = buffer, *packed_places = buffer + numbers * width;
        float sums[PLACES * MOST_FEATURES];
        pack_filters(
            c, filters + group * numbers * c->features, first_feature, width, packed_filters);
        for (int64_t first = 0; first < num_places; first += PLACES) {
            int64_t num_found = at_most(PLACES, num_places - first);
            if (num_found < PLACES) memset(packed_places, 0, sizeof(float) * numbers * PLACES);
            for (int64_t p = 0; p < num_found; p++) {
                int64_t in_batch = (first + p) % of_batch, batch = (first + p) / of_batch;
                int64_t place[3] = {
                    in_batch / c->result[2] / c->result[1],
                    in_batch / c->result[2] % c->result[1],
                    in_batch % c->result[2],
                };
                const float* image = images + (group * c->batch + batch) * of_image;
                pack_place(c, image, place, packed_places + p);
            }
            int64_t number = (group * num_places + first) * c->features + first_feature;
            add_passes(c, rounding, packed_places, packed_filters, width, number, sums);
            for (int64_t p = 0; p < num_found; p++)
                memcpy(results + number + p * c->features, sums + p * width, sizeof(float) * count);
        }
    }

    /* Whether there was memory for it. */
    static int add_in_passes(
        const Convolution* c, const PartialRounding* rounding, const float* images,
        const float* filters, float* results
    ) {
        int64_t numbers = numbers_of_result(c);
        float* buffer = (float*)malloc(sizeof(float) * (numbers * (MOST_FEATURES + PLACES) + 1));
        if (!buffer) return 0;
        for (int64_t group = 0; group < c->groups; group++)
            for (int64_t feature = 0; feature < c->features;) {
                int width = c->features - feature > FEW_FEATURES ? MOST_FEATURES : FEW_FEATURES;
                add_features(
                    c, rounding, images, filters, group, feature, width, buffer, results);
                feature += width;
            }
        free(buffer);
        return 1;
    }
    """
    uint64_t key_of(uint64_t, uint64_t) noexcept nogil
    ctypedef struct Convolution:
        int64_t groups
        int64_t batch
        int64_t channels
        int64_t features
        int64_t image[3]
        int64_t window[3]
        int64_t result[3]
        int64_t stride[3]
        int64_t dilation[3]
        int64_t spread[3]
        int64_t before[3]
    ctypedef struct PartialRounding:
        void (*to_nearest)(const float*, float*, int64_t, int) noexcept nogil
        int overflow
        int at_random
        uint64_t key
    bint add_in_passes(
        const Convolution*, const PartialRounding*, const float*, const float*, float*
    ) noexcept nogil

# The rank of images and filters, and how many numbers say how those are applied: sizes of the
# result, strides, dilations, spreads, and zeros before the image, of three dimensions each.
cdef enum:
    RANK_OF_IMAGES = 6
    NUM_GEOMETRY = 15


cdef Convolution convolution_of(
    const int64_t* images, const int64_t* filters, const int64_t* geometry
) noexcept nogil:
    cdef Convolution found
    cdef int d
    found.groups = images[0]
    found.batch = images[1]
    found.channels = images[5]
    found.features = filters[5]
    for d in range(3):
        found.image[d] = images[2 + d]
        found.window[d] = filters[1 + d]
        found.result[d] = geometry[d]
        found.stride[d] = geometry[3 + d]
        found.dilation[d] = geometry[6 + d]
        found.spread[d] = geometry[9 + d]
        found.before[d] = geometry[12 + d]
    return found


cdef PartialRounding partial_rounding(uint64_t key, uint64_t own) noexcept nogil:
    """How an operation rounds whose own number is that of `own_number_of_partials`."""
    cdef PartialRounding found
    cdef uint64_t of_rounding = own >> 1
    found.to_nearest = keep_rounded
    found.overflow = <int>(of_rounding & ((1 << BITS_OF_OVERFLOW) - 1))
    found.at_random = <int>(own & 1)
    found.key = key_of(key, of_rounding)
    return found


def own_number_of_partials(int salt, int overflow, bint at_random):
    """What an operation whose partial sums are halves has of its own, as one number.

    Args:
        salt: Not that of another operation in the same function; of any value if not `at_random`.
        overflow: As for `rounded`.
        at_random: Whether partial sums are rounded at random, not to the nearest.
    """
    return own_number(salt, overflow) << 1 | at_random


def partial_sums(
    const float[:, :, :, :, :, ::1] images,
    const float[:, :, :, :, :, ::1] filters,
    const int64_t[::1] geometry,
    float[:, :, :, :, :, ::1] results,
    uint64_t key,
    int64_t own,
):
    """Adds up products of halves in passes of 16 channels, after each of which it rounds.

    Args:
        images: IN. `[groups, batch, s0, s1, s2, channels]`.
        filters: IN. `[groups, w0, w1, w2, channels, features]`.
        geometry: IN. Sizes of the result, strides, dilations, spreads and zeros before the image,
            of three dimensions each.
        results: OUT. `[groups, batch, r0, r1, r2, features]`, halves in float32.
        key: The key of the function that an operation is in.
        own: Of `own_number_of_partials`.
    """
    cdef int64_t sizes[RANK_OF_IMAGES]
    cdef int64_t window[RANK_OF_IMAGES]
    cdef int k
    for k in range(RANK_OF_IMAGES):
        sizes[k], window[k] = images.shape[k], filters.shape[k]
    cdef Convolution convolution = convolution_of(sizes, window, &geometry[0])
    cdef PartialRounding rounding = partial_rounding(key, own)
    assert results.shape[2] == geometry[0] and results.shape[5] == filters.shape[5]
    if results.size and not add_in_passes(
        &convolution,
        &rounding,
        &images[0, 0, 0, 0, 0, 0],
        &filters[0, 0, 0, 0, 0, 0],
        &results[0, 0, 0, 0, 0, 0],
    ):
        raise MemoryError
