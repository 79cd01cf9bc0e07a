/* Sixteen outputs at once, for CPUs: population counts by arithmetic on vectors, which LLVM turns into SIMD where it
 * makes a scalar instruction, or worse, of popcount().
 */
#define LANES 16

/* Bits set in each byte. Up to 31 such results can be added before a byte overflows. */
DEVICE uint16 byte_counts(uint16 v)
{
    v -= (v >> 1) & 0x55555555u;
    v = (v & 0x33333333u) + ((v >> 2) & 0x33333333u);
    return (v + (v >> 4)) & 0x0f0f0f0fu;
}

#define MAX_PENDING 31

/* The four bytes of each lane, added. */
DEVICE int16 sum_bytes(uint16 v)
{
    v = (v & 0x00ff00ffu) + ((v >> 8) & 0x00ff00ffu);
    return as_int16((v + (v >> 16)) & 0xffffu);
}

/* Bit i set where lane i of a comparison is true. */
DEVICE uint lane_mask(int16 comparison)
{
    const uint16 bit = (uint16)(1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 512u, 1024u, 2048u, 4096u, 8192u, 16384u,
                                32768u);
    const uint16 bits = as_uint16(comparison) & bit;
    const uint8 b8 = bits.lo | bits.hi;
    const uint4 b4 = b8.lo | b8.hi;
    const uint2 b2 = b4.lo | b4.hi;
    return b2.lo | b2.hi;
}
