/* Index of the greatest (LEAST 1: least) element of a row, one thread a row. The first is the best at first, so that NaN there
 * stays; of equal ones the first, with LAST 1 the last.
 *
 * CHANNELS of a row, LEAST, LAST.
 */
#if LEAST
#define BETTER(a, b) ((a) < (b))
#else
#define BETTER(a, b) ((a) > (b))
#endif

KERNEL arg_max(const GLOBAL float *RESTRICT x, GLOBAL int *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    const GLOBAL float *row = x + id * CHANNELS;
    int found = 0;
    for (int c = 1; c < CHANNELS; ++c)
        if (BETTER(row[c], row[found]) || (LAST && row[c] == row[found]))
            found = c;
    out[id] = found;
}
