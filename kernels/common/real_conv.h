/* Convolution of real numbers, padded with 0, one thread an output element; a dense layer is the 1x1 case.
 * Summed from 0 over (row, column, channel), products rounded first: the order is part of the result.
 *
 * The defines of window.h; CHANNELS, GROUPS, OUTPUTS; WEIGHT_BITS 1 where the weights are +-1, packed in WEIGHT_WORDS a
 * row, and 0 where they are float32.
 */
#define GROUP_CHANNELS (CHANNELS / GROUPS)
#define ROW (KERNEL_H * KERNEL_W * GROUP_CHANNELS)

#if WEIGHT_BITS
#define WEIGHT uint
#else
#define WEIGHT float
#endif

KERNEL real_conv(const GLOBAL float *RESTRICT x, const GLOBAL WEIGHT *RESTRICT weights, GLOBAL float *RESTRICT out,
                 int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int output = id % OUTPUTS;
    const int group = output / (OUTPUTS / GROUPS);
    const Origin at = window_origin(id / OUTPUTS);
#if WEIGHT_BITS
    const GLOBAL uint *row = weights + output * WEIGHT_WORDS;
#else
    const GLOBAL float *row = weights + output * ROW;
#endif
    float total = 0.0f;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx) {
            const int pixel = window_pixel(at, ky, kx);
            if (pixel < 0)
                continue;
            const GLOBAL float *seen = x + pixel * CHANNELS + group * GROUP_CHANNELS;
            const int first = (ky * KERNEL_W + kx) * GROUP_CHANNELS;
            for (int c = 0; c < GROUP_CHANNELS; ++c) {
#if WEIGHT_BITS
                const int k = first + c;
                total += (row[k / 32] >> k % 32 & 1u) ? seen[c] : -seen[c];
#else
                const float product = seen[c] * row[first + c];
                total += product;
#endif
            }
        }
    out[id] = total;
}
