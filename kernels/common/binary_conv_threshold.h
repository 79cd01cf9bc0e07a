/* Channel-packed direct convolution, integer thresholds and packing in one: one thread an output word, whose outputs
 * share every word that is read of the image. Accumulators never leave registers.
 *
 * The defines of window.h and binary_conv.h, but GROUPS are such that a word's outputs lie in one group; OUT_WORDS =
 * ceil(OUTPUTS / 32), BLOCK = min(OUTPUTS, 32). Weights are [OUT_WORDS][KERNEL_H][KERNEL_W][TAP_WORDS][BLOCK].
 */
KERNEL binary_conv_threshold(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights,
                             const GLOBAL int *RESTRICT spans, const GLOBAL uint *RESTRICT masks,
                             const GLOBAL int *RESTRICT threshold, const GLOBAL uint *RESTRICT falling,
                             GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % OUT_WORDS, first = word * 32;
    const int group = first / (OUTPUTS / GROUPS);
    const Origin at = window_origin(id / OUT_WORDS);
    const GLOBAL uint *w = weights + word * (KERNEL_H * KERNEL_W * TAP_WORDS * BLOCK);
    int differing[BLOCK], length = 0;
#pragma unroll
    for (int b = 0; b < BLOCK; ++b)
        differing[b] = 0;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx, w += TAP_WORDS * BLOCK) {
            const int pixel = window_pixel(at, ky, kx);
#if PAD_VALUE == 0
            if (pixel < 0)
                continue;
#endif
            length += GROUP_CHANNELS;
            for (int i = 0; i < TAP_WORDS; ++i) {
                /* Weights have no bits beyond their group, so masking the image's word is enough. */
                uint seen = pixel < 0 ? ~0u : x[pixel * WORDS + spans[group] + i];
#if PAD_VALUE < 0
                if (pixel < 0)
                    seen = 0u;
#endif
#if MASKED || PAD_VALUE > 0
                seen &= masks[group * TAP_WORDS + i];
#endif
#pragma unroll
                for (int b = 0; b < BLOCK; ++b)
                    differing[b] += POPCOUNT(seen ^ w[i * BLOCK + b]);
            }
        }
    uint bits = 0;
#pragma unroll
    for (int b = 0; b < BLOCK; ++b)
        if (first + b < OUTPUTS)
            bits |= (uint)(length - 2 * differing[b] >= threshold[first + b]) << b;
    out[id] = bits ^ falling[word];
}
