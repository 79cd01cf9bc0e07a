/* 0 where x < 0, else x: NaN stays what it is. One thread an element.
 */
KERNEL relu(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id < count)
        out[id] = x[id] < 0.0f ? 0.0f : x[id];
}
