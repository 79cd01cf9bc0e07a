/* The patches of a convolution as rows of a matrix: [output pixels][KERNEL_H * KERNEL_W * CHANNELS], float32, over (row,
 * column, channel) in that order; 0 outside the image. One thread an element.
 *
 * The defines of window.h, CHANNELS.
 */
#define LENGTH (KERNEL_H * KERNEL_W * CHANNELS)

KERNEL im2col(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT patches, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int k = id % LENGTH;
    const int tap = k / CHANNELS;
    const int pixel = window_pixel(window_origin(id / LENGTH), tap / KERNEL_W, tap % KERNEL_W);
    patches[id] = pixel < 0 ? 0.0f : x[pixel * CHANNELS + k % CHANNELS];
}
