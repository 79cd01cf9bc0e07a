/* Softmax of rows [CHANNELS], one group of GROUP threads a row. The greatest element is subtracted first; powers are added
 * up from 0 in order of channels, by one thread, GROUP of them at a time. Behind division.h and exponential.h; with LOGARITHM 1
 * its logarithm instead, behind exponential.h and logarithm.h.
 *
 * CHANNELS, GROUP, LOGARITHM.
 */
KERNEL softmax(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT out)
{
    LOCAL_ARRAY(float, shared, GROUP);
    LOCAL_ARRAY(float, total, 1);
    const int thread = LOCAL_ID(0);
    const GLOBAL float *row = x + GROUP_ID(0) * CHANNELS;
    GLOBAL float *result = out + GROUP_ID(0) * CHANNELS;

    float greatest = MINUS_INFINITY; /* NaN is never greater */
    for (int c = thread; c < CHANNELS; c += GROUP)
        if (row[c] > greatest)
            greatest = row[c];
    shared[thread] = greatest;
    BARRIER();
    for (int i = 0; i < GROUP; ++i)
        if (shared[i] > greatest)
            greatest = shared[i];
    if (thread == 0)
        total[0] = 0.0f;
    BARRIER();

    for (int start = 0; start < CHANNELS; start += GROUP) {
        const int c = start + thread;
        if (c < CHANNELS) {
            shared[thread] = exponential(row[c] - greatest);
#if !LOGARITHM
            result[c] = shared[thread];
#endif
        }
        BARRIER();
        if (thread == 0) {
            float sum = total[0];
            for (int i = 0; i < GROUP && start + i < CHANNELS; ++i)
                sum += shared[i];
            total[0] = sum;
        }
        BARRIER();
    }
#if LOGARITHM
    const float subtracted = logarithm(total[0]);
    for (int c = thread; c < CHANNELS; c += GROUP)
        result[c] = row[c] - greatest - subtracted;
#else
    for (int c = thread; c < CHANNELS; c += GROUP)
        result[c] = QUOTIENT(result[c], total[0]); /* what this thread itself has written */
#endif
}
