/* xnor_gemm.h, with thresholds and packing before anything is stored: a row of 32 threads computes an output word.
 *
 * ROWS, TILE words of a row of a [rows][INNER] and b [OUTPUTS][INNER] at once, OUTPUTS, OUT_WORDS. A group goes through
 * REPEATS times ROWS rows, and loads b once where a row of it is one tile. A bit is (differing <= limits) != falling;
 * limits [OUT_WORDS * 32]. Launched as [32, ROWS] threads over [ceil(rows / (ROWS * REPEATS)), OUT_WORDS] groups.
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
    const int lane = LOCAL_ID(0), ty = LOCAL_ID(1), thread = ty * LANES + lane;
    const int word = GROUP_ID(1), output = word * LANES + lane;
    const int limit = limits[output];
    const uint below = falling[word] >> lane & 1u;
    for (int repeat = 0; repeat < REPEATS; ++repeat) {
        const int first = (GROUP_ID(0) * REPEATS + repeat) * ROWS, row = first + ty;
        int differing = 0;
        for (int start = 0; start < INNER; start += TILE) {
            for (int i = thread; i < ROWS * TILE; i += ROWS * LANES) {
                const int k = start + i % TILE, at = first + i / TILE;
                tile_a[i] = at < rows && k < INNER ? a[at * INNER + k] : 0u;
            }
            for (int i = INNER > TILE || repeat == 0 ? thread : LANES * TILE; i < LANES * TILE; i += ROWS * LANES) {
                const int k = start + i % TILE, at = word * LANES + i / TILE;
                tile_b[i / TILE * (TILE | 1) + i % TILE] = at < OUTPUTS && k < INNER ? b[at * INNER + k] : 0u;
            }
            BARRIER();
#pragma unroll
            for (int i = 0; i < TILE; ++i)
                differing += POPCOUNT(tile_a[ty * TILE + i] ^ tile_b[lane * (TILE | 1) + i]);
            BARRIER();
        }
        const uint vote = (uint)(differing <= limit) ^ below;
#if HAS_BALLOT
        const uint bits = BALLOT(vote);
#else
        votes[thread] = (uchar)vote;
        BARRIER();
        uint bits = 0;
        for (int i = 0; lane == 0 && i < LANES; ++i)
            bits |= (uint)votes[ty * LANES + i] << i;
        BARRIER();
#endif
        if (lane == 0 && row < rows)
            out[row * OUT_WORDS + word] = bits;
    }
}
