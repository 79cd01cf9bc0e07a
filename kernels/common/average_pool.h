/* Average under a window, one thread an output element: the taps inside the image, summed from 0 over (row, column), divided
 * once by the number of taps inside the image or the pads that count.
 *
 * Behind division.h. The defines of window.h, CHANNELS, and COUNTED_TOP, COUNTED_LEFT, COUNTED_BOTTOM, COUNTED_RIGHT.
 */
/* Taps between -before and size + after, from `first` on, `step` apart. */
DEVICE int counted_taps(int first, int taps, int step, int size, int before, int after)
{
    int count = 0;
    for (int i = 0; i < taps; ++i) {
        const int at = first + i * step;
        count += at >= -before && at < size + after;
    }
    return count;
}

KERNEL average_pool(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int channel = id % CHANNELS;
    const Origin at = window_origin(id / CHANNELS);
    float total = 0.0f;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx) {
            const int pixel = window_pixel(at, ky, kx);
            if (pixel >= 0)
                total += x[pixel * CHANNELS + channel];
        }
    const int rows = counted_taps(at.top, KERNEL_H, DILATION_H, HEIGHT, COUNTED_TOP, COUNTED_BOTTOM);
    const int columns = counted_taps(at.left, KERNEL_W, DILATION_W, WIDTH, COUNTED_LEFT, COUNTED_RIGHT);
    out[id] = QUOTIENT(total, (float)(rows * columns));
}
