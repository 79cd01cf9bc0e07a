/* limits.h for CPUs: vectors count bits as in lanes.cl, and no plan launches it. 16 CHAINS BLOCK words a round and thread. */
#define BLOCK 31

KERNEL popcounts_lanes(GLOBAL int *RESTRICT out)
{
    const int id = GLOBAL_ID(0);
    uint16 words[CHAINS];
    int16 sums = 0;
    for (int i = 0; i < CHAINS; ++i)
        words[i] = (uint16)((uint)id * 2654435761u + (uint)i);
    for (int round = 0; round < ROUNDS; ++round) {
        uint16 counts[CHAINS];
        for (int i = 0; i < CHAINS; ++i)
            counts[i] = 0;
        for (int block = 0; block < BLOCK; ++block)
            for (int i = 0; i < CHAINS; ++i)
                counts[i] += partial_counts(words[i] ^ (uint)(round * BLOCK + block));
        for (int i = 0; i < CHAINS; ++i)
            sums += sum_counts(counts[i]);
    }
    out[id] = sum_lanes(sums);
}
