/* The rate of 1-bit tensor cores (compute capability 8.0 and later), for bench: no plan launches it. ROUNDS products
 * 16x8x256 of AND and population count in each of CHAINS independent accumulators of a warp.
 */
KERNEL tensor_core_limit(GLOBAL int *RESTRICT out)
{
    const int id = blockIdx.x * blockDim.x + threadIdx.x;
    int sums[CHAINS][4] = {};
    uint a[4], b[2];
    for (int i = 0; i < 4; ++i)
        a[i] = id * 2654435761u + i;
    for (int i = 0; i < 2; ++i)
        b[i] = id * 2246822519u + i;
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                         "{%8, %9}, {%0, %1, %2, %3};"
                         : "+r"(sums[i][0]), "+r"(sums[i][1]), "+r"(sums[i][2]), "+r"(sums[i][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    int sum = 0;
    for (int i = 0; i < CHAINS; ++i)
        for (int j = 0; j < 4; ++j)
            sum += sums[i][j];
    out[id] = sum;
}
