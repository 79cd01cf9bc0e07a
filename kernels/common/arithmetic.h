/* One float32 operation an element, rounded once.
 *
 * OPERATION 0 add, 1 sub, 2 mul, 3 div (behind division.h), 4 max, 5 min; CHANNELS; A_BROADCAST and B_BROADCAST: 0 an operand
 * of the output's shape, 1 one number a channel, 2 a single number, 3 as many axes as the output, of which some have one
 * element. Where one is 3: RANK, DIMS the output's sizes without the batch, SIZE elements of one image of it; A_SIZE and
 * B_SIZE those of an operand, A_STRIDES and B_STRIDES its step for each axis, 0 where it repeats itself. SOURCE: the type of
 * a, which becomes float32 exactly.
 */
#if A_BROADCAST == 0
#define A_INDEX id
#elif A_BROADCAST == 1
#define A_INDEX id % CHANNELS
#elif A_BROADCAST == 2
#define A_INDEX 0
#else
#define A_INDEX at_a
#endif
#if B_BROADCAST == 0
#define B_INDEX id
#elif B_BROADCAST == 1
#define B_INDEX id % CHANNELS
#elif B_BROADCAST == 2
#define B_INDEX 0
#else
#define B_INDEX at_b
#endif

KERNEL arithmetic(const GLOBAL SOURCE *RESTRICT a, const GLOBAL float *RESTRICT b, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
#if A_BROADCAST == 3 || B_BROADCAST == 3
    const int dims[RANK] = {DIMS}, a_strides[RANK] = {A_STRIDES}, b_strides[RANK] = {B_STRIDES};
    int rest = id % SIZE, at_a = id / SIZE * A_SIZE, at_b = id / SIZE * B_SIZE;
    for (int axis = RANK - 1; axis >= 0; --axis) {
        at_a += rest % dims[axis] * a_strides[axis];
        at_b += rest % dims[axis] * b_strides[axis];
        rest /= dims[axis];
    }
#endif
    const float left = (float)a[A_INDEX], right = b[B_INDEX];
#if OPERATION == 0
    out[id] = left + right;
#elif OPERATION == 1
    out[id] = left - right;
#elif OPERATION == 2
    out[id] = left * right;
#elif OPERATION == 3
    out[id] = QUOTIENT(left, right);
#elif OPERATION == 4
    out[id] = left > right || left != left ? left : right;
#else
    out[id] = left < right || left != left ? left : right;
#endif
}
