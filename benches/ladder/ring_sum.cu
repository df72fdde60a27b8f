// Rung 3 by hand: sums of rows through a ring of four stages.
#include "hopper.cuh"

constexpr int ROWS = 128, COLUMNS = 32, STAGES = 4, BYTES = ROWS * COLUMNS * 4;

extern "C" __global__ void __launch_bounds__(ROWS)
    ring_sum__stages4(const __grid_constant__ Map x, float* y, uint32_t, uint32_t n) {
    extern __shared__ __align__(1024) char memory[];
    const uint32_t tiles = shared(memory), full = tiles + STAGES * BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, ROWS / 32);
        }
        barrier_publish();
    }
    __syncthreads();
    const int row = blockIdx.x * ROWS, steps = n / COLUMNS;
    const bool first_warp = __shfl_sync(~0u, threadIdx.x / 32, 0) == 0;
    if (first_warp && elect_one()) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_expect(full + 8 * s, BYTES);
            load_box(tiles + s * BYTES, x, s * COLUMNS, row, full + 8 * s);
        }
    }
    float sum = 0;
    uint32_t stage = 0, phase = 0;
    for (int step = 0; step < steps; ++step) {
        barrier_wait(full + 8 * stage, phase);
        const char* line = memory + stage * BYTES + threadIdx.x * 128;
#pragma unroll
        for (int chunk = 0; chunk < 8; ++chunk) {
            const float4 v = *(const float4*)(line + ((chunk ^ threadIdx.x % 8) * 16));
            sum += v.x;
            sum += v.y;
            sum += v.z;
            sum += v.w;
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
        if (step + STAGES < steps && first_warp && elect_one()) {
            barrier_wait(empty + 8 * stage, phase);
            barrier_expect(full + 8 * stage, BYTES);
            load_box(tiles + stage * BYTES, x, (step + STAGES) * COLUMNS, row, full + 8 * stage);
        }
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    y[row + threadIdx.x] = sum;
}
