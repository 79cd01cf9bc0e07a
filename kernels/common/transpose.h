/* Permutation of axes, one thread an output element. Whatever has 32 bits is copied.
 *
 * RANK, DIMS the output's sizes (without the batch: the count is the batch's business), STRIDES the input's step for
 * each output axis, SIZE elements of one image.
 */
typedef uint moved;

KERNEL transpose(const GLOBAL moved *RESTRICT x, GLOBAL moved *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int dims[RANK] = {DIMS}, strides[RANK] = {STRIDES};
    int rest = id % SIZE, from = id - rest;
    for (int axis = RANK - 1; axis >= 0; --axis) {
        from += rest % dims[axis] * strides[axis];
        rest /= dims[axis];
    }
    out[id] = x[from];
}
