/* Product of a [rows][INNER] and weights b [INNER][OUTPUTS], in tiles: TILE x TILE threads compute ROWS * TILE rows and
 * COLUMNS * TILE columns, ROWS x COLUMNS elements each, from tiles in local memory. Each element is what matmul_naive.h
 * makes of it: products rounded, summed from 0 in order of k. Past the end of a row both tiles hold 0, and adding 0 * 0
 * changes no sum that started from 0. Behind weight_matrix.h.
 *
 * TILE, ROWS, COLUMNS, INNER, OUTPUTS, WEIGHT_BITS, OUTPUT_WORDS. Launched over
 * [ceil(rows / (ROWS * TILE)), ceil(OUTPUTS / (COLUMNS * TILE))] groups.
 */
KERNEL matmul_tiled(const GLOBAL float *RESTRICT a, const GLOBAL WEIGHT *RESTRICT b, GLOBAL float *RESTRICT out, int rows)
{
    LOCAL_ARRAY(float, tile_a, ROWS * TILE * TILE);
    LOCAL_ARRAY(float, tile_b, TILE * COLUMNS * TILE);
    const int tx = LOCAL_ID(0), ty = LOCAL_ID(1);
    const int first_row = GROUP_ID(0) * ROWS * TILE + ty, first_output = GROUP_ID(1) * COLUMNS * TILE + tx;
    float total[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; ++i)
        total[i] = 0.0f;
    for (int start = 0; start < INNER; start += TILE) {
        for (int r = 0; r < ROWS; ++r) {
            const int row = first_row + r * TILE, k = start + tx;
            tile_a[(r * TILE + ty) * TILE + tx] = row < rows && k < INNER ? a[row * INNER + k] : 0.0f;
        }
        for (int c = 0; c < COLUMNS; ++c) {
            const int output = first_output + c * TILE, k = start + ty;
            tile_b[(ty * COLUMNS + c) * TILE + tx] = output < OUTPUTS && k < INNER ? WEIGHT_AT(b, k, output) : 0.0f;
        }
        BARRIER();
        for (int i = 0; i < TILE; ++i)
            for (int r = 0; r < ROWS; ++r) {
                const float left = tile_a[(r * TILE + ty) * TILE + i];
                for (int c = 0; c < COLUMNS; ++c) {
                    const float product = left * tile_b[(i * COLUMNS + c) * TILE + tx];
                    total[r * COLUMNS + c] += product;
                }
            }
        BARRIER();
    }
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; ++c) {
            const int row = first_row + r * TILE, output = first_output + c * TILE;
            if (row < rows && output < OUTPUTS)
                out[row * OUTPUTS + output] = total[r * COLUMNS + c];
        }
}
