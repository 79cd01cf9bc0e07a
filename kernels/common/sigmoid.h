/* 1 / (1 + exp(-x)), one thread an element. Behind division.h and exponential.h.
 */
KERNEL sigmoid(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id < count)
        out[id] = QUOTIENT(1.0f, 1.0f + exponential(-x[id]));
}
