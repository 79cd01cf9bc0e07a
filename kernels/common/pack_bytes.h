/* Bytes of 0 and 1 to words: the second half of what patch_pack.h does at once. One thread a word.
 *
 * LENGTH bytes a row, PACK_WIDTH bits a word, PATCH_WORDS = ceil(LENGTH / PACK_WIDTH).
 */
KERNEL pack_bytes(const GLOBAL uchar *RESTRICT x, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id % PATCH_WORDS * PACK_WIDTH;
    const GLOBAL uchar *row = x + id / PATCH_WORDS * LENGTH;
    uint packed = 0;
    for (int bit = 0; bit < PACK_WIDTH && first + bit < LENGTH; ++bit)
        packed |= (uint)row[first + bit] << bit;
    out[id] = packed;
}
