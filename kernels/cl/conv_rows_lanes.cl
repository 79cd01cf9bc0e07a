/* Convolution with thresholds for few channels, for CPUs: one thread an output row. A kernel row's bits, KERNEL_W x
 * CHANNELS of them, lie in one word that slides along the image, so a patch costs a shift a row instead of a gather;
 * ROWS_A_WORD kernel rows share a word of the patch.
 *
 * The defines of window.h (DILATION 1); CHANNELS with KERNEL_W * CHANNELS <= 32; ROWS_A_WORD; PATCH_WORDS =
 * ceil(KERNEL_H / ROWS_A_WORD); OUT_WORDS; PAD_VALUE -1 or +1 (or no padding). Weights are
 * [OUT_WORDS][2][PATCH_WORDS][LANES], thresholds [OUT_WORDS * 2 * LANES], out [pixels][OUT_WORDS].
 */
#define ROW_BITS (KERNEL_W * CHANNELS)
#define PIXEL_MASK ((1u << CHANNELS) - 1u)
#define OUTSIDE (PAD_VALUE > 0 ? PIXEL_MASK : 0u)

KERNEL conv_rows_lanes(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights,
                       const GLOBAL int16 *RESTRICT threshold, const GLOBAL uint *RESTRICT falling,
                       GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int top = id % OUT_HEIGHT * STRIDE_H - PAD_TOP;
    const GLOBAL uint *image = x + id / OUT_HEIGHT * (HEIGHT * WIDTH);
    uint window[KERNEL_H];
    for (int ky = 0; ky < KERNEL_H; ++ky)
        window[ky] = 0;
    int column = -PAD_LEFT; /* the next one to slide in, at the top end of each window */
    for (int ox = 0; ox < OUT_WIDTH; ++ox) {
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
            const GLOBAL uint16 *w = weights + word * (2 * PATCH_WORDS);
            uint16 low = 0, high = 0;
            for (int p = 0; p < PATCH_WORDS; ++p) {
                low += partial_counts(w[p] ^ patch[p]);
                high += partial_counts(w[PATCH_WORDS + p] ^ patch[p]);
            }
            const int16 low_sum = KERNEL_H * ROW_BITS - 2 * sum_counts(low);
            const int16 high_sum = KERNEL_H * ROW_BITS - 2 * sum_counts(high);
            const uint bits =
                lane_mask(low_sum >= threshold[2 * word]) | lane_mask(high_sum >= threshold[2 * word + 1]) << 16;
            out[(id * OUT_WIDTH + ox) * OUT_WORDS + word] = bits ^ falling[word];
        }
    }
}
