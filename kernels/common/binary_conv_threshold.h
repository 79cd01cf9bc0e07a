/* binary_conv.h, then integer thresholds and packing, one thread an output word: accumulators never leave registers.
 *
 * OUT_WORDS = ceil(OUTPUTS / 32).
 */
KERNEL binary_conv_threshold(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights,
                             const GLOBAL int *RESTRICT spans, const GLOBAL uint *RESTRICT masks,
                             const GLOBAL int *RESTRICT threshold, const GLOBAL uint *RESTRICT falling,
                             GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % OUT_WORDS;
    const int first = word * 32;
    const Origin at = window_origin(id / OUT_WORDS);
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < OUTPUTS; ++b) {
        const int sum = binary_conv_at(x, weights, spans, masks, at, first + b);
        bits |= (uint)(sum >= threshold[first + b]) << b;
    }
    out[id] = bits ^ falling[word];
}
