/* Channel-packed direct convolution with thresholds, and pooling where it follows, for CPUs: one thread a pooled pixel and
 * block of 32 outputs.
 *
 * The defines of window.h; CHANNELS, WORDS = ceil(CHANNELS / 32); OUT_WORDS; PAD_VALUE; POOL_H and POOL_W, 1 where
 * nothing is pooled, and POOLED_HEIGHT and POOLED_WIDTH. Weights are [OUT_WORDS][2][KERNEL_H][KERNEL_W][WORDS][LANES],
 * thresholds [OUT_WORDS * 2 * LANES], out [pooled pixels][OUT_WORDS]. `minimum` has the channels that pool by AND.
 */
DEVICE uint conv_lanes_at(const GLOBAL uint *x, const GLOBAL uint16 *weights, const GLOBAL int16 *threshold, Origin at)
{
    const GLOBAL uint16 *low = weights, *high = weights + KERNEL_H * KERNEL_W * WORDS;
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
                const uint outside = i == WORDS - 1 ? ~0u >> (32 * WORDS - CHANNELS) : ~0u;
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
    return lane_mask(low_sum >= threshold[0]) | lane_mask(high_sum >= threshold[1]) << 16;
}

KERNEL conv_lanes(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights,
                  const GLOBAL int16 *RESTRICT threshold, const GLOBAL uint *RESTRICT falling,
                  const GLOBAL uint *RESTRICT minimum, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % OUT_WORDS, pooled = id / OUT_WORDS;
    const int column = pooled % POOLED_WIDTH * POOL_W, row = pooled / POOLED_WIDTH % POOLED_HEIGHT * POOL_H;
    const int image = pooled / (POOLED_WIDTH * POOLED_HEIGHT);
    const uint flip = falling[word] ^ minimum[word];
    uint any = 0;
    for (int y = 0; y < POOL_H; ++y)
        for (int i = 0; i < POOL_W; ++i) {
            const Origin at = window_origin((image * OUT_HEIGHT + row + y) * OUT_WIDTH + column + i);
            any |= flip ^ conv_lanes_at(x, weights + word * (2 * KERNEL_H * KERNEL_W * WORDS), threshold + 2 * word, at);
        }
    out[id] = any ^ minimum[word];
}
