/* The paper's fused patch extraction and packing ("Binarized Convolutional Neural Networks for Efficient Inference on
 * GPUs", Algorithm 1). A work-group covers SEGMENT_ROWS whole output rows. It loads its rows of the image, halo
 * included, into local memory, filled with the padding bit beforehand; then each thread packs the patch of one output
 * pixel, PACK_WIDTH bits a word. Elements run over (channel, row, column), so that a width of kernel height x kernel
 * width puts one channel in a word. A running counter stands in for division and modulo.
 *
 * The defines of window.h; CHANNELS, WORDS words a pixel; SEGMENT_ROWS; TILE_ROWS and TILE_COLUMNS of padded image;
 * PACK_WIDTH; PATCH_WORDS = ceil(KERNEL_H * KERNEL_W * CHANNELS / PACK_WIDTH); PAD_BIT 1 for +1 and 0 for -1.
 * Launched as [OUT_WIDTH, SEGMENT_ROWS] threads over [batch, ceil(OUT_HEIGHT / SEGMENT_ROWS)] groups.
 */
KERNEL patch_pack(const GLOBAL uint *RESTRICT x, GLOBAL uint *RESTRICT out)
{
    LOCAL_ARRAY(uint, tile, TILE_ROWS * TILE_COLUMNS * WORDS);
    const int tx = LOCAL_ID(0), ty = LOCAL_ID(1), image = GROUP_ID(0);
    const int first_row = GROUP_ID(1) * SEGMENT_ROWS;
    const int top = first_row * STRIDE_H - PAD_TOP;

    for (int i = ty * OUT_WIDTH + tx; i < TILE_ROWS * TILE_COLUMNS * WORDS; i += OUT_WIDTH * SEGMENT_ROWS) {
        const int row = top + i / (TILE_COLUMNS * WORDS);
        const int column = i / WORDS % TILE_COLUMNS - PAD_LEFT;
        const int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
        tile[i] = inside ? x[((image * HEIGHT + row) * WIDTH + column) * WORDS + i % WORDS] : (PAD_BIT ? ~0u : 0u);
    }
    BARRIER();

    const int y = first_row + ty;
    if (y >= OUT_HEIGHT)
        return;
    GLOBAL uint *patch = out + ((image * OUT_HEIGHT + y) * OUT_WIDTH + tx) * PATCH_WORDS;
    const LOCAL uint *corner = tile + (ty * STRIDE_H * TILE_COLUMNS + tx * STRIDE_W) * WORDS;
    uint packed = 0;
    int counter = 0;
    for (int c = 0; c < CHANNELS; ++c)
        for (int ky = 0; ky < KERNEL_H; ++ky)
            for (int kx = 0; kx < KERNEL_W; ++kx) {
                const uint word = corner[(ky * DILATION_H * TILE_COLUMNS + kx * DILATION_W) * WORDS + c / 32];
                packed |= (word >> c % 32 & 1u) << counter;
                if (++counter == PACK_WIDTH) {
                    *patch++ = packed;
                    packed = 0;
                    counter = 0;
                }
            }
    if (counter > 0)
        *patch = packed;
}
