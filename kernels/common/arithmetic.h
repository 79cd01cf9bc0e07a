/* One float32 operation an element, rounded once.
 *
 * OPERATION 0 add, 1 sub, 2 mul, 3 div (behind division.h); CHANNELS; A_BROADCAST and B_BROADCAST: 0 an operand of the output's shape,
 * 1 one number a channel, 2 a single number. SOURCE: the type of a, which becomes float32 exactly.
 */
#if A_BROADCAST == 0
#define A_INDEX id
#elif A_BROADCAST == 1
#define A_INDEX id % CHANNELS
#else
#define A_INDEX 0
#endif
#if B_BROADCAST == 0
#define B_INDEX id
#elif B_BROADCAST == 1
#define B_INDEX id % CHANNELS
#else
#define B_INDEX 0
#endif

KERNEL arithmetic(const GLOBAL SOURCE *RESTRICT a, const GLOBAL float *RESTRICT b, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const float left = (float)a[A_INDEX], right = b[B_INDEX];
#if OPERATION == 0
    out[id] = left + right;
#elif OPERATION == 1
    out[id] = left - right;
#elif OPERATION == 2
    out[id] = left * right;
#else
    out[id] = QUOTIENT(left, right);
#endif
}
