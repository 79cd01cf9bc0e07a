/* Binary convolution on 1-bit tensor cores (native on compute capability 8.0 to 9.0), with thresholds of pixels before it
 * and thresholds, pooling and packing after it. A block computes one output word (32 channels) of a tile of the image;
 * its part of x, halo included, is loaded once into shared memory.
 *
 * A warp multiplies 16 pixels with 8 channels, 256 bits at a time: mma.m16n8k256 adds popcount(a and w) to 16 x 8 sums.
 * Its 16 pixels make 2 x 8 results: lane 4 r + t has column r of both rows, and of the products the channels 8 t to
 * 8 t + 7 (the host orders the weights so), which become a byte of the output word. From "and" to differing bits:
 *     differing = |a| + |w| - 2 |a and w|.
 * |a| is one more product, with ones. Where a window has at most 4 words, COMPLEMENT 1 takes [a, ~a] and [w, ~w] instead:
 * one product counts the bits that agree. `limits` has what is known beforehand, so that a test is the sign of a sum.
 *
 * The defines of window.h; PIXEL_WORDS words a pixel of x, PIXEL_STRIDE in shared memory; INNER words a window, CHUNKS
 * times 8 with those of weight 0; OUTPUTS, OUT_WORDS. POOL_H x POOL_W pixels make one result (1 x 1 without pooling)
 * over RESULT_HEIGHT x RESULT_WIDTH; a block has TILE_H x TILE_W results, multiples of 2 x 8, and WARPS warps, and
 * HALO_H x HALO_W pixels of x lie under a tile. A warp has SPAN times 2 x 8 results at once, MEMBERS pixels of each.
 * PIXELS 1: x is uchar [H][W][PIXEL_CHANNELS], and bit c of CHANNELS is (x[c mod PIXEL_CHANNELS] >= levels[c]) != flips;
 * otherwise x is packed. BLOCK_H x BLOCK_W taps of few CHANNELS make one word, without gaps (1 x 1: a tap has its words).
 * PAD_MASK: bits of a word outside the image. COLUMN_CLASSES: border classes along a row; classes [OUT_HEIGHT] and
 * [OUT_WIDTH] number them, and `limits` has for each class and channel what the taps outside the image contribute.
 * BITS 1: a result is (the test != falling), pooled by OR, or by AND where `minimum`, 32 to a word; a test is
 *     COMPLEMENT 1: and + limit >= 0,
 *     otherwise 2 (and + limit) - |a| >= 0, or with border classes 2 and + limit - |a| >= 0.
 * BITS 0: results are the accumulators, int32: limit + 2 and, or limit + 4 and - 2 |a|. IN_REGISTERS: weights stay there.
 * `taps` [CHUNKS * 8]: where a word of a window lies from its corner. Weights are [OUT_WORDS][CHUNKS][2][32 lanes] of
 * uint4, limits [classes][OUT_WORDS * 32]. Launched over blocks [tiles, OUT_WORDS, batch].
 */
#define LANES 32
#define THREADS (WARPS * LANES)
#define POOLED (POOL_H * POOL_W)
#define ACROSS (TILE_W / 8)
#define TILES_ACROSS ((RESULT_WIDTH + TILE_W - 1) / TILE_W)
#define HALO (HALO_H * HALO_W)
/* Words of x that a thread has asked for at once. */
#define AHEAD (HALO * PIXEL_WORDS > 3 * THREADS ? 4 : (HALO * PIXEL_WORDS + THREADS - 1) / THREADS)
/* From a result to the one in the next row. */
#define BELOW (POOL_H * STRIDE_H * HALO_W * PIXEL_STRIDE)

#if PIXELS
#define SOURCE uchar
#else
#define SOURCE uint
#endif

#ifndef MULTIPLY
#define MULTIPLY(d, a, b0, b1)                                                                                         \
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, "      \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                         \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
/* The same where all words but the first four of a chunk are 0. */
#define MULTIPLY_HALF(d, a, b0)                                                                                        \
    asm volatile("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5}, {%6}, "        \
                 "{%0, %1, %2, %3};"                                                                                   \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(b0))
#endif
/* Keeps the compiler from computing with what is loaded before all loads are on their way: it would wait. */
#define NOT_BEFORE(a, b) asm volatile("" : "+r"(a), "+r"(b))
#define AT_ONCE (SPAN * MEMBERS)

/* Adds what 8 words of the windows give, or `half` of them: 16 pixels of each corner and member from `member` on. The words
 * lie at near and far; those of b0 and b1 are the weights, and `one` and `other` the ones that they meet.
 */
DEVICE void multiply(int sums[AT_ONCE][4][4], int ones[AT_ONCE][4], const uint *const corners[SPAN], int member, int near,
                     int far, uint4 b0, uint4 b1, uint one, uint other, int half)
{
#pragma unroll
    for (int m = 0; m < AT_ONCE; ++m) {
        const int q = member + m % MEMBERS;
        const uint *const at =
            corners[m / MEMBERS] + (q / POOL_W * STRIDE_H * HALO_W + q % POOL_W * STRIDE_W) * PIXEL_STRIDE;
        uint a[4];
        a[0] = at[near];
        a[1] = at[near + BELOW];
        if (half) {
            MULTIPLY_HALF(ones[m], a, one);
            MULTIPLY_HALF(sums[m][0], a, b0.x);
            MULTIPLY_HALF(sums[m][1], a, b0.z);
            MULTIPLY_HALF(sums[m][2], a, b1.x);
            MULTIPLY_HALF(sums[m][3], a, b1.z);
        } else {
#if COMPLEMENT
            a[2] = ~a[0];
            a[3] = ~a[1];
#else
            a[2] = at[far];
            a[3] = at[far + BELOW];
            MULTIPLY(ones[m], a, one, other);
#endif
            MULTIPLY(sums[m][0], a, b0.x, b0.y);
            MULTIPLY(sums[m][1], a, b0.z, b0.w);
            MULTIPLY(sums[m][2], a, b1.x, b1.y);
            MULTIPLY(sums[m][3], a, b1.z, b1.w);
        }
    }
}

KERNEL conv_tensor(const GLOBAL SOURCE *RESTRICT x, const GLOBAL int *RESTRICT levels,
                   const GLOBAL uint *RESTRICT flips, const GLOBAL int *RESTRICT taps,
                   const GLOBAL uint4 *RESTRICT weights, const GLOBAL int *RESTRICT classes,
                   const GLOBAL int4 *RESTRICT limits, const GLOBAL uint *RESTRICT falling,
                   const GLOBAL uint *RESTRICT minimum, GLOBAL RESULT *RESTRICT out)
{
    /* The last blocks of taps reach past the halo: those bits meet weights of 0. */
    LOCAL_ARRAY(uint, halo, HALO *PIXEL_STRIDE + (BLOCK_H - 1) * DILATION_H * HALO_W + (BLOCK_W - 1) * DILATION_W);
#if BLOCK_H * BLOCK_W > 1
    LOCAL_ARRAY(uint, blocks, HALO);
    const uint *const seen = blocks;
#else
    const uint *const seen = halo;
#endif
    const int lane = LOCAL_ID(0), warp = LOCAL_ID(1), item = warp * LANES + lane;
    const int column = lane >> 2, quarter = lane & 3;
    const int word = GROUP_ID(1), image = GROUP_ID(2);
    const int first_y = GROUP_ID(0) / TILES_ACROSS * TILE_H, first_x = GROUP_ID(0) % TILES_ACROSS * TILE_W;
    const int top = first_y * POOL_H * STRIDE_H - PAD_TOP, left = first_x * POOL_W * STRIDE_W - PAD_LEFT;

    const uint4 *const w = weights + word * (CHUNKS * 2 * LANES) + lane;
#if IN_REGISTERS
    uint4 kept[CHUNKS][2];
    int places[CHUNKS][2];
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            kept[chunk][half] = w[(chunk * 2 + half) * LANES];
            places[chunk][half] = taps[chunk * 8 + half * 4 + quarter];
        }
#endif
#if COLUMN_CLASSES == 0
    int4 lower = limits[word * 8 + quarter * 2], upper = limits[word * 8 + quarter * 2 + 1];
#endif
#if BITS
    uint minima = minimum[word], below = falling[word];
#endif

#pragma unroll 1
    for (int start = item; start < HALO * PIXEL_WORDS; start += AHEAD * THREADS) {
        uint words[AHEAD];
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead) {
            const int i = start + ahead * THREADS;
            const int y = top + i / (HALO_W * PIXEL_WORDS), at = left + i / PIXEL_WORDS % HALO_W;
            const int inside = y >= 0 && y < HEIGHT && at >= 0 && at < WIDTH;
            const uint outside = i % PIXEL_WORDS == PIXEL_WORDS - 1 ? PAD_MASK_LAST : PAD_MASK;
            /* Read in any case: loads behind a branch would wait for one another. */
            const int pixel = inside ? (image * HEIGHT + y) * WIDTH + at : 0;
#if PIXELS
            uint bits = flips[0];
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                bits ^= (uint)((int)x[pixel * PIXEL_CHANNELS + c % PIXEL_CHANNELS] >= levels[c]) << c;
#else
            const uint bits = x[pixel * PIXEL_WORDS + i % PIXEL_WORDS];
#endif
            words[ahead] = inside ? bits : outside;
        }
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead) {
            const int i = start + ahead * THREADS;
            if (i < HALO * PIXEL_WORDS)
                halo[i / PIXEL_WORDS * PIXEL_STRIDE + i % PIXEL_WORDS] = words[ahead];
        }
    }
    BARRIER();

#if BLOCK_H * BLOCK_W > 1
    for (int i = item; i < HALO; i += THREADS) {
        uint packed = 0;
#pragma unroll
        for (int tap = 0; tap < BLOCK_H * BLOCK_W; ++tap)
            packed |= halo[i + tap / BLOCK_W * DILATION_H * HALO_W + tap % BLOCK_W * DILATION_W] << tap * CHANNELS;
        blocks[i] = packed;
    }
    BARRIER();
#endif

#if COLUMN_CLASSES == 0
    NOT_BEFORE(lower.x, lower.y);
    NOT_BEFORE(lower.z, lower.w);
    NOT_BEFORE(upper.x, upper.y);
    NOT_BEFORE(upper.z, upper.w);
    const int bias[8] = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
#endif
#if BITS
    NOT_BEFORE(minima, below);
    /* For both rows: what turns signs, set where a test fails, into bits to be pooled by OR; and what turns them back. */
    const uint least = (minima >> 8 * quarter & 0xffu) * 0x101u;
    const uint turned = ~((below >> 8 * quarter & 0xffu) * 0x101u ^ least);
#endif

    for (int first = warp * SPAN; first < TILE_H / 2 * ACROSS; first += WARPS * SPAN) {
        const uint *corners[SPAN];
#if BITS
        uint any[SPAN] = {};
#endif
#pragma unroll
        for (int s = 0; s < SPAN; ++s) {
            const int y = (first + s) / ACROSS * 2, at = (first + s) % ACROSS * 8 + column;
            corners[s] = seen + (y * POOL_H * STRIDE_H * HALO_W + at * POOL_W * STRIDE_W) * PIXEL_STRIDE;
        }
        for (int member = 0; member < POOLED; member += MEMBERS) {
            int sums[AT_ONCE][4][4], ones[AT_ONCE][4];
#pragma unroll
            for (int m = 0; m < AT_ONCE; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    ones[m][i] = 0;
#pragma unroll
                    for (int n = 0; n < 4; ++n)
#if BITS && COLUMN_CLASSES == 0
                        sums[m][n][i] = bias[2 * n + i % 2];
#else
                        sums[m][n][i] = 0;
#endif
                }
#if IN_REGISTERS
#define WEIGHTS(chunk, half) kept[chunk][half]
#define PLACE(chunk, half) places[chunk][half]
#pragma unroll
#else
#define WEIGHTS(chunk, half) w[((chunk) * 2 + half) * LANES]
#define PLACE(chunk, half) taps[(chunk) * 8 + half * 4 + quarter]
#pragma unroll (AT_ONCE < 4 ? 4 / AT_ONCE : 1)
#endif
            for (int chunk = 0; chunk < CHUNKS - 1; ++chunk)
                multiply(sums, ones, corners, member, PLACE(chunk, 0), PLACE(chunk, 1), WEIGHTS(chunk, 0),
                         WEIGHTS(chunk, 1), 0xffffffffu, 0xffffffffu, 0);
            const int left_over = INNER - (CHUNKS - 1) * 8;
            multiply(sums, ones, corners, member, PLACE(CHUNKS - 1, 0), PLACE(CHUNKS - 1, 1), WEIGHTS(CHUNKS - 1, 0),
                     WEIGHTS(CHUNKS - 1, 1), quarter < left_over ? 0xffffffffu : 0u,
                     4 + quarter < left_over ? 0xffffffffu : 0u, !COMPLEMENT && left_over <= 4);

#pragma unroll
            for (int m = 0; m < AT_ONCE; ++m) {
#if BITS
                uint failed = 0;
#endif
#pragma unroll
                for (int row = 1; row >= 0; --row) {
#if COLUMN_CLASSES > 0 || !BITS
                    const int group = first + m / MEMBERS;
                    const int y = first_y + group / ACROSS * 2 + row, at = first_x + group % ACROSS * 8 + column;
                    const int inside = y < RESULT_HEIGHT && at < RESULT_WIDTH;
#endif
#if COLUMN_CLASSES > 0
                    /* Results past the last one are computed from what lies there, and dropped. */
                    const int q = member + m % MEMBERS;
                    const int pixel_y = inside ? y * POOL_H + q / POOL_W : 0;
                    const int pixel_x = inside ? at * POOL_W + q % POOL_W : 0;
                    const int border = classes[pixel_y] * COLUMN_CLASSES + classes[OUT_HEIGHT + pixel_x];
                    const int4 *const own = limits + (border * OUT_WORDS + word) * 8 + quarter * 2;
                    const int4 lower = own[0], upper = own[1];
                    const int bias[8] = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
#endif
#if BITS
#pragma unroll
                    for (int i = 7; i >= 0; --i) {
                        int margin = sums[m][i / 2][2 * row + i % 2];
#if !COMPLEMENT && COLUMN_CLASSES > 0
                        margin = 2 * margin + (bias[i] - ones[m][2 * row]);
#elif !COMPLEMENT
                        margin = 2 * margin - ones[m][2 * row];
#elif COLUMN_CLASSES > 0
                        margin += bias[i];
#endif
                        failed = __funnelshift_l(margin, failed, 1); /* the sign becomes the lowest bit */
                    }
#else
                    if (inside) {
                        const int channel = word * LANES + quarter * 8;
                        int *const to = out + ((image * RESULT_HEIGHT + y) * RESULT_WIDTH + at) * OUTPUTS + channel;
                        int results[8];
#pragma unroll
                        for (int i = 0; i < 8; ++i)
#if COMPLEMENT
                            results[i] = bias[i] + 2 * sums[m][i / 2][2 * row + i % 2];
#else
                            results[i] = bias[i] + 4 * sums[m][i / 2][2 * row + i % 2] - 2 * ones[m][2 * row];
#endif
#if OUTPUTS % 4 == 0
#pragma unroll
                        for (int i = 0; i < 8; i += 4)
                            if (channel + i < OUTPUTS)
                                *(int4 *)(to + i) =
                                    make_int4(results[i], results[i + 1], results[i + 2], results[i + 3]);
#else
#pragma unroll
                        for (int i = 0; i < 8; ++i)
                            if (channel + i < OUTPUTS)
                                to[i] = results[i];
#endif
                    }
#endif
                }
#if BITS
                any[m / MEMBERS] |= failed ^ turned;
#endif
            }
        }
#if BITS
#pragma unroll
        for (int s = 0; s < SPAN; ++s)
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                const int y = first_y + (first + s) / ACROSS * 2 + row, at = first_x + (first + s) % ACROSS * 8 + column;
                const int place = ((image * RESULT_HEIGHT + y) * RESULT_WIDTH + at) * OUT_WORDS + word;
                if (y < RESULT_HEIGHT && at < RESULT_WIDTH)
                    ((uchar *)out)[place * 4 + quarter] = (uchar)((any[s] ^ least) >> 8 * row);
            }
#endif
    }
}
