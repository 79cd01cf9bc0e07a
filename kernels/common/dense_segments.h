/* The paper's dense layer: SEGMENTS threads share a weight vector, each sums its words' population counts, and the
 * partial sums are reduced in local memory. The paper leaves barriers out "for a warp size of 32"; that is undefined
 * since Volta and wrong for other widths, so every step has one here.
 *
 * SEGMENTS a power of two, WORDS a row, OUTPUTS, LENGTH. Launched as [SEGMENTS] threads over [batch x OUTPUTS] groups.
 */
KERNEL dense_segments(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights, GLOBAL int *RESTRICT out)
{
    LOCAL_ARRAY(int, partial, SEGMENTS);
    const int segment = LOCAL_ID(0), output = GROUP_ID(0) % OUTPUTS, image = GROUP_ID(0) / OUTPUTS;
    int differing = 0;
    for (int i = segment; i < WORDS; i += SEGMENTS)
        differing += POPCOUNT(x[image * WORDS + i] ^ weights[output * WORDS + i]);
    partial[segment] = differing;
    BARRIER();
    for (int span = SEGMENTS / 2; span > 0; span /= 2) {
        if (segment < span)
            partial[segment] += partial[segment + span];
        BARRIER();
    }
    if (segment == 0)
        out[GROUP_ID(0)] = LENGTH - 2 * partial[0];
}
