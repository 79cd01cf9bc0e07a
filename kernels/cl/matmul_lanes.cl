/* Product of a [rows][INNER] and weights for CPUs: one thread computes ROWS rows of sixteen columns, a vector for each row.
 * Each element is what matmul_naive.h makes of it: products rounded, summed from 0 in order of k.
 *
 * ROWS, INNER, OUTPUTS, BLOCKS = ceil(OUTPUTS / LANES). Weights are [BLOCKS][INNER][LANES].
 */
#define LANES 16

KERNEL matmul_lanes(const GLOBAL float *RESTRICT a, const GLOBAL float16 *RESTRICT b, GLOBAL float *RESTRICT out, int rows,
                    int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const int first = id / BLOCKS * ROWS, block = id % BLOCKS;
    const GLOBAL float16 *weights = b + block * INNER;
    const GLOBAL float *row[ROWS];
    float16 total[ROWS];
    for (int r = 0; r < ROWS; ++r) {
        row[r] = a + (first + r < rows ? first + r : rows - 1) * INNER; /* past the end: the last row once more */
        total[r] = 0.0f;
    }
    for (int k = 0; k < INNER; ++k) {
        const float16 weight = weights[k];
        for (int r = 0; r < ROWS; ++r) {
            const float16 product = row[r][k] * weight;
            total[r] += product;
        }
    }
    for (int r = 0; r < ROWS && first + r < rows; ++r) {
        GLOBAL float *result = out + (first + r) * OUTPUTS + block * LANES;
        if ((block + 1) * LANES <= OUTPUTS) {
            vstore16(total[r], 0, result);
        } else {
            float lanes[LANES];
            vstore16(total[r], 0, lanes);
            for (int i = 0; i < OUTPUTS - block * LANES; ++i)
                result[i] = lanes[i];
        }
    }
}
