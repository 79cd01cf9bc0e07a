/* Elements along one axis by constant indices, one thread an output element (or word of bits, along another axis than theirs).
 *
 * SIZE of the axis in x, PICKED in the output, INNER elements (words) behind it. Whatever has 32 bits is copied.
 */
typedef uint moved;

KERNEL gather(const GLOBAL moved *RESTRICT x, const GLOBAL int *RESTRICT indices, GLOBAL moved *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int row = id / INNER;
    out[id] = x[(row / PICKED * SIZE + indices[row % PICKED]) * INNER + id % INNER];
}
