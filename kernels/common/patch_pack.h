/* The paper's fused patch extraction and packing ("Binarized Convolutional Neural Networks for Efficient Inference on
 * GPUs", Algorithm 1). A work-group covers SEGMENT_ROWS whole output rows. It loads its rows of the image, halo
 * included, into local memory, filled with the padding bit beforehand; then each thread packs THREAD_WORDS words,
 * PACK_WIDTH bits each, of the patches of the group's output pixels. Neighbouring threads pack neighbouring words, so that
 * they store to one place. Elements run over (channel, row, column), so that a width of kernel height x kernel width puts
 * one channel in a word. A running counter stands in for division and modulo.
 *
 * The defines of window.h; CHANNELS, WORDS words a pixel; SEGMENT_ROWS; TILE_ROWS and TILE_COLUMNS of padded image;
 * PACK_WIDTH; PATCH_WORDS = ceil(KERNEL_H * KERNEL_W * CHANNELS / PACK_WIDTH); THREAD_WORDS; PAD_BIT 1 for +1 and 0 for
 * -1. PIXELS 1: x is uchar [H][W][PIXEL_CHANNELS], and bit c of CHANNELS, at most 32, is
 * (x[c mod PIXEL_CHANNELS] >= levels[c]) != flips.
 * What the paper compares with: COUNTER 0 divides; STAGED 0 reads the image where it is; SEPARATE 1 stores a byte
 * for each element, which pack_bytes.h packs.
 * Launched as [OUT_WIDTH, SEGMENT_ROWS] threads over [batch, ceil(OUT_HEIGHT / SEGMENT_ROWS),
 * ceil(PATCH_WORDS / THREAD_WORDS)] groups.
 */
#define TAPS (KERNEL_H * KERNEL_W)
#define OUTSIDE (PAD_BIT ? ~0u : 0u)

#if PIXELS
#define SOURCE uchar
#else
#define SOURCE uint
#endif

#if SEPARATE
KERNEL patch_extract(const GLOBAL SOURCE *RESTRICT x, const GLOBAL int *RESTRICT levels, const GLOBAL uint *RESTRICT flips,
                     GLOBAL uchar *RESTRICT out)
#else
KERNEL patch_pack(const GLOBAL SOURCE *RESTRICT x, const GLOBAL int *RESTRICT levels, const GLOBAL uint *RESTRICT flips,
                  GLOBAL uint *RESTRICT out)
#endif
{
    const int thread = LOCAL_ID(1) * OUT_WIDTH + LOCAL_ID(0), image = GROUP_ID(0);
    const int first_row = GROUP_ID(1) * SEGMENT_ROWS, top = first_row * STRIDE_H - PAD_TOP;
#if STAGED
    LOCAL_ARRAY(uint, tile, TILE_ROWS * TILE_COLUMNS * WORDS);
    for (int i = thread; i < TILE_ROWS * TILE_COLUMNS * WORDS; i += OUT_WIDTH * SEGMENT_ROWS) {
        const int row = top + i / (TILE_COLUMNS * WORDS);
        const int column = i / WORDS % TILE_COLUMNS - PAD_LEFT;
        const int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
        uint bits = OUTSIDE;
        if (inside) {
            const int seen = (image * HEIGHT + row) * WIDTH + column;
#if PIXELS
            bits = flips[0];
            for (int c = 0; c < CHANNELS; ++c)
                bits ^= (uint)((int)x[seen * PIXEL_CHANNELS + c % PIXEL_CHANNELS] >= levels[c]) << c;
#else
            bits = x[seen * WORDS + i % WORDS];
#endif
        }
        tile[i] = bits;
    }
    BARRIER();
#endif

    for (int i = 0; i < THREAD_WORDS; ++i) {
        const int item = (GROUP_ID(2) * THREAD_WORDS + i) * (OUT_WIDTH * SEGMENT_ROWS) + thread;
        const int word = item % PATCH_WORDS, tx = item / PATCH_WORDS % OUT_WIDTH, ty = item / (PATCH_WORDS * OUT_WIDTH);
        if (ty >= SEGMENT_ROWS || first_row + ty >= OUT_HEIGHT)
            return;
        const int pixel = (image * OUT_HEIGHT + first_row + ty) * OUT_WIDTH + tx;
#if STAGED
        const LOCAL uint *corner = tile + (ty * STRIDE_H * TILE_COLUMNS + tx * STRIDE_W) * WORDS;
#endif
#if COUNTER && PACK_WIDTH == TAPS
        int c = word, ky = 0, kx = 0; /* the same as below, and the compiler knows where in the window a bit lies */
#elif COUNTER
        int c = word * PACK_WIDTH / TAPS, ky = word * PACK_WIDTH / KERNEL_W % KERNEL_H, kx = word * PACK_WIDTH % KERNEL_W;
#endif
#if !SEPARATE
        uint packed = 0;
#endif
#pragma unroll
        for (int bit = 0; bit < PACK_WIDTH; ++bit) {
#if !COUNTER
            const int element = word * PACK_WIDTH + bit;
            const int c = element / TAPS, ky = element / KERNEL_W % KERNEL_H, kx = element % KERNEL_W;
#endif
            if (TAPS * CHANNELS % PACK_WIDTH == 0 || c < CHANNELS) {
#if STAGED
                const uint seen = corner[(ky * DILATION_H * TILE_COLUMNS + kx * DILATION_W) * WORDS + c / 32];
#else
                const int row = top + ty * STRIDE_H + ky * DILATION_H;
                const int column = tx * STRIDE_W - PAD_LEFT + kx * DILATION_W;
                const int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
                const uint seen = inside ? x[((image * HEIGHT + row) * WIDTH + column) * WORDS + c / 32] : OUTSIDE;
#endif
#if SEPARATE
                out[pixel * (TAPS * CHANNELS) + word * PACK_WIDTH + bit] = (uchar)(seen >> c % 32 & 1u);
#else
                packed |= (seen >> c % 32 & 1u) << bit;
#endif
            }
#if COUNTER
            if (++kx == KERNEL_W) {
                kx = 0;
                if (++ky == KERNEL_H) {
                    ky = 0;
                    ++c;
                }
            }
#endif
        }
#if !SEPARATE
        out[pixel * PATCH_WORDS + word] = packed;
#endif
    }
}
