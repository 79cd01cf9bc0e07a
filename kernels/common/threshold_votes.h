/* threshold.h for GPUs, with a work-item for each bit: a row of 32 along axis 0 is an output word.
 *
 * The defines of threshold.h; ROWS of 32 work-items in a group.
 */
KERNEL threshold_votes(const GLOBAL SOURCE *RESTRICT x, const GLOBAL int *RESTRICT threshold,
                       const GLOBAL uint *RESTRICT falling, GLOBAL uint *RESTRICT out, int count)
{
#if !HAS_BALLOT
    LOCAL_ARRAY(uchar, votes, ROWS * 32);
#endif
    const int lane = LOCAL_ID(0), id = GROUP_ID(0) * ROWS + LOCAL_ID(1);
    const int word = id % WORDS, channel = word * 32 + lane;
    uint vote = 0;
    if (id < count && channel < CHANNELS)
        vote = (uint)((int)x[id / WORDS * SOURCE_CHANNELS + channel % SOURCE_CHANNELS] >= threshold[channel]);
#if HAS_BALLOT
    const uint bits = BALLOT(vote);
#else
    votes[LOCAL_ID(1) * 32 + lane] = (uchar)vote;
    BARRIER();
    uint bits = 0;
    for (int i = 0; lane == 0 && i < 32; ++i)
        bits |= (uint)votes[LOCAL_ID(1) * 32 + i] << i;
#endif
    if (lane == 0 && id < count)
        out[id] = bits ^ falling[word];
}
