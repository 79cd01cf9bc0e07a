/* What the shared bodies need of CUDA C++. */
typedef unsigned char uchar;
typedef unsigned int uint;

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, size) __shared__ type name[size]
#define RESTRICT __restrict__
#define BARRIER() __syncthreads()
#define MINUS_INFINITY __int_as_float(0xff800000)
#define FLOAT_OF_BITS(bits) __int_as_float(bits)
#define BITS_OF_FLOAT(number) __float_as_uint(number)
#define POPCOUNT(word) __popc(word)
/* Bit i: whether work-item i of a row of 32 along axis 0 says so; all of them must ask. */
#define HAS_BALLOT 1
#define BALLOT(predicate) __ballot_sync(0xffffffffu, predicate)

#define AXIS_0(v) ((int)v.x)
#define AXIS_1(v) ((int)v.y)
#define AXIS_2(v) ((int)v.z)
#define LOCAL_ID(axis) AXIS_##axis(threadIdx)
#define GROUP_ID(axis) AXIS_##axis(blockIdx)
#define GLOBAL_ID(axis) (GROUP_ID(axis) * AXIS_##axis(blockDim) + LOCAL_ID(axis))
