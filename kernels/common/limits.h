/* What a device can do at best, for bench: no plan launches these.
 *
 * `nothing`: what a launch costs. `popcounts`: CHAINS independent sums of popcount(a xor b) a thread, ROUNDS times, as
 * in the inner loop of a convolution.
 */
KERNEL nothing(GLOBAL int *RESTRICT out)
{
}

KERNEL popcounts(GLOBAL int *RESTRICT out)
{
    const int id = GLOBAL_ID(0);
    uint words[CHAINS];
    int sums[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
        words[i] = (uint)id * 2654435761u + (uint)i;
        sums[i] = 0;
    }
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            sums[i] += POPCOUNT(words[i] ^ (uint)round);
    }
    int sum = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
        sum += sums[i];
    out[id] = sum;
}
