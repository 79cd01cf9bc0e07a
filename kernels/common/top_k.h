/* The TAKEN greatest (LEAST 1: least) elements of a row, best first: one thread an input element, which counts how many come
 * before it. NaN is greater than all numbers; of equal elements the first comes first.
 *
 * CHANNELS of a row, TAKEN, LEAST; INDICES 1 for indices (int) instead of values (float).
 */
#if INDICES
typedef int taken;
#else
typedef float taken;
#endif

KERNEL top_k(const GLOBAL float *RESTRICT x, GLOBAL taken *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int channel = id % CHANNELS;
    const GLOBAL float *row = x + (id - channel);
    const float value = row[channel];
    const int nan = value != value;
    int before = 0;
    for (int c = 0; c < CHANNELS; ++c) {
        const int other_nan = row[c] != row[c];
        const int equal = row[c] == value || (nan && other_nan);
        before += equal ? c < channel : LEAST ? nan || row[c] < value : other_nan || row[c] > value;
    }
    if (before < TAKEN)
#if INDICES
        out[id / CHANNELS * TAKEN + before] = channel;
#else
        out[id / CHANNELS * TAKEN + before] = value;
#endif
}
