/* Binary convolution by tiles: a work-group computes one output word (32 channels) of a tile of the image, and applies
 * thresholds and pooling before anything is written. The tile's part of x, halo included, is loaded once into local
 * memory. A row of 32 work-items has an output channel each and shares the pixels that it reads.
 *
 * The defines of window.h; WORDS words a pixel of x; INNER words of weights a channel; OUTPUTS, OUT_WORDS.
 * POOL_H x POOL_W output pixels make one result (1 x 1 without pooling) over RESULT_HEIGHT x RESULT_WIDTH; a group has
 * TILE_H x TILE_W results, and ROWS x 32 work-items. HALO_H x HALO_W pixels of x lie under a tile.
 * PIXELS 1: x is uchar [H][W][PIXEL_CHANNELS], and bit c of CHANNELS is (x[c mod PIXEL_CHANNELS] >= levels[c]) != flips;
 * otherwise x is packed.
 * PATCH 1: a window's CHANNELS x taps bits (taps outer) are packed without gaps; 0: a tap's WORDS words as they are.
 * PAD_MASK: bits of a word outside the image. COLUMN_CLASSES: border classes along a row; classes [OUT_HEIGHT] and
 * [OUT_WIDTH] number them, and `limits` has for each class and channel what the taps outside the image contribute.
 * BITS 1: a result is ((differing <= limits) != falling), pooled by OR, or by AND where `minimum`, 32 to a word;
 * BITS 0: results are the accumulators, limits - 2 differing, int32.
 * Weights are [OUT_WORDS][INNER][32]; limits [classes][OUT_WORDS * 32]. Launched over groups [tiles, OUT_WORDS, batch].
 */
#define LANES 32
#define CONV_H (TILE_H * POOL_H)
#define CONV_W (TILE_W * POOL_W)
#define POOLED (POOL_H * POOL_W)
#define TILES_ACROSS ((RESULT_WIDTH + TILE_W - 1) / TILE_W)

#if PIXELS
#define SOURCE uchar
#else
#define SOURCE uint
#endif

KERNEL conv_tile(const GLOBAL SOURCE *RESTRICT x, const GLOBAL int *RESTRICT levels, const GLOBAL uint *RESTRICT flips,
                 const GLOBAL uint *RESTRICT weights, const GLOBAL int *RESTRICT classes,
                 const GLOBAL int *RESTRICT limits, const GLOBAL uint *RESTRICT falling,
                 const GLOBAL uint *RESTRICT minimum, GLOBAL RESULT *RESTRICT out)
{
    LOCAL_ARRAY(uint, halo, HALO_H * HALO_W * WORDS);
#if PATCH
    LOCAL_ARRAY(uint, patches, CONV_H * CONV_W * INNER);
#endif
#if BITS && !HAS_BALLOT
    LOCAL_ARRAY(uchar, votes, TILE_H * TILE_W * LANES);
#endif
    const int lane = LOCAL_ID(0), row = LOCAL_ID(1), item = row * LANES + lane;
    const int word = GROUP_ID(1), image = GROUP_ID(2), channel = word * LANES + lane;
    const int first_y = GROUP_ID(0) / TILES_ACROSS * TILE_H, first_x = GROUP_ID(0) % TILES_ACROSS * TILE_W;
    const int top = first_y * POOL_H * STRIDE_H - PAD_TOP, left = first_x * POOL_W * STRIDE_W - PAD_LEFT;

    for (int i = item; i < HALO_H * HALO_W * WORDS; i += ROWS * LANES) {
        const int y = top + i / (HALO_W * WORDS), at = left + i / WORDS % HALO_W;
        const int inside = y >= 0 && y < HEIGHT && at >= 0 && at < WIDTH;
        uint bits = i % WORDS == WORDS - 1 ? PAD_MASK_LAST : PAD_MASK;
        if (inside) {
            const int pixel = (image * HEIGHT + y) * WIDTH + at;
#if PIXELS
            bits = flips[0];
            for (int c = 0; c < CHANNELS; ++c)
                bits ^= (uint)((int)x[pixel * PIXEL_CHANNELS + c % PIXEL_CHANNELS] >= levels[c]) << c;
#else
            bits = x[pixel * WORDS + i % WORDS];
#endif
        }
        halo[i] = bits;
    }
    BARRIER();

#if PATCH
    for (int p = item; p < CONV_H * CONV_W; p += ROWS * LANES) {
        const LOCAL uint *corner = halo + p / CONV_W * STRIDE_H * HALO_W + p % CONV_W * STRIDE_W;
        uint packed = 0;
        int used = 0, k = 0;
#pragma unroll
        for (int ky = 0; ky < KERNEL_H; ++ky)
#pragma unroll
            for (int kx = 0; kx < KERNEL_W; ++kx) {
                const uint bits = corner[ky * DILATION_H * HALO_W + kx * DILATION_W];
                packed |= bits << used;
                used += CHANNELS;
                if (used >= 32) {
                    patches[p * INNER + k++] = packed;
                    used -= 32;
                    packed = used > 0 ? bits >> (CHANNELS - used) : 0u;
                }
            }
        if (used > 0)
            patches[p * INNER + k] = packed;
    }
    BARRIER();
#endif

    const GLOBAL uint *w = weights + word * (INNER * LANES) + lane;
#if IN_REGISTERS
    uint kept[INNER];
#pragma unroll
    for (int k = 0; k < INNER; ++k)
        kept[k] = w[k * LANES];
#endif
#if BITS
    const uint below = falling[word] >> lane & 1u, least = minimum[word] >> lane & 1u;
#endif
#if COLUMN_CLASSES == 0
    const int limit = limits[channel];
#endif

    for (int result = row * SPAN; result < TILE_H * TILE_W; result += ROWS * SPAN) {
        int differing[SPAN * POOLED];
        const LOCAL uint *seen[SPAN * POOLED];
#pragma unroll
        for (int q = 0; q < SPAN * POOLED; ++q) {
            const int y = (result + q / POOLED) / TILE_W * POOL_H + q % POOLED / POOL_W;
            const int at = (result + q / POOLED) % TILE_W * POOL_W + q % POOL_W;
            differing[q] = 0;
#if PATCH
            seen[q] = patches + (y * CONV_W + at) * INNER;
#else
            seen[q] = halo + (y * STRIDE_H * HALO_W + at * STRIDE_W) * WORDS;
#endif
        }
#if PATCH
#pragma unroll
        for (int k = 0; k < INNER; ++k) {
#if IN_REGISTERS
            const uint weight = kept[k];
#else
            const uint weight = w[k * LANES];
#endif
#pragma unroll
            for (int q = 0; q < SPAN * POOLED; ++q)
                differing[q] += POPCOUNT(seen[q][k] ^ weight);
        }
#else
#if IN_REGISTERS
#pragma unroll
#endif
        for (int ky = 0; ky < KERNEL_H; ++ky)
#if IN_REGISTERS
#pragma unroll
#endif
            for (int kx = 0; kx < KERNEL_W; ++kx)
#pragma unroll
                for (int i = 0; i < WORDS; ++i) {
                    const int k = (ky * KERNEL_W + kx) * WORDS + i;
                    const int at = (ky * DILATION_H * HALO_W + kx * DILATION_W) * WORDS + i;
#if IN_REGISTERS
                    const uint weight = kept[k];
#else
                    const uint weight = w[k * LANES];
#endif
#pragma unroll
                    for (int q = 0; q < SPAN * POOLED; ++q)
                        differing[q] += POPCOUNT(seen[q][at] ^ weight);
                }
#endif

#pragma unroll
        for (int s = 0; s < SPAN; ++s) {
            const int y = first_y + (result + s) / TILE_W, at = first_x + (result + s) % TILE_W;
            const int inside = y < RESULT_HEIGHT && at < RESULT_WIDTH;
            const int place = (image * RESULT_HEIGHT + y) * RESULT_WIDTH + at;
#if BITS
            uint any = 0;
#endif
#pragma unroll
            for (int q = s * POOLED; q < (s + 1) * POOLED; ++q) {
#if COLUMN_CLASSES > 0
                /* Results past the last one are computed from what lies there, and dropped. */
                const int pixel_y = inside ? y * POOL_H + q % POOLED / POOL_W : 0;
                const int pixel_x = inside ? at * POOL_W + q % POOL_W : 0;
                const int border = classes[pixel_y] * COLUMN_CLASSES + classes[OUT_HEIGHT + pixel_x];
                const int limit = limits[border * (OUT_WORDS * LANES) + channel];
#endif
#if BITS
                any |= (uint)(differing[q] <= limit) ^ below ^ least;
#else
                if (inside && channel < OUTPUTS)
                    out[place * OUTPUTS + channel] = limit - 2 * differing[q];
#endif
            }
#if BITS
#if HAS_BALLOT
            const uint bits = BALLOT(any ^ least);
            if (inside && lane == 0)
                out[place * OUT_WORDS + word] = bits;
#else
            votes[(result + s) * LANES + lane] = (uchar)(any ^ least);
#endif
#endif
        }
    }

#if BITS && !HAS_BALLOT
    BARRIER();
    for (int result = item; result < TILE_H * TILE_W; result += ROWS * LANES) {
        const int y = first_y + result / TILE_W, at = first_x + result % TILE_W;
        uint bits = 0;
        for (int b = 0; b < LANES; ++b)
            bits |= (uint)votes[result * LANES + b] << b;
        if (y < RESULT_HEIGHT && at < RESULT_WIDTH)
            out[((image * RESULT_HEIGHT + y) * RESULT_WIDTH + at) * OUT_WORDS + word] = bits;
    }
#endif
}
