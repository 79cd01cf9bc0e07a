/* Convolution with thresholds for few channels, and pooling where it follows, for CPUs: one thread a pooled row. A kernel
 * row's bits, KERNEL_W x CHANNELS of them, lie in one word that slides along the image, so a patch costs a shift a row
 * instead of a gather; ROWS_A_WORD kernel rows share a word of the patch.
 *
 * The defines of window.h (DILATION 1); CHANNELS with KERNEL_W * CHANNELS <= 32; ROWS_A_WORD; PATCH_WORDS =
 * ceil(KERNEL_H / ROWS_A_WORD); OUT_WORDS; PAD_VALUE -1 or +1 (or no padding); POOL_H and POOL_W, 1 where nothing is
 * pooled, and POOLED_HEIGHT and POOLED_WIDTH. Weights are [OUT_WORDS][2][PATCH_WORDS][LANES], thresholds
 * [OUT_WORDS * 2 * LANES], out [pooled pixels][OUT_WORDS]. `minimum` has the channels that pool by AND.
 */
#define ROW_BITS (KERNEL_W * CHANNELS)
#define PIXEL_MASK ((1u << CHANNELS) - 1u)
#define OUTSIDE (PAD_VALUE > 0 ? PIXEL_MASK : 0u)

DEVICE uint patch_bits(const uint *patch, const GLOBAL uint16 *weights, const GLOBAL int16 *threshold)
{
    uint16 low = 0, high = 0;
    for (int p = 0; p < PATCH_WORDS; ++p) {
        low += partial_counts(weights[p] ^ patch[p]);
        high += partial_counts(weights[PATCH_WORDS + p] ^ patch[p]);
    }
    const int16 low_sum = KERNEL_H * ROW_BITS - 2 * sum_counts(low);
    const int16 high_sum = KERNEL_H * ROW_BITS - 2 * sum_counts(high);
    return lane_mask(low_sum >= threshold[0]) | lane_mask(high_sum >= threshold[1]) << 16;
}

KERNEL conv_rows_lanes(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights,
                       const GLOBAL int16 *RESTRICT threshold, const GLOBAL uint *RESTRICT falling,
                       const GLOBAL uint *RESTRICT minimum, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const GLOBAL uint *image = x + id / POOLED_HEIGHT * (HEIGHT * WIDTH);
    GLOBAL uint *out_row = out + id * (POOLED_WIDTH * OUT_WORDS);
    for (int y = 0; y < POOL_H; ++y) {
        const int top = (id % POOLED_HEIGHT * POOL_H + y) * STRIDE_H - PAD_TOP;
        uint window[KERNEL_H];
        for (int ky = 0; ky < KERNEL_H; ++ky)
            window[ky] = 0;
        int column = -PAD_LEFT; /* the next one to slide in, at the top end of each window */
        for (int ox = 0; ox < POOLED_WIDTH * POOL_W; ++ox) {
            const int last = ox * STRIDE_W - PAD_LEFT + KERNEL_W;
            for (; column < last; ++column)
                for (int ky = 0; ky < KERNEL_H; ++ky) {
                    const int row = top + ky;
                    const int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
                    const uint pixel = inside ? image[row * WIDTH + column] : OUTSIDE;
                    window[ky] = window[ky] >> CHANNELS | pixel << (ROW_BITS - CHANNELS);
                }
            uint patch[PATCH_WORDS];
            for (int p = 0; p < PATCH_WORDS; ++p) {
                patch[p] = 0;
                for (int r = 0; r < ROWS_A_WORD && p * ROWS_A_WORD + r < KERNEL_H; ++r)
                    patch[p] |= window[p * ROWS_A_WORD + r] << r * ROW_BITS;
            }
            for (int word = 0; word < OUT_WORDS; ++word) {
                const uint bits =
                    patch_bits(patch, weights + word * (2 * PATCH_WORDS), threshold + 2 * word) ^ falling[word];
                /* The first tap of a pool sets its word, the others join it: by OR, or by AND where minimum is set. */
                GLOBAL uint *pooled = out_row + ox / POOL_W * OUT_WORDS + word;
                const int first = y == 0 && ox % POOL_W == 0;
                *pooled = first ? bits : (*pooled | bits) & ~minimum[word] | *pooled & bits & minimum[word];
            }
        }
    }
}
