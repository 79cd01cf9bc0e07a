/* The paper's convolution as a tiled product of packed patches and packed weights: each thread computes one element,
 * LENGTH - 2 popcount(a xor b), from tiles in local memory.
 *
 * TILE, INNER words a row of a [rows][INNER] and b [OUTPUTS][INNER], OUTPUTS, LENGTH. Launched as [TILE, TILE] threads
 * over [ceil(rows / TILE), ceil(OUTPUTS / TILE)] groups.
 */
KERNEL xnor_gemm(const GLOBAL uint *RESTRICT a, const GLOBAL uint *RESTRICT b, GLOBAL int *RESTRICT out, int rows)
{
    LOCAL_ARRAY(uint, tile_a, TILE * TILE);
    LOCAL_ARRAY(uint, tile_b, TILE * (TILE + 1)); /* one word more a row: its columns are read across banks */
    const int tx = LOCAL_ID(0), ty = LOCAL_ID(1);
    const int row = GROUP_ID(0) * TILE + ty, output = GROUP_ID(1) * TILE + tx;
    const int b_row = GROUP_ID(1) * TILE + ty;
    int differing = 0;
    for (int start = 0; start < INNER; start += TILE) {
        const int k = start + tx;
        tile_a[ty * TILE + tx] = row < rows && k < INNER ? a[row * INNER + k] : 0u;
        tile_b[ty * (TILE + 1) + tx] = b_row < OUTPUTS && k < INNER ? b[b_row * INNER + k] : 0u;
        BARRIER();
        for (int i = 0; i < TILE && start + i < INNER; ++i)
            differing += POPCOUNT(tile_a[ty * TILE + i] ^ tile_b[tx * (TILE + 1) + i]);
        BARRIER();
    }
    if (row < rows && output < OUTPUTS)
        out[row * OUTPUTS + output] = LENGTH - 2 * differing;
}
