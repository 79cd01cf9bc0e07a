/* Accumulators, pixels or bits (as +-1) to float32, one thread an element.
 *
 * SOURCE int, uchar or uint (bits); BITS 1 where x is packed, with CHANNELS and WORDS = ceil(CHANNELS / 32).
 */
KERNEL to_float(const GLOBAL SOURCE *RESTRICT x, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
#if BITS
    const int channel = id % CHANNELS;
    const uint word = x[id / CHANNELS * WORDS + channel / 32];
    out[id] = (word >> channel % 32 & 1u) ? 1.0f : -1.0f;
#else
    out[id] = (float)x[id];
#endif
}
