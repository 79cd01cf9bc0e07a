/* Bits of the last axis by constant indices, one thread an output word.
 *
 * WORDS of a row of x; PICKED bits of a row of the output, PICKED_WORDS = ceil(PICKED / 32).
 */
KERNEL gather_bits(const GLOBAL uint *RESTRICT x, const GLOBAL int *RESTRICT indices, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id % PICKED_WORDS * 32;
    const GLOBAL uint *row = x + id / PICKED_WORDS * WORDS;
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < PICKED; ++b) {
        const int from = indices[first + b];
        bits |= (row[from / 32] >> from % 32 & 1u) << b;
    }
    out[id] = bits;
}
