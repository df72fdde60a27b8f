// tc_commit by hand in CUDA C++, for sm_90a: the kernels beside which the ones in the language are timed.
//
// Contract: that of kda-kernels/src/families/tc_commit.rs with bf16 states, a bounded gate, one layer, no boundary, dense tensors,
// histories [Q + 2, 3, H, 128] or none, at most Q of 8 records and slots below the pool's length.
//
// A CTA owns ROWS rows of V of one (request, head), in registers: a thread has 8 columns of K of every eighth row. Keys, decayed from the last
// token on, and corrections pass through shared memory.
//
//     nvcc -ptx -arch=sm_90a -O3 -std=c++17 twin.cu
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

// The one parameter; src/bench/tc_commit/twin.rs packs it in this order.
struct Args {
  bf16* state;                            // [slots, H, 128, 128]
  bf16* conv;                             // [slots, Q + 2, 3, H, 128] or null
  const float* corr;                      // [B, H, Q, 128]
  const bf16* kg;                         // [B, H, Q, 2, 128]
  const float* a_log;                     // [H]
  const float* dt_bias;                   // [H, 128]
  const int *sources, *destinations, *counts;
  int H, Q, null;
  float lower_bound;
};
static_assert(sizeof(Args) == 88, "as the host packs it");

constexpr int THREADS = 128, D = 128, MOST = 8, HISTORY = 3;
constexpr float LOG2E = 1.4426950408889634f;

struct Smem {
  float keys[MOST][D], corrections[MOST][D], decay[D];
  float squares[4][MOST];  // of each key, by warp
};

// ---- Functions and memory: loads keep their order

#define INLINE static __device__ __forceinline__
INLINE float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float rsq(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float lo(uint32_t w) { return __uint_as_float(w << 16); }
INLINE float hi(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }
INLINE uint32_t pack(float a, float b) { uint32_t r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
INLINE int load_int(const int* p) { int r; asm volatile("ld.global.b32 %0, [%1];" : "=r"(r) : "l"(p) : "memory"); return r; }
INLINE uint32_t load_word(const bf16* p) { uint32_t r; asm volatile("ld.global.b32 %0, [%1];" : "=r"(r) : "l"(p) : "memory"); return r; }
// Read once: not kept in L1.
INLINE uint4 load_state(const bf16* p) {
  uint4 r;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory");
  return r;
}
INLINE void store_state(bf16* p, uint4 v) { asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory"); }

// ---- The kernel

template <int ROWS> INLINE void commit(const Args& p) {
  constexpr int HELD = ROWS / 8, SLICES = D / ROWS;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& [keys, corrections, decay, squares] = *reinterpret_cast<Smem*>(memory);
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, H = p.H, Q = p.Q;
  const int slice = blockIdx.x % SLICES, head = blockIdx.x / SLICES % H, request = blockIdx.x / SLICES / H;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int from = load_int(p.sources + request), to = load_int(p.destinations + request), n = min(load_int(p.counts + request), Q);
  if (from <= p.null || to <= p.null || n <= 0) return;

  // The state is on its way while the records are read.
  const int column = lane % 16 * 8, row = slice * ROWS + warp * 2 + lane / 16;
  const size_t place = (size_t)(head * D + row) * D + column, pool = (size_t)H * D * D;
  const bf16* state = p.state + from * pool + place;
  uint4 held[HELD];
#pragma unroll
  for (int j = 0; j < HELD; j++) held[j] = load_state(state + j * 8 * D);
  const size_t record = (size_t)(request * H + head) * Q;
  float key[MOST], gate[MOST], sums[MOST];
#pragma unroll
  for (int i = 0; i < MOST; i++) {
    key[i] = gate[i] = 0.f;
    if (i < n) {
      key[i] = __bfloat162float(p.kg[(record + i) * 2 * D + tid]), gate[i] = __bfloat162float(p.kg[(record + i) * 2 * D + D + tid]);
      corrections[i][tid] = p.corr[(record + i) * D + tid];
    }
    sums[i] = key[i] * key[i];
  }
  const float bias = p.dt_bias[head * D + tid], rate = ex2(p.a_log[head] * LOG2E);

  // Three rows of the history of this head, two channels at once.
  if (p.conv && slice == 0 && (n != 1 || from != to)) {
    const size_t width = (size_t)H * D, line = (Q + 2) * 3 * width;
    uint32_t words[2][HISTORY];
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int word = tid + k * THREADS;
      const bf16* rows = p.conv + from * line + (size_t)(n - 1) * 3 * width + word / 64 * width + head * D + word % 64 * 2;
#pragma unroll
      for (int i = 0; i < HISTORY; i++)
        if (word < 3 * 64) words[k][i] = load_word(rows + i * 3 * width);
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int word = tid + k * THREADS;
      bf16* rows = p.conv + to * line + word / 64 * width + head * D + word % 64 * 2;
#pragma unroll
      for (int i = 0; i < HISTORY; i++)
        if (word < 3 * 64) *(uint32_t*)(rows + i * 3 * width) = words[k][i];
    }
  }

  // Sums of squares of all keys at once: lane 4 i has that of key i.
#pragma unroll
  for (int count = 4, stride = 16; count >= 1; count /= 2, stride /= 2) {
    const bool upper = lane & stride;
#pragma unroll
    for (int j = 0; j < count; j++) {
      const float send = upper ? sums[j] : sums[j + count], keep = upper ? sums[j + count] : sums[j];
      sums[j] = keep + __shfl_xor_sync(~0u, send, stride);
    }
  }
  float square = sums[0];
  square += __shfl_xor_sync(~0u, square, 2), square += __shfl_xor_sync(~0u, square, 1);
  if (lane % 4 == 0) squares[warp][lane / 4] = square;
  __syncthreads();
  float log = 0.f;
#pragma unroll
  for (int i = MOST - 1; i >= 0; i--)
    if (i < n) {
      keys[i][tid] = key[i] * rsq(squares[0][i] + squares[1][i] + squares[2][i] + squares[3][i] + 1e-6f) * ex2(log);
      log += p.lower_bound * LOG2E * rcp(1.f + ex2(-LOG2E * rate * (gate[i] + bias)));
    }
  decay[tid] = ex2(log);
  __syncthreads();

  bf16* result = p.state + to * pool + place;
  const float4 a = *(const float4*)&decay[column], b = *(const float4*)&decay[column + 4];
#pragma unroll
  for (int group = 0; group < HELD / 4; group++) {
    float s[4][8];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint4 w = held[4 * group + j];
      s[j][0] = lo(w.x) * a.x, s[j][1] = hi(w.x) * a.y, s[j][2] = lo(w.y) * a.z, s[j][3] = hi(w.y) * a.w;
      s[j][4] = lo(w.z) * b.x, s[j][5] = hi(w.z) * b.y, s[j][6] = lo(w.w) * b.z, s[j][7] = hi(w.w) * b.w;
    }
#pragma unroll 1
    for (int i = 0; i < n; i++) {
      const float4 k = *(const float4*)&keys[i][column], l = *(const float4*)&keys[i][column + 4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float u = corrections[i][row + 8 * (4 * group + j)];
        s[j][0] = fmaf(u, k.x, s[j][0]), s[j][1] = fmaf(u, k.y, s[j][1]), s[j][2] = fmaf(u, k.z, s[j][2]), s[j][3] = fmaf(u, k.w, s[j][3]);
        s[j][4] = fmaf(u, l.x, s[j][4]), s[j][5] = fmaf(u, l.y, s[j][5]), s[j][6] = fmaf(u, l.z, s[j][6]), s[j][7] = fmaf(u, l.w, s[j][7]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
      store_state(result + (4 * group + j) * 8 * D, make_uint4(pack(s[j][0], s[j][1]), pack(s[j][2], s[j][3]), pack(s[j][4], s[j][5]), pack(s[j][6], s[j][7])));
  }
}

// NAME, rows of V a CTA, CTAs an SM.
#define KERNEL(NAME, ROWS, CTAS)                                                                      \
  extern "C" __constant__ unsigned NAME##_shared = sizeof(Smem);                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, CTAS) NAME(const __grid_constant__ Args p) { \
    commit<ROWS>(p);                                                                                 \
  }
KERNEL(rows32, 32, 8)
KERNEL(rows64, 64, 6)
