/* Channel-packed direct convolution of bits (no patches are stored): K - 2 popcount(x xor w), exact.
 *
 * Defines of window.h; WORDS words a pixel; GROUPS; OUTPUTS; TAP_WORDS words that one group spans in a pixel, from word
 * `first` of table `spans`; GROUP_CHANNELS; PAD_VALUE -1, 0 or +1; MASKED 1 where a group shares its words with others.
 * Weights are [OUTPUTS][KERNEL_H][KERNEL_W][TAP_WORDS], shifted to where their group lies in the pixel's words.
 * `masks` [GROUPS][TAP_WORDS] has a bit for each channel of the group.
 */
DEVICE int binary_conv_at(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights,
                          const GLOBAL int *RESTRICT spans, const GLOBAL uint *RESTRICT masks, Origin at, int output)
{
    const int group = output / (OUTPUTS / GROUPS);
#if MASKED || PAD_VALUE != 0
    const GLOBAL uint *mask = masks + group * TAP_WORDS;
#endif
    const GLOBAL uint *w = weights + output * (KERNEL_H * KERNEL_W * TAP_WORDS);
    int differing = 0, length = 0;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx, w += TAP_WORDS) {
            const int pixel = window_pixel(at, ky, kx);
            if (pixel < 0) {
#if PAD_VALUE != 0
                length += GROUP_CHANNELS;
                for (int i = 0; i < TAP_WORDS; ++i)
                    differing += POPCOUNT(PAD_VALUE > 0 ? w[i] ^ mask[i] : w[i]);
#endif
                continue;
            }
            length += GROUP_CHANNELS;
            const GLOBAL uint *seen = x + pixel * WORDS + spans[group];
            for (int i = 0; i < TAP_WORDS; ++i) {
#if MASKED
                differing += POPCOUNT((seen[i] ^ w[i]) & mask[i]);
#else
                differing += POPCOUNT(seen[i] ^ w[i]);
#endif
            }
        }
    return length - 2 * differing;
}
