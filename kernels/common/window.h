/* Geometry of a sliding window over NHWC, from the defines of ops.Window:
 * HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, KERNEL_H, KERNEL_W, STRIDE_H, STRIDE_W, PAD_TOP, PAD_LEFT, DILATION_H, DILATION_W.
 */
typedef struct {
    int image, top, left; /* the image in the batch, and where the first tap lies (may be outside) */
} Origin;

/* Origin of the window of output pixel `pixel`, counted over [batch, OUT_HEIGHT, OUT_WIDTH]. */
DEVICE Origin window_origin(int pixel)
{
    Origin at;
    at.left = pixel % OUT_WIDTH * STRIDE_W - PAD_LEFT;
    at.top = pixel / OUT_WIDTH % OUT_HEIGHT * STRIDE_H - PAD_TOP;
    at.image = pixel / (OUT_WIDTH * OUT_HEIGHT);
    return at;
}

/* Index of the input pixel under tap (ky, kx), or -1 outside the image. */
DEVICE int window_pixel(Origin at, int ky, int kx)
{
    const int row = at.top + ky * DILATION_H, column = at.left + kx * DILATION_W;
    if (row < 0 || row >= HEIGHT || column < 0 || column >= WIDTH)
        return -1;
    return (at.image * HEIGHT + row) * WIDTH + column;
}
