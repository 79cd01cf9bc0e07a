/* Bits packed along one last axis, packed again along another: Reshape of bits, one thread an output word.
 *
 * FROM and TO: lengths of the last axes; FROM_WORDS, TO_WORDS = ceil(length / 32).
 */
KERNEL repack(const GLOBAL uint *RESTRICT x, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id % TO_WORDS * 32;
    const int row = id / TO_WORDS;
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < TO; ++b) {
        const int element = row * TO + first + b;
        const int from = element % FROM;
        bits |= (x[element / FROM * FROM_WORDS + from / 32] >> from % 32 & 1u) << b;
    }
    out[id] = bits;
}
