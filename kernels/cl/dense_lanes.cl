/* Dense layers for CPUs: sixteen words of a weight vector at a time.
 *
 * WORDS a row of x, BLOCKS = ceil(WORDS / LANES), OUTPUTS, LENGTH. Weights are [OUTPUTS][BLOCKS][LANES].
 */
DEVICE int dense_lanes_at(const GLOBAL uint *row, const GLOBAL uint16 *weights)
{
    uint16 counts = 0;
    int16 sums = 0;
    int pending = 0;
    for (int i = 0; i < BLOCKS; ++i) {
        uint16 seen;
        if ((i + 1) * LANES <= WORDS) {
            seen = vload16(i, row);
        } else { /* the last, partial block: words beyond the row count as 0, as in the weights */
            uint rest[LANES];
            for (int j = 0; j < LANES; ++j)
                rest[j] = i * LANES + j < WORDS ? row[i * LANES + j] : 0u;
            seen = vload16(0, rest);
        }
        counts += partial_counts(seen ^ weights[i]);
        if (++pending == MAX_PENDING) {
            sums += sum_counts(counts);
            counts = 0;
            pending = 0;
        }
    }
    return LENGTH - 2 * sum_lanes(sums + sum_counts(counts));
}

/* To accumulators, one thread an output. */
KERNEL dense_lanes(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights, GLOBAL int *RESTRICT out,
                   int count)
{
    const int id = GLOBAL_ID(0);
    if (id < count)
        out[id] = dense_lanes_at(x + id / OUTPUTS * WORDS, weights + id % OUTPUTS * BLOCKS);
}

/* To bits, one thread an output word. */
KERNEL dense_lanes_threshold(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights,
                             const GLOBAL int *RESTRICT threshold, const GLOBAL uint *RESTRICT falling,
                             GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % OUT_WORDS, first = word * 32;
    const GLOBAL uint *row = x + id / OUT_WORDS * WORDS;
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < OUTPUTS; ++b)
        bits |= (uint)(dense_lanes_at(row, weights + (first + b) * BLOCKS) >= threshold[first + b]) << b;
    out[id] = bits ^ falling[word];
}
