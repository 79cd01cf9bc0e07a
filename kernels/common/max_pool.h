/* Maximum under a window, one thread an output element. Of equal values the first stays, NaN never exceeds anything, and
 * a window without a tap inside the image gives LOWEST.
 *
 * The defines of window.h, CHANNELS, FLOAT 1 for float and 0 for int.
 */
#if FLOAT
typedef float element;
#define LOWEST MINUS_INFINITY
#else
typedef int element;
#define LOWEST (-2147483647 - 1)
#endif

KERNEL max_pool(const GLOBAL element *RESTRICT x, GLOBAL element *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int channel = id % CHANNELS;
    const Origin at = window_origin(id / CHANNELS);
    element best = LOWEST;
    for (int ky = 0; ky < KERNEL_H; ++ky)
        for (int kx = 0; kx < KERNEL_W; ++kx) {
            const int pixel = window_pixel(at, ky, kx);
            if (pixel >= 0) {
                const element value = x[pixel * CHANNELS + channel];
                if (value > best)
                    best = value;
            }
        }
    out[id] = best;
}
