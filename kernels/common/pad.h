/* Constant padding of rows and columns, float32 NHWC, one thread an output element.
 *
 * HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, CHANNELS, PAD_TOP, PAD_LEFT.
 */
KERNEL pad(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT value, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int channel = id % CHANNELS, pixel = id / CHANNELS;
    const int column = pixel % OUT_WIDTH - PAD_LEFT, row = pixel / OUT_WIDTH % OUT_HEIGHT - PAD_TOP;
    const int image = pixel / (OUT_WIDTH * OUT_HEIGHT);
    const int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
    out[id] = inside ? x[((image * HEIGHT + row) * WIDTH + column) * CHANNELS + channel] : value[0];
}
