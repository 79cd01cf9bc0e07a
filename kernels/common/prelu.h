/* slope * x where x < 0, else x: NaN stays what it is. One thread an element.
 *
 * SLOPES: the number of channels, or 1 for a slope that all share.
 */
KERNEL prelu(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT slopes, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id < count)
        out[id] = x[id] < 0.0f ? slopes[id % SLOPES] * x[id] : x[id];
}
