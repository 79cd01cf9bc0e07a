/* dense_segments.h with the partial sums reduced by shuffles: within a warp without local memory or barriers, and once
 * through local memory where there are several warps. Same arguments and launch; SEGMENTS a power of two up to 1024.
 */
KERNEL dense_segments_shuffle(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights,
                              GLOBAL int *RESTRICT out)
{
    const int segment = threadIdx.x, output = blockIdx.x % OUTPUTS, image = blockIdx.x / OUTPUTS;
    int differing = 0;
    for (int i = segment; i < WORDS; i += SEGMENTS)
        differing += __popc(x[image * WORDS + i] ^ weights[output * WORDS + i]);
    constexpr int width = SEGMENTS < 32 ? SEGMENTS : 32;
    constexpr uint lanes = SEGMENTS < 32 ? (1u << width % 32) - 1u : 0xffffffffu;
    for (int span = width / 2; span > 0; span /= 2)
        differing += __shfl_down_sync(lanes, differing, span, width);
    if constexpr (SEGMENTS > 32) {
        __shared__ int partial[SEGMENTS / 32];
        if (segment % 32 == 0)
            partial[segment / 32] = differing;
        __syncthreads();
        differing = 0;
        for (int warp = 0; warp < SEGMENTS / 32; ++warp)
            differing += partial[warp];
    }
    if (segment == 0)
        out[blockIdx.x] = LENGTH - 2 * differing;
}
