/* OR of the bits under a window, or AND in the channels of `minimum`; one thread an output word.
 * AND is the complement of the OR of complements, and taps outside the image add nothing to either.
 *
 * The defines of window.h, WORDS.
 */
KERNEL bit_pool(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT minimum, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % WORDS;
    const Origin at = window_origin(id / WORDS);
    const uint flip = minimum[word];
    uint any = 0;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx) {
            const int pixel = window_pixel(at, ky, kx);
            if (pixel >= 0)
                any |= x[pixel * WORDS + word] ^ flip;
        }
    out[id] = any ^ flip;
}
