/* The first step of a network that takes thresholded images as NCHW float32: add a number a channel, take the sign, and
 * pack channels innermost. One thread an output word. The sum is rounded as the model rounds it.
 *
 * CHANNELS, WORDS = ceil(CHANNELS / 32), PIXELS of one image, ADDENDS 1 or CHANNELS, ZERO_IS_PLUS as in sign.h.
 */
KERNEL sign_planes(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT addend, GLOBAL uint *RESTRICT out,
                   int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id % WORDS * 32;
    const int pixel = id / WORDS % PIXELS, image = id / (WORDS * PIXELS);
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < CHANNELS; ++b) {
        const int channel = first + b;
        const float sum = x[(image * CHANNELS + channel) * PIXELS + pixel] + addend[ADDENDS > 1 ? channel : 0];
#if ZERO_IS_PLUS
        bits |= (uint)(sum >= 0.0f) << b;
#else
        bits |= (uint)(sum > 0.0f) << b;
#endif
    }
    out[id] = bits;
}
