/* Integers to bits, one thread an output word: bit = (x >= threshold) != falling.
 *
 * SOURCE int or uchar, CHANNELS of the bits, WORDS = ceil(CHANNELS / 32), SOURCE_CHANNELS of the integers: bit channel c
 * is of integer channel c mod SOURCE_CHANNELS.
 */
KERNEL threshold_pack(const GLOBAL SOURCE *RESTRICT x, const GLOBAL int *RESTRICT threshold,
                      const GLOBAL uint *RESTRICT falling, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int word = id % WORDS;
    const int first = word * 32;
    const GLOBAL SOURCE *row = x + (id / WORDS) * SOURCE_CHANNELS;
    uint bits = 0;
    for (int b = 0; b < 32 && first + b < CHANNELS; ++b)
        bits |= (uint)((int)row[(first + b) % SOURCE_CHANNELS] >= threshold[first + b]) << b;
    out[id] = bits ^ falling[word];
}
