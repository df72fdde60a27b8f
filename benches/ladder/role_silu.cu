// Rung 4 by hand: silu, one warp loads, four compute, one stores.
#include "hopper.cuh"

constexpr int ROWS = 128, COLUMNS = 32, STAGES = 3, BYTES = ROWS * COLUMNS * 4;

__device__ inline float silu(float x) {
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-1.44269504f * x));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
    return x * r;
}

extern "C" __global__ void __launch_bounds__(192)
    role_silu(const __grid_constant__ Map x, const __grid_constant__ Map y, uint32_t, uint32_t n) {
    extern __shared__ __align__(1024) char memory[];
    char* const inputs = memory;
    char* const outputs = memory + STAGES * BYTES;
    const uint32_t in = shared(inputs), out = shared(outputs), in_full = out + STAGES * BYTES,
                   in_empty = in_full + 8 * STAGES, out_full = in_empty + 8 * STAGES, out_empty = out_full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(in_full + 8 * s, 1);
            barrier_init(in_empty + 8 * s, 4);
            barrier_init(out_full + 8 * s, 4);
            barrier_init(out_empty + 8 * s, 1);
        }
        barrier_publish();
    }
    __syncthreads();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), tiles = n / COLUMNS, row = blockIdx.x * ROWS;
    uint32_t stage = 0, phase = 0;
    if (warp == 4) {
        if (elect_one()) {
            for (int tile = 0; tile < tiles; ++tile) {
                barrier_wait(in_empty + 8 * stage, phase ^ 1);
                barrier_expect(in_full + 8 * stage, BYTES);
                load_box(in + stage * BYTES, x, tile * COLUMNS, row, in_full + 8 * stage);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
        }
    } else if (warp == 5) {
        if (elect_one()) {
            for (int tile = 0; tile < tiles; ++tile) {
                barrier_wait(out_full + 8 * stage, phase);
                proxy_fence();
                store_box(y, tile * COLUMNS, row, out + stage * BYTES);
                store_commit();
                store_wait_read<0>();
                barrier_arrive(out_empty + 8 * stage);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
    } else {
        for (int tile = 0; tile < tiles; ++tile) {
            barrier_wait(in_full + 8 * stage, phase);
            barrier_wait(out_empty + 8 * stage, phase ^ 1);
            const int line = stage * BYTES + threadIdx.x * 128;
#pragma unroll
            for (int chunk = 0; chunk < 8; ++chunk) {
                const int place = line + ((chunk ^ threadIdx.x % 8) * 16);
                const float4 v = *(const float4*)(inputs + place);
                *(float4*)(outputs + place) = make_float4(silu(v.x), silu(v.y), silu(v.z), silu(v.w));
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                barrier_arrive(in_empty + 8 * stage);
                barrier_arrive(out_full + 8 * stage);
            }
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}
