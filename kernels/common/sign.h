/* Real numbers to bits, one thread an output word. A comparison is false for NaN, so NaN gives bit 0.
 *
 * CHANNELS, WORDS = ceil(CHANNELS / 32), ZERO_IS_PLUS 1 where sign(0) = +1.
 */
KERNEL sign_pack(const GLOBAL float *RESTRICT x, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id % WORDS * 32;
    const GLOBAL float *row = x + (id / WORDS) * CHANNELS;
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < CHANNELS; ++b) {
#if ZERO_IS_PLUS
        bits |= (uint)(row[first + b] >= 0.0f) << b;
#else
        bits |= (uint)(row[first + b] > 0.0f) << b;
#endif
    }
    out[id] = bits;
}
