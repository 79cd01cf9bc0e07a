/* xnor_gemm.h, with thresholds and packing before anything is stored: a row of 32 threads computes an output word.
 *
 * ROWS, TILE words of a row of a [rows][INNER] and b [OUTPUTS][INNER] at once, OUTPUTS, OUT_WORDS. A bit is
 * (differing <= limits) != falling; limits [OUT_WORDS * 32].
 * Launched as [32, ROWS] threads over [ceil(rows / ROWS), OUT_WORDS] groups.
 */
#define LANES 32

KERNEL xnor_gemm_threshold(const GLOBAL uint *RESTRICT a, const GLOBAL uint *RESTRICT b, const GLOBAL int *RESTRICT limits,
                           const GLOBAL uint *RESTRICT falling, GLOBAL uint *RESTRICT out, int rows)
{
    LOCAL_ARRAY(uint, tile_a, ROWS * TILE);
    LOCAL_ARRAY(uint, tile_b, LANES * (TILE | 1)); /* an odd row: its columns are read across banks */
#if !HAS_BALLOT
    LOCAL_ARRAY(uchar, votes, ROWS * LANES);
#endif
    const int lane = LOCAL_ID(0), ty = LOCAL_ID(1), word = GROUP_ID(1), first = GROUP_ID(0) * ROWS;
    const int row = first + ty, output = word * LANES + lane;
    int differing = 0;
    for (int start = 0; start < INNER; start += TILE) {
        for (int i = ty * LANES + lane; i < ROWS * TILE; i += ROWS * LANES) {
            const int k = start + i % TILE, at = first + i / TILE;
            tile_a[i] = at < rows && k < INNER ? a[at * INNER + k] : 0u;
        }
        for (int i = ty * LANES + lane; i < LANES * TILE; i += ROWS * LANES) {
            const int k = start + i % TILE, at = word * LANES + i / TILE;
            tile_b[i / TILE * (TILE | 1) + i % TILE] = at < OUTPUTS && k < INNER ? b[at * INNER + k] : 0u;
        }
        BARRIER();
#pragma unroll
        for (int i = 0; i < TILE; ++i)
            differing += POPCOUNT(tile_a[ty * TILE + i] ^ tile_b[lane * (TILE | 1) + i]);
        BARRIER();
    }
    const uint vote = (uint)(differing <= limits[output]) ^ (falling[word] >> lane & 1u);
#if HAS_BALLOT
    const uint bits = BALLOT(vote);
#else
    votes[ty * LANES + lane] = (uchar)vote;
    BARRIER();
    uint bits = 0;
    for (int i = 0; lane == 0 && i < LANES; ++i)
        bits |= (uint)votes[ty * LANES + i] << i;
#endif
    if (lane == 0 && row < rows)
        out[row * OUT_WORDS + word] = bits;
}
