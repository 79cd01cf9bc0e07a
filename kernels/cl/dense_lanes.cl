/* Dense layer for CPUs, one thread an output: sixteen words of a weight vector at a time.
 *
 * WORDS a row of x, BLOCKS = ceil(WORDS / LANES), OUTPUTS, LENGTH. Weights are [OUTPUTS][BLOCKS][LANES].
 */
KERNEL dense_lanes(const GLOBAL uint *RESTRICT x, const GLOBAL uint16 *RESTRICT weights, GLOBAL int *RESTRICT out,
                   int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const GLOBAL uint *row = x + id / OUTPUTS * WORDS;
    const GLOBAL uint16 *w = weights + id % OUTPUTS * BLOCKS;
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
        counts += partial_counts(seen ^ w[i]);
        if (++pending == MAX_PENDING) {
            sums += sum_counts(counts);
            counts = 0;
            pending = 0;
        }
    }
    out[id] = LENGTH - 2 * sum_lanes(sums + sum_counts(counts));
}
