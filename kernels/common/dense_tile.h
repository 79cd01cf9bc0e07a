/* Binary dense layer by tiles: a work-group computes 32 outputs of IMAGES images. A row of 32 work-items has an output
 * each; the rows share out the words of the dot product, and their partial counts meet in local memory.
 *
 * WORDS a vector of x, OUTPUTS, OUT_WORDS, LENGTH elements, ROWS, IMAGES. Weights are [OUT_WORDS][WORDS][32].
 * RESULT_KIND 0: accumulators, int32; 1: bits, (differing <= limits) != falling; 2: float32, the accumulator
 * multiplied by `factors` (FACTORS of them, 1 or OUTPUTS), rounded once.
 * Launched as [32, ROWS] work-items over [OUT_WORDS, ceil(batch / IMAGES)] groups.
 */
#define LANES 32

KERNEL dense_tile(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights, const GLOBAL int *RESTRICT limits,
                  const GLOBAL uint *RESTRICT falling, const GLOBAL float *RESTRICT factors,
                  GLOBAL RESULT *RESTRICT out, int batch)
{
    LOCAL_ARRAY(int, partial, ROWS * IMAGES * LANES);
#if RESULT_KIND == 1 && !HAS_BALLOT
    LOCAL_ARRAY(uchar, votes, IMAGES * LANES);
#endif
    const int lane = LOCAL_ID(0), row = LOCAL_ID(1);
    const int word = GROUP_ID(0), first = GROUP_ID(1) * IMAGES, channel = word * LANES + lane;
    const GLOBAL uint *w = weights + word * (WORDS * LANES) + lane;
    const GLOBAL uint *seen[IMAGES];
    int differing[IMAGES];
#pragma unroll
    for (int b = 0; b < IMAGES; ++b) {
        differing[b] = 0;
        /* Past the batch the last image is computed again, and dropped. */
        seen[b] = x + (first + b < batch ? first + b : batch - 1) * WORDS;
    }
#if WORDS / ROWS <= 40 /* all loads on their way before the first one is used */
#pragma unroll
#endif
    for (int i = 0; i < WORDS / ROWS; ++i) {
        const int k = i * ROWS + row;
        const uint weight = w[k * LANES];
#pragma unroll
        for (int b = 0; b < IMAGES; ++b)
            differing[b] += POPCOUNT(seen[b][k] ^ weight);
    }
    if (row < WORDS % ROWS) {
        const int k = WORDS / ROWS * ROWS + row;
        const uint weight = w[k * LANES];
#pragma unroll
        for (int b = 0; b < IMAGES; ++b)
            differing[b] += POPCOUNT(seen[b][k] ^ weight);
    }
#pragma unroll
    for (int b = 0; b < IMAGES; ++b)
        partial[(b * ROWS + row) * LANES + lane] = differing[b];
    BARRIER();

    for (int b = row; b < IMAGES; b += ROWS) {
        const int image = first + b;
        int sum = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            sum += partial[(b * ROWS + r) * LANES + lane];
#if RESULT_KIND == 1
        const uint vote = (uint)(sum <= limits[channel]) ^ (falling[word] >> lane & 1u);
#if HAS_BALLOT
        const uint bits = BALLOT(vote);
        if (lane == 0 && image < batch)
            out[image * OUT_WORDS + word] = bits;
#else
        votes[b * LANES + lane] = (uchar)vote;
#endif
#else
        if (channel < OUTPUTS && image < batch) {
            const int accumulator = LENGTH - 2 * sum;
#if RESULT_KIND == 2
            out[image * OUTPUTS + channel] = (float)accumulator * factors[FACTORS > 1 ? channel : 0];
#else
            out[image * OUTPUTS + channel] = accumulator;
#endif
        }
#endif
    }
#if RESULT_KIND == 1 && !HAS_BALLOT
    BARRIER();
    for (int b = row * LANES + lane; b < IMAGES; b += ROWS * LANES) {
        uint bits = 0;
        for (int i = 0; i < LANES; ++i)
            bits |= (uint)votes[b * LANES + i] << i;
        if (first + b < batch)
            out[(first + b) * OUT_WORDS + word] = bits;
    }
#endif
}
