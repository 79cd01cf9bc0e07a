/* At least bounds[0], then at most bounds[1]: NaN stays what it is. One thread an element.
 */
KERNEL clip(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT bounds, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const float raised = x[id] < bounds[0] ? bounds[0] : x[id];
    out[id] = raised > bounds[1] ? bounds[1] : raised;
}
