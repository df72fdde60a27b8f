// Rung 6 by hand: O = bf16(Q · Kᵀ) · V, the middle in registers.
#include "hopper.cuh"
#include <cuda_bf16.h>

constexpr int ROWS = 128, KEYS = 64, DIM = 128, STAGES = 3;
constexpr int Q_BYTES = ROWS * DIM * 2, K_BYTES = KEYS * DIM * 2, V_BYTES = DIM * KEYS * 2;

extern "C" __global__ void __launch_bounds__(288, 1)
    chained_product(const __grid_constant__ Map q, const __grid_constant__ Map k, const __grid_constant__ Map vt,
                    float* o, uint32_t, uint32_t keys) {
    extern __shared__ __align__(1024) char memory[];
    const uint32_t qs = shared(memory), ks = qs + Q_BYTES, vs = ks + STAGES * K_BYTES, own = vs + STAGES * V_BYTES,
                   full = own + 8, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        barrier_init(own, 1);
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 8);
        }
        barrier_publish();
    }
    __syncthreads();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), steps = keys / KEYS;
    uint32_t stage = 0, phase = 0;
    if (warp == 8) {
        if (elect_one()) {
            barrier_expect(own, Q_BYTES);
            load_box(qs, q, 0, blockIdx.x * ROWS, own);
            load_box(qs + ROWS * 128, q, 64, blockIdx.x * ROWS, own);
            for (int step = 0; step < steps; ++step) {
                barrier_wait(empty + 8 * stage, phase ^ 1);
                barrier_expect(full + 8 * stage, K_BYTES + V_BYTES);
                load_box(ks + stage * K_BYTES, k, 0, step * KEYS, full + 8 * stage);
                load_box(ks + stage * K_BYTES + KEYS * 128, k, 64, step * KEYS, full + 8 * stage);
                load_box(vs + stage * V_BYTES, vt, step * KEYS, 0, full + 8 * stage);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
        }
        return;
    }
    float sum[DIM / 2];
#pragma unroll
    for (int i = 0; i < DIM / 2; ++i) sum[i] = 0;
    const int group = warp / 4;
    barrier_wait(own, 0);
    const uint64_t dq = descriptor(qs + group * 64 * 128);
    for (int step = 0; step < steps; ++step) {
        barrier_wait(full + 8 * stage, phase);
        const uint64_t dk = descriptor(ks + stage * K_BYTES), dv = descriptor(vs + stage * V_BYTES);
        float scores[KEYS / 2];
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < DIM / 16; ++i) {
            wgmma_n64(scores, dq + (i / 4) * (ROWS * 128 >> 4) + 2 * (i % 4), dk + (i / 4) * (KEYS * 128 >> 4) + 2 * (i % 4),
                      i > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        uint32_t weights[KEYS / 16][4];
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(scores[2 * i], scores[2 * i + 1]);
            weights[i / 4][i % 4] = *(const uint32_t*)&pair;
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < KEYS / 16; ++i) wgmma_registers_n128(sum, weights[i], dv + 2 * i, true);
        wgmma_commit();
        wgmma_wait<0>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    const int lane = threadIdx.x % 32, row = blockIdx.x * ROWS + 64 * group + 16 * (warp % 4) + lane / 4;
    float* to = o + (int64_t)row * DIM + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j) {
        *(float2*)(to + 8 * j) = make_float2(sum[4 * j], sum[4 * j + 1]);
        *(float2*)(to + 8 * DIM + 8 * j) = make_float2(sum[4 * j + 2], sum[4 * j + 3]);
    }
}
