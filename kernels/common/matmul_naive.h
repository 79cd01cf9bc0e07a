/* Product of a [rows][INNER] and weights b [INNER][OUTPUTS], one thread an element: products are rounded, then summed from 0
 * in order of k. Behind weight_matrix.h.
 *
 * INNER, OUTPUTS, WEIGHT_BITS, OUTPUT_WORDS.
 */
KERNEL matmul_naive(const GLOBAL float *RESTRICT a, const GLOBAL WEIGHT *RESTRICT b, GLOBAL float *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int output = id % OUTPUTS;
    const GLOBAL float *row = a + id / OUTPUTS * INNER;
    float total = 0.0f;
    for (int k = 0; k < INNER; ++k) {
        const float product = row[k] * WEIGHT_AT(b, k, output);
        total += product;
    }
    out[id] = total;
}
