/* Luma of 8-bit pixels, red, green, blue, one thread a pixel: Pillow's fixed-point weights, exact in an int. */
KERNEL grayscale(const GLOBAL uchar *RESTRICT x, GLOBAL uchar *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const GLOBAL uchar *pixel = x + id * 3;
    out[id] = (uchar)((19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 32768) >> 16);
}
