/* What a CUDA source needs to run on the host: each CUDA thread is a fibre, which gives way at barriers only. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
/* The linker collects the arrays of a block, so that each block can find them poisoned. */
#define __shared__ static __attribute__((section("shared_memory")))
extern "C" char __start_shared_memory[] __attribute__((weak)), __stop_shared_memory[] __attribute__((weak));

struct dim3 {
    int x, y, z;
};
struct int4 {
    int x, y, z, w;
};
struct uint4 {
    unsigned x, y, z, w;
};
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline int __popc(unsigned word) { return __builtin_popcount(word); }
static inline unsigned __funnelshift_l(unsigned low, unsigned high, int shift)
{
    return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr int LANES = 32, STACK = 1 << 16;

struct Barrier {
    int wanted = 0, arrived = 0;
    long passed = 0;
};

struct Warp {
    Barrier barrier;
    unsigned words[LANES][6];
};

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    bool ended = false;
};

static ucontext_t scheduler;
static std::vector<Fibre> fibres;
static std::vector<Warp> warps;
static Barrier block;
static int current;
static long events;

static void wait(Barrier &barrier)
{
    const long seen = barrier.passed;
    ++events;
    if (++barrier.arrived == barrier.wanted) {
        barrier.arrived = 0;
        ++barrier.passed;
        return;
    }
    while (barrier.passed == seen)
        swapcontext(&fibres[current].context, &scheduler);
}

/* Every lane's words, once all lanes of the warp have given theirs. */
template <class Use> static void exchange(std::initializer_list<unsigned> own, Use use)
{
    Warp &warp = warps[current / LANES];
    std::copy(own.begin(), own.end(), warp.words[current % LANES]);
    wait(warp.barrier);
    use(warp.words);
    wait(warp.barrier);
}

/* mma.m16n8k256 of "and" and population count, by the fragments' layout: lane 4 r + t has rows r and r + 8 of a, column r
 * of b, bits 32 t and 128 + 32 t on, and columns 2 t and 2 t + 1 of the sums. */
static void multiply(int *sums, std::initializer_list<unsigned> fragments)
{
    exchange(fragments, [&](const unsigned(&lanes)[LANES][6]) {
        const int group = current % LANES / 4, t = current % 4;
        for (int i = 0; i < 4; ++i)
            for (int k = 0; k < 4; ++k) {
                const unsigned *rows = lanes[4 * group + k], *columns = lanes[4 * (2 * t + i % 2) + k];
                sums[i] += __popc(rows[i / 2] & columns[4]) + __popc(rows[2 + i / 2] & columns[5]);
            }
    });
}

template <class... P, std::size_t... I>
static void call(void (*kernel)(P...), void **arguments, std::index_sequence<I...>)
{
    kernel(*static_cast<std::remove_reference_t<P> *>(arguments[I])...);
}

static void (*body)();
static void start()
{
    body();
    fibres[current].ended = true;
    ++events;
}

/* Blocks one after another. Exits where some threads wait for others that do not come. */
template <class... P> static void launch(void (*kernel)(P...), void **arguments, dim3 grid, dim3 shape)
{
    static void (*launched)(P...);
    static void **given;
    launched = kernel;
    given = arguments;
    body = [] { call(launched, given, std::index_sequence_for<P...>()); };
    const int count = shape.x * shape.y * shape.z;
    gridDim = grid;
    blockDim = shape;
    for (int number = 0; number < grid.x * grid.y * grid.z; ++number) {
        blockIdx = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
        if (__start_shared_memory)
            std::memset(__start_shared_memory, 0xA7, __stop_shared_memory - __start_shared_memory);
        fibres.clear();
        fibres.resize(count);
        warps.assign((count + LANES - 1) / LANES, {});
        block = {count};
        for (int i = 0; i < count; ++i) {
            ++warps[i / LANES].barrier.wanted;
            getcontext(&fibres[i].context);
            fibres[i].context.uc_stack = {fibres[i].stack.get(), 0, STACK};
            fibres[i].context.uc_link = &scheduler;
            makecontext(&fibres[i].context, start, 0);
        }
        for (long before = -1; before != events;) {
            before = events;
            for (current = 0; current < count; ++current) {
                threadIdx = {current % shape.x, current / shape.x % shape.y, current / shape.x / shape.y};
                if (!fibres[current].ended)
                    swapcontext(&scheduler, &fibres[current].context);
            }
        }
        for (const Fibre &fibre : fibres)
            if (!fibre.ended) {
                std::fputs("threads wait at a barrier that others never reach\n", stderr);
                std::abort();
            }
    }
}

} // namespace host

static inline void __syncthreads() { host::wait(host::block); }
static inline unsigned __ballot_sync(unsigned, bool predicate)
{
    unsigned votes = 0;
    host::exchange({predicate}, [&](const unsigned(&lanes)[host::LANES][6]) {
        for (int i = 0; i < host::LANES; ++i)
            votes |= lanes[i][0] << i;
    });
    return votes;
}
#define MULTIPLY(sums, a, b0, b1) host::multiply(sums, {a[0], a[1], a[2], a[3], b0, b1})
#define MULTIPLY_HALF(sums, a, b0) host::multiply(sums, {a[0], a[1], 0, 0, b0, 0})
