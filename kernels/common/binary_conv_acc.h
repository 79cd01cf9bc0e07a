/* binary_conv.h to int32 accumulators, one thread an output element. */
KERNEL binary_conv(const GLOBAL uint *RESTRICT x, const GLOBAL uint *RESTRICT weights, const GLOBAL int *RESTRICT spans,
                   const GLOBAL uint *RESTRICT masks, GLOBAL int *RESTRICT out, int count)
{
    const int id = GLOBAL_ID(0);
    if (id >= count)
        return;
    out[id] = binary_conv_at(x, weights, spans, masks, window_origin(id / OUTPUTS), id % OUTPUTS);
}
