/* What the shared bodies need of OpenCL C 1.2. */
#pragma OPENCL FP_CONTRACT OFF

#define KERNEL __kernel void
#define DEVICE static
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_ARRAY(type, name, size) __local type name[size]
#ifndef RESTRICT /* a checker whose own inliner stumbles over it builds with -DRESTRICT= */
#define RESTRICT restrict
#endif
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define MINUS_INFINITY (-INFINITY)
#define FLOAT_OF_BITS(bits) as_float(bits)
#define BITS_OF_FLOAT(number) as_uint(number)
#define POPCOUNT(word) ((int)popcount(word))

/* Bit i: whether work-item i of a row of 32 along axis 0 says so; all of them must ask. OpenCL 1.2 has no such function;
 * NVIDIA's compiler takes PTX.
 */
#ifdef __NV_CL_C_VERSION
#define HAS_BALLOT 1
static uint ballot(uint predicate)
{
    uint bits;
    asm volatile("{ .reg .pred said; setp.ne.u32 said, %1, 0; vote.sync.ballot.b32 %0, said, 0xffffffff; }"
                 : "=r"(bits)
                 : "r"(predicate));
    return bits;
}
#define BALLOT(predicate) ballot(predicate)
#else
#define HAS_BALLOT 0
#endif

#define GLOBAL_ID(axis) ((int)get_global_id(axis))
#define LOCAL_ID(axis) ((int)get_local_id(axis))
#define GROUP_ID(axis) ((int)get_group_id(axis))
