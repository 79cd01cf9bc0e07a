/* Bits packed along one last axis, packed again along another: Reshape of bits, one thread an output word.
 *
 * FROM and TO: lengths of the last axes; FROM_WORDS, TO_WORDS = ceil(length / 32); ROWS rows of TO in an image, and
 * IMAGE_WORDS words of one in x. Bits are counted within an image: those of a batch may be more than an int holds.
 */
KERNEL repack(const GLOBAL uint *RESTRICT x, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id % TO_WORDS * 32;
    const int row = id / TO_WORDS % ROWS;
    const GLOBAL uint *image = x + id / (TO_WORDS * ROWS) * IMAGE_WORDS;
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < TO; ++b) {
        const int element = row * TO + first + b;
        const int from = element % FROM;
        bits |= (image[element / FROM * FROM_WORDS + from / 32] >> from % 32 & 1u) << b;
    }
    out[id] = bits;
}
