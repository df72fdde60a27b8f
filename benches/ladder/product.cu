// Rung 5 by hand: C = A · Bᵀ, one warp copies, two warpgroups multiply.
#include "hopper.cuh"

constexpr int M = 128, N = 256, K = 64, STAGES = 4, A_BYTES = M * K * 2, B_BYTES = N * K * 2;

extern "C" __global__ void __launch_bounds__(288, 1)
    product(const __grid_constant__ Map a, const __grid_constant__ Map b, float* c, uint32_t, uint32_t k, uint32_t,
            uint64_t pitch) {
    extern __shared__ __align__(1024) char memory[];
    const uint32_t as = shared(memory), bs = as + STAGES * A_BYTES, full = bs + STAGES * B_BYTES,
                   empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 8);
        }
        barrier_publish();
    }
    __syncthreads();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), steps = k / K;
    uint32_t stage = 0, phase = 0;
    if (warp == 8) {
        if (elect_one()) {
            for (int step = 0; step < steps; ++step) {
                barrier_wait(empty + 8 * stage, phase ^ 1);
                barrier_expect(full + 8 * stage, A_BYTES + B_BYTES);
                load_box(as + stage * A_BYTES, a, step * K, blockIdx.y * M, full + 8 * stage);
                load_box(bs + stage * B_BYTES, b, step * K, blockIdx.x * N, full + 8 * stage);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
        }
        return;
    }
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) d[i] = 0;
    const int group = warp / 4;
    for (int step = 0; step < steps; ++step) {
        barrier_wait(full + 8 * stage, phase);
        const uint64_t da = descriptor(as + stage * A_BYTES + group * 64 * 128);
        const uint64_t db = descriptor(bs + stage * B_BYTES);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < K / 16; ++i) wgmma_n256(d, da + 2 * i, db + 2 * i, true);
        wgmma_commit();
        wgmma_wait<0>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    const int lane = threadIdx.x % 32, row = blockIdx.y * M + 64 * group + 16 * (warp % 4) + lane / 4;
    float* to = c + row * pitch + blockIdx.x * N + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        *(float2*)(to + 8 * j) = make_float2(d[4 * j], d[4 * j + 1]);
        *(float2*)(to + 8 * pitch + 8 * j) = make_float2(d[4 * j + 2], d[4 * j + 3]);
    }
}
