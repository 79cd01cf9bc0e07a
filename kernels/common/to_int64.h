/* Indices as ONNX gives them: int to 64 bits, as two words, the lower first. One thread an element.
 */
typedef int part;

KERNEL to_int64(const GLOBAL int *RESTRICT x, GLOBAL part *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    out[2 * id] = x[id];
    out[2 * id + 1] = x[id] < 0 ? -1 : 0;
}
