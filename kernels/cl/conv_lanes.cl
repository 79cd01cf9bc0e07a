/* Channel-packed direct convolution with thresholds, one thread an output pixel and block of 32 outputs, for CPUs.
 *
 * The defines of window.h; WORDS words a pixel; CHANNELS; OUT_WORDS; PAD_VALUE. Weights are
 * [OUT_WORDS][2][KERNEL_H][KERNEL_W][WORDS][LANES], thresholds [OUT_WORDS * 2 * LANES], out [pixels][OUT_WORDS].
 */
KERNEL conv_lanes(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights,
                  const GLOBAL int16 *RESTRICT threshold, const GLOBAL uint *RESTRICT falling, GLOBAL uint *RESTRICT out,
                  int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % OUT_WORDS;
    const Origin at = window_origin(id / OUT_WORDS);
    const GLOBAL uint16 *low = weights + word * (2 * KERNEL_H * KERNEL_W * WORDS);
    const GLOBAL uint16 *high = low + KERNEL_H * KERNEL_W * WORDS;
    uint16 low_counts = 0, high_counts = 0;
    int16 low_sum = 0, high_sum = 0;
    int pending = 0, length = 0;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx) {
            const int pixel = window_pixel(at, ky, kx);
#if PAD_VALUE == 0
            if (pixel < 0) {
                low += WORDS;
                high += WORDS;
                continue;
            }
#endif
            length += CHANNELS;
            for (int i = 0; i < WORDS; ++i) {
#if PAD_VALUE > 0
                const uint outside = i == WORDS - 1 && CHANNELS % 32 ? (1u << CHANNELS % 32) - 1u : ~0u;
#else
                const uint outside = 0u;
#endif
                const uint seen = pixel < 0 ? outside : x[pixel * WORDS + i];
                low_counts += partial_counts(*low++ ^ seen);
                high_counts += partial_counts(*high++ ^ seen);
                if (++pending == MAX_PENDING) {
                    low_sum += sum_counts(low_counts);
                    high_sum += sum_counts(high_counts);
                    low_counts = high_counts = 0;
                    pending = 0;
                }
            }
        }
    low_sum = length - 2 * (low_sum + sum_counts(low_counts));
    high_sum = length - 2 * (high_sum + sum_counts(high_counts));
    const uint bits = lane_mask(low_sum >= threshold[2 * word]) | lane_mask(high_sum >= threshold[2 * word + 1]) << 16;
    out[id] = bits ^ falling[word];
}
