/* One input of a concatenation along the last axis, float32, to its place in the output: one thread an input element.
 *
 * PART channels of the input, which begin at channel OFFSET of the output's CHANNELS.
 */
KERNEL concat(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id < count)
        out[id / PART * CHANNELS + OFFSET + id % PART] = x[id];
}
