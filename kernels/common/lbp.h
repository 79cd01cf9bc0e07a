/* Local binary patterns of 8-bit gray levels, one thread a pixel, which is one output word: bits 0, 1 and 2 are set if
 * the neighbour top-left, right or bottom-left is greater than the pixel. A neighbour outside the image is not.
 *
 * HEIGHT, WIDTH of the image.
 */
KERNEL lbp_pack(const GLOBAL uchar *RESTRICT x, GLOBAL uint *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int column = id % WIDTH;
    const int row = id / WIDTH % HEIGHT;
    const int centre = x[id];
    uint bits = 0;
    if (column > 0 && row > 0 && x[id - WIDTH - 1] > centre)
        bits |= 1u;
    if (column + 1 < WIDTH && x[id + 1] > centre)
        bits |= 2u;
    if (column > 0 && row + 1 < HEIGHT && x[id + WIDTH - 1] > centre)
        bits |= 4u;
    out[id] = bits;
}
