/* Sixteen outputs at once, for CPUs: population counts by arithmetic on vectors, which LLVM turns into SIMD where it
 * makes a scalar instruction, or worse, of popcount().
 */
#define LANES 16

/* partial_counts() of up to MAX_PENDING words can be added before sum_counts() makes the number of bits of each lane. */
#ifdef __AVX512VPOPCNTDQ__
#define MAX_PENDING (1 << 20)

DEVICE uint16 partial_counts(uint16 v)
{
    return as_uint16(__builtin_ia32_vpopcntd_512(as_int16(v)));
}

DEVICE int16 sum_counts(uint16 counts)
{
    return as_int16(counts);
}
#else
#define MAX_PENDING 31 /* each byte counts at most 8 bits of a word, and overflows at 256 */

DEVICE uint16 partial_counts(uint16 v)
{
    v -= (v >> 1) & 0x55555555u;
    v = (v & 0x33333333u) + ((v >> 2) & 0x33333333u);
    return (v + (v >> 4)) & 0x0f0f0f0fu;
}

DEVICE int16 sum_counts(uint16 counts)
{
    counts = (counts & 0x00ff00ffu) + ((counts >> 8) & 0x00ff00ffu);
    return as_int16((counts + (counts >> 16)) & 0xffffu);
}
#endif

/* All lanes, added. */
DEVICE int sum_lanes(int16 v)
{
    const int8 *halves = (const int8 *)&v; /* as in lane_mask */
    const int8 s8 = halves[0] + halves[1];
    const int4 s4 = s8.lo + s8.hi;
    const int2 s2 = s4.lo + s4.hi;
    return s2.lo + s2.hi;
}

/* Bit i set where lane i of a comparison is true. */
DEVICE uint lane_mask(int16 comparison)
{
    const uint16 bit = (uint16)(1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 512u, 1024u, 2048u, 4096u, 8192u, 16384u,
                                32768u);
    const uint16 bits = as_uint16(comparison) & bit;
    /* Halves by address: compilers see through it, and Oclgrind loses track of a vector of 16 that is split. */
    const uint8 *halves = (const uint8 *)&bits;
    const uint8 b8 = halves[0] | halves[1];
    const uint4 b4 = b8.lo | b8.hi;
    const uint2 b2 = b4.lo | b4.hi;
    return b2.lo | b2.hi;
}
