// tc_verify by hand in CUDA C++, for sm_90a: the kernels beside which the one in the language is timed.
//
// Contract: that of kda-kernels/src/families/tc_verify/hopper.rs with a convolution whose history is [Q + 2, 3, H, 128], dense tensors,
// offsets in order, at most Q tokens a request and slots below the pool's length. The counters are zero ahead of a launch and zero
// after it.
//
// CTAs walk over the requests of one head each. A thread makes the probes of two channels of four tokens; behind the products it has
// two neighbouring rows of V of two tokens in each of two blocks. Raw inputs are loaded by threads, or copied in boxes (COPIES), and then
// the history is rolled by one copy.
//
//     nvcc -ptx -arch=sm_90a -O3 -std=c++17 twin.cu
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;
struct alignas(64) Map { unsigned char bytes[128]; };

// The one parameter; src/bench/tc_verify/twin.rs packs it in this order.
struct Args {
  Map state;             // [slots, 8 H, 2, 8, 128]: row 2 g + a of 16 is row 8 a + g of a tile; boxes [1, 8, 2, 8, 64]
  // With COPIES.
  Map tokens, gates;     // [T, 3, H 128], boxes [8, 3, 128]; [T, H 128], boxes [8, 128]
  Map past, roll, row;   // [slots, Q + 2, 3, H 128]: boxes of 3, Q + 2 and 1 rows
  const bf16* qkv;       // [T, 3, H, 128]
  const bf16* raw_g;     // [T, H, 128]
  const bf16* raw_beta;  // [T, H]
  const float* a_log;    // [H]
  const float* dt_bias;  // [H, 128]
  const void* taps;      // [3, H, 128, 4]
  bf16* conv;            // [slots, Q + 2, 3, H, 128]
  const int *slots, *starts, *accepted;
  float* corr;           // [B, H, Q, 128]
  bf16* kg;              // [B, H, Q, 2, 128]
  bf16* out;             // [T, H, 128]
  unsigned* counter;     // [H] or null
  int B, H, Q, null;
  float lower_bound, scale;
  int overlap;           // 0 none, 1 everything behind the wait, 2 metadata and the first state ahead of it
  int late;              // the first state: 0 ahead of the raw inputs, 1 behind their loads, 2 when they have arrived
};
static_assert(sizeof(Args) == 960, "as the host packs it");

constexpr int THREADS = 128, D = 128, TOKENS_MAX = 8;
// Rows of the probes: p, r, what rounding lost of them, w, what it lost.
constexpr int R = 8, LOST = 16, W = 32, ROWS = 48;
constexpr float LOG2E = 1.4426950408889634f;

struct Smem {
  bf16 state[2][D][64];     // halves of K, swizzled
  bf16 probes[2][ROWS][64]; // the same
  uint32_t v[TOKENS_MAX][68];
  float4 parts[4][32];      // couplings by warp, as lanes hold them
  float norms[16][4];       // sums of k² and q² of each token, by warp
  float beta[TOKENS_MAX];
  uint64_t landed;
  int ticket;
};
// SOFTPLUS: keys of tokens 0 to 3 decayed to the end of token 3, by warp; then what rounding lost.
struct SmemKeys : Smem { alignas(16) bf16 keys[4][8][40]; };
// COPIES: three rows of the history and eight tokens; gates.
struct SmemRaw : Smem {
  alignas(128) bf16 raw[11][3][D];
  bf16 gates[TOKENS_MAX][D];
  uint64_t raw_landed;
};
template <bool SOFTPLUS, bool COPIES> struct Memory { typedef Smem Type; };
template <> struct Memory<true, false> { typedef SmemKeys Type; };
template <> struct Memory<false, true> { typedef SmemRaw Type; };

// ---- Functions

#define INLINE static __device__ __forceinline__
INLINE float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float lg2(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float rsq(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float silu(float x) { return x * rcp(1.f + ex2(-LOG2E * x)); }
// The two channels of a word.
INLINE float lo(uint32_t w) { return __uint_as_float(w << 16); }
INLINE float hi(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }
INLINE uint32_t pack(float a, float b) { uint32_t r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
INLINE uint32_t mul2(uint32_t a, uint32_t b) { uint32_t r; asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
// In the order in which it stands: ptxas would move it, and with it a wait, ahead of later loads.
INLINE uint32_t pick(uint32_t a, uint32_t b, uint32_t s) { uint32_t r; asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(s) : "memory"); return r; }
INLINE float shfl(float x, int from) { return __shfl_sync(~0u, x, from); }
// Sums over the lanes of a half, 2 N values at once: v[0] is the one whose number the lane's highest bits say.
template <int N, int STRIDE> INLINE void scatter(float* v, int lane) {
  if constexpr (N >= 1) {
    const bool upper = lane & STRIDE;
#pragma unroll
    for (int j = 0; j < N; j++) {
      const float send = upper ? v[j] : v[j + N], keep = upper ? v[j + N] : v[j];
      v[j] = keep + __shfl_xor_sync(~0u, send, STRIDE);
    }
    scatter<N / 2, STRIDE / 2>(v, lane);
  }
}

// ---- Memory: accesses keep their order, and are under predicates so that they stand in straight lines

INLINE uint32_t at(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
INLINE int load_int(const int* p) { int r; asm volatile("ld.global.b32 %0, [%1];" : "=r"(r) : "l"(p)); return r; }
INLINE float load_f32(const float* p) { float r; asm volatile("ld.global.f32 %0, [%1];" : "=f"(r) : "l"(p) : "memory"); return r; }
INLINE float2 load_two(const float* p) { float2 r; asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(p) : "memory"); return r; }
INLINE uint4 load_four(const void* p) { uint4 r; asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory"); return r; }
#define IF(N) "{ .reg .pred q; setp.ne.b32 q, %" #N ", 0; "
INLINE uint32_t load_if(const bf16* p, bool on) {
  uint32_t r;
  asm volatile(IF(2) "mov.b32 %0, 0; @q ld.global.L2::256B.b32 %0, [%1]; }" : "=r"(r) : "l"(p), "r"((uint32_t)on) : "memory");
  return r;
}
INLINE uint32_t load_half_if(const bf16* p, bool on) {
  uint16_t r;
  asm volatile(IF(2) "mov.b16 %0, 0; @q ld.global.b16 %0, [%1]; }" : "=h"(r) : "l"(p), "r"((uint32_t)on) : "memory");
  return r;
}
INLINE void store_if(bf16* p, uint32_t x, bool on) { asm volatile(IF(2) "@q st.global.b32 [%0], %1; }" ::"l"(p), "r"(x), "r"((uint32_t)on) : "memory"); }
INLINE void store_two_if(float* p, float a, float b, bool on) { asm volatile(IF(3) "@q st.global.v2.f32 [%0], {%1, %2}; }" ::"l"(p), "f"(a), "f"(b), "r"((uint32_t)on) : "memory"); }
INLINE void put(uint32_t to, uint32_t x) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory"); }
INLINE uint32_t get(const void* from) { uint32_t r; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(at(from)) : "memory"); return r; }
INLINE float get_f32(const void* from) { return __uint_as_float(get(from)); }
INLINE float4 get_four(const void* from) {
  float4 r;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "r"(at(from)) : "memory");
  return r;
}

// ---- Barriers and copies

INLINE bool elected() {
  uint32_t yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}
INLINE void init(uint64_t* b) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(b)) : "memory"); }
INLINE void expect(uint64_t* b, uint32_t bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes) : "memory"); }
INLINE void wait(uint64_t* b, uint32_t parity) {
  uint32_t yes;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(yes) : "r"(at(b)), "r"(parity) : "memory");
  while (!yes);
}
#define BOX(RANK) "cp.async.bulk.tensor." #RANK "d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
INLINE void copy(void* to, const Map& m, uint64_t* b, int x, int y) { asm volatile(BOX(2) "{%3, %4}], [%2];" ::"r"(at(to)), "l"(&m), "r"(at(b)), "r"(x), "r"(y) : "memory"); }
INLINE void copy(void* to, const Map& m, uint64_t* b, int x, int y, int z) { asm volatile(BOX(3) "{%3, %4, %5}], [%2];" ::"r"(at(to)), "l"(&m), "r"(at(b)), "r"(x), "r"(y), "r"(z) : "memory"); }
INLINE void copy(void* to, const Map& m, uint64_t* b, int x, int y, int z, int w) { asm volatile(BOX(4) "{%3, %4, %5, %6}], [%2];" ::"r"(at(to)), "l"(&m), "r"(at(b)), "r"(x), "r"(y), "r"(z), "r"(w) : "memory"); }
INLINE void copy_state(void* to, const Map& m, uint64_t* b, int half, int head, int slot) {
  asm volatile(BOX(5) "{%3, %4, %4, %5, %6}], [%2];" ::"r"(at(to)), "l"(&m), "r"(at(b)), "r"(64 * half), "r"(0), "r"(8 * head), "r"(slot) : "memory");
}
INLINE void copy_back(const Map& m, const void* from, int x, int row, int slot) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&m), "r"(at(from)), "r"(x), "r"(0), "r"(row), "r"(slot) : "memory");
}

// ---- Products

INLINE void load_matrices(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
#define MMA(KIND) "mma.sync.aligned." KIND " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
INLINE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(MMA("m16n8k16.row.col.f32.bf16.bf16.f32") : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE void mma(float (&c)[4], const float (&a)[4], float b0, float b1) {
  asm volatile(MMA("m16n8k8.row.col.f32.tf32.tf32.f32") : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
INLINE float tf32(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }
// c += x bᵀ in three terms; x as accumulators hold it, b0 and b1 of columns 2 (lane % 4) and the next.
INLINE void mma_three(float (&c)[4], const float (&x)[4], float b0, float b1) {
  const float b0h = tf32(b0), b1h = tf32(b1);
  const float high[4] = {tf32(x[0]), tf32(x[2]), tf32(x[1]), tf32(x[3])};
  const float low[4] = {x[0] - high[0], x[2] - high[1], x[1] - high[2], x[3] - high[3]};
  mma(c, low, b0h, b1h);
  mma(c, high, b0 - b0h, b1 - b1h);
  mma(c, high, b0h, b1h);
}
// Of 128-byte rows, swizzled, K along them.
INLINE uint64_t descriptor(const void* tile) { return 0x4000004000010000ull | (at(tile) & 0x3ffff) >> 4; }
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
template <bool ADD> INLINE void wgmma(float (&d)[16], uint64_t a, uint64_t b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0; }"
      : R4(d, 0), R4(d, 4), R4(d, 8), R4(d, 12) : "l"(a), "l"(b), "n"(ADD));
}

// ---- The kernel

// HEADS: known number of heads, or 0.
template <int HEADS, bool TAPS_F32, bool SOFTPLUS, bool COPIES> INLINE void verify(const Args& p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& s = *reinterpret_cast<typename Memory<SOFTPLUS, COPIES>::Type*>(memory);
  const int tid = threadIdx.x, lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int H = HEADS ? HEADS : p.H, Q = p.Q;
  const int head = blockIdx.x % H, step = gridDim.x / H;
  const int half = lane / 16, pair = lane % 16, first = 4 * half, ch = 32 * warp + 2 * pair;
  const int width = H * D, pitch = 3 * width, mine = head * D + ch; // of rows, and of my channels in a part
  const size_t line = (size_t)(Q + 2) * pitch;

  // The first request.
  int request = blockIdx.x / H;
  if (p.overlap == 1) asm volatile("griddepcontrol.wait;" ::: "memory");
  int slot = load_int(p.slots + request), begin = load_int(p.starts + request), end = load_int(p.starts + request + 1);
  int past = load_int(p.accepted + request) - 1;
  if (tid == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&p.state) : "memory");
  int len = end - begin;
  bool valid = slot > p.null, live = valid && len > 0;
  auto fetch_state = [&](int of) {
    expect(&s.landed, sizeof s.state);
    copy_state(s.state[0], p.state, &s.landed, 0, head, of);
    copy_state(s.state[1], p.state, &s.landed, 1, head, of);
  };
  // Stores of boxes are waited for by the thread that issues them, so that it is thread 0 with COPIES.
  if (COPIES ? tid == 0 : warp == 0 && elected()) {
    init(&s.landed);
    if constexpr (COPIES) init(&s.raw_landed);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (live && p.late == 0) fetch_state(slot);
  }
  if (p.overlap == 2) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (p.overlap) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

  // Three tokens ahead of mine and my four, of q, k and v; gates; the write strength of token `tid`.
  uint32_t stream[3][7], gate[4], strength = 0, parity = 0, raw_parity = 0;
  auto fetch = [&](int slot, int begin, int len, int past) {
    strength = load_half_if(p.raw_beta + (size_t)(begin + tid) * H + head, tid < len);
    if constexpr (COPIES) {
      if (tid == 0) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        expect(&s.raw_landed, sizeof s.raw + sizeof s.gates);
        copy(s.raw[3], p.tokens, &s.raw_landed, head * D, 0, begin);
        copy(s.raw[0], p.past, &s.raw_landed, head * D, 0, past, slot);
        copy(s.gates, p.gates, &s.raw_landed, head * D, begin);
      }
    } else {
      const bf16* tokens = p.qkv + (size_t)(begin + first) * pitch + mine;
      const bf16* gates = p.raw_g + (size_t)(begin + first) * width + mine;
      const bf16* before = half ? tokens - 3 * pitch : p.conv + (size_t)slot * line + (size_t)past * pitch + mine;
#pragma unroll
      for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int x = 0; x < 3; x++) stream[x][3 + j] = load_if(tokens + j * pitch + x * width, first + j < len);
        gate[j] = load_if(gates + j * width, first + j < len);
      }
#pragma unroll
      for (int j = 0; j < 3; j++)
#pragma unroll
        for (int x = 0; x < 3; x++) stream[x][j] = load_if(before + j * pitch + x * width, !half || j + 1 < len);
    }
  };
  if (live) {
    fetch(slot, begin, len, past);
    if (p.late == 1 && warp == 0 && elected()) fetch_state(slot);
  }

  // The head's constants.
  uint4 words[3][TAPS_F32 ? 2 : 1];
#pragma unroll
  for (int x = 0; x < 3; x++)
#pragma unroll
    for (int i = 0; i < (TAPS_F32 ? 2 : 1); i++)
      words[x][i] = load_four((const char*)p.taps + (size_t)(x * width + mine) * (TAPS_F32 ? 16 : 8) + 16 * i);
  const float2 bias = load_two(p.dt_bias + mine);
  const float log_rate = load_f32(p.a_log + head);
  uint32_t taps[3][4];  // bf16: two channels a tap
  if constexpr (!TAPS_F32) {
#pragma unroll
    for (int x = 0; x < 3; x++) {
      const uint4 w = words[x][0];
      taps[x][0] = pick(w.x, w.z, 0x5410), taps[x][1] = pick(w.x, w.z, 0x7632);
      taps[x][2] = pick(w.y, w.w, 0x5410), taps[x][3] = pick(w.y, w.w, 0x7632);
    }
  }
  const float rate = ex2(log_rate * LOG2E), slope = SOFTPLUS ? LOG2E : -rate * LOG2E;
  const float shift[2] = {slope * bias.x, slope * bias.y}, bound = p.lower_bound * LOG2E;
  auto tap = [&](int x, int i, int channel) {
    const uint4 w = words[x][TAPS_F32 ? channel : 0];
    return __uint_as_float(i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w);
  };

  auto put_split = [&](uint32_t to, int lost, float a, float b) {
    const uint32_t w = pack(a, b);
    put(to, w), put(to + lost * 128, pack(a - lo(w), b - hi(w)));
  };

  int next = request + step;
  bool pending = live && p.late == 2, fresh = COPIES;
  for (;;) {
    const bool more = next < p.B;
    int ticket = next + step;
    if (p.counter && more && tid == 0) {
      const int n = atomicInc(p.counter + head, p.B - step - 1);  // the last one of this launch leaves 0
      ticket = n + 2 * step;
    }
    int next_slot = 0, next_begin = 0, next_end = 0, next_past = 0;
    if (more) next_slot = p.slots[next], next_begin = p.starts[next], next_end = p.starts[next + 1], next_past = p.accepted[next] - 1;
    const int next_len = next_end - next_begin;
    const bool next_live = more && next_slot > p.null && next_len > 0;
    if (live) {
      if (tid < TOKENS_MAX) s.beta[tid] = tid < len ? rcp(1.f + ex2(-LOG2E * lo(strength))) : 0.f;
      if constexpr (COPIES) {
        if (fresh) __syncthreads(), fresh = false;  // the barrier is there for all
        wait(&s.raw_landed, raw_parity), raw_parity ^= 1;
        // Rows 1 and up of what has arrived are the new history from row 0 on.
        if (tid == 0) {
          if (len == Q) copy_back(p.roll, s.raw[1], head * D, 0, slot);
          else for (int r = 0; r < len + 2; r++) copy_back(p.row, s.raw[1 + r], head * D, r, slot);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
#pragma unroll
        for (int j = 0; j < 7; j++)
#pragma unroll
          for (int x = 0; x < 3; x++) stream[x][j] = get(&s.raw[first + j][x][ch]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          gate[j] = get(&s.gates[first + j][ch]);
          if (first + j >= len) gate[j] = stream[0][3 + j] = stream[1][3 + j] = stream[2][3 + j] = 0;
        }
      }

      // Places are made here: addresses that are kept over the loop take registers.
      unsigned l = lane;
      asm volatile("" : "+r"(l));
      const int t = l / 4, c = l % 4, matrix = l / 8, r = l % 8;                   // of fragments and of matrices
      const int token0 = l / 16 * 4, column = 32 * warp + l % 16 * 2;              // first and ch

      // Gates: their running sum; with SOFTPLUS each of them, too.
      float cum[4][2], own[4][2], ahead[2];
      {
        float sum[2] = {0.f, 0.f};
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const float x = fmaf(slope, e ? hi(gate[j]) : lo(gate[j]), shift[e]), on = first + j < len ? 1.f : 0.f;
            if constexpr (SOFTPLUS) own[j][e] = -rate * on * (x > 28.85f ? x : lg2(1.f + ex2(x))), sum[e] += own[j][e];
            else sum[e] = fmaf(on * bound, rcp(1.f + ex2(x)), sum[e]);
            cum[j][e] = sum[e];
          }
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float before = __shfl_up_sync(~0u, sum[e], 16);
          ahead[e] = half ? before : 0.f;
        }
      }
      // All of this CTA's raw inputs ahead of the first state.
      if (pending && warp == 0 && elected()) fetch_state(slot);
      pending = false;
      __syncwarp();

      // Convolution and SiLU of q, k and v.
      uint32_t y[3][4], key[4];
#pragma unroll
      for (int x = 0; x < 3; x++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float a, b;
          if constexpr (TAPS_F32) {
            a = __fmul_rn(lo(stream[x][j]), tap(x, 0, 0)), b = __fmul_rn(hi(stream[x][j]), tap(x, 0, 1));
#pragma unroll
            for (int i = 1; i < 4; i++) a = fmaf(lo(stream[x][j + i]), tap(x, i, 0), a), b = fmaf(hi(stream[x][j + i]), tap(x, i, 1), b);
          } else {
            const uint32_t product = mul2(stream[x][j], taps[x][0]);
            a = lo(product), b = hi(product);
#pragma unroll
            for (int i = 1; i < 4; i++) {
              const uint32_t product = mul2(stream[x][j + i], taps[x][i]);
              a = __fadd_rn(a, lo(product)), b = __fadd_rn(b, hi(product));
            }
          }
          y[x][j] = pack(silu(a), silu(b));
        }
      constexpr int VALUES = SOFTPLUS ? 24 : 8;
      float sums[VALUES];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const bool on = first + j < len;
        put(at(&s.v[first + j][ch / 2]), COPIES && !on ? 0u : y[2][j]);
        key[j] = y[1][j];
        if (!on) y[0][j] = y[1][j] = 0;
        sums[j] = fmaf(lo(y[1][j]), lo(y[1][j]), hi(y[1][j]) * hi(y[1][j]));
        sums[4 + j] = fmaf(lo(y[0][j]), lo(y[0][j]), hi(y[0][j]) * hi(y[0][j]));
      }

      // Probes; where that of token first + j lies among the rows of p.
      const uint32_t place = at(s.probes[column / 64]) + token0 * 128 + ((column % 64 / 8 ^ token0) << 4) + column % 8 * 2;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float log[2] = {cum[j][0] + ahead[0], cum[j][1] + ahead[1]}, e0 = ex2(log[0]), e1 = ex2(log[1]);
        const uint32_t to = (place ^ j << 4) + j * 128;
        put_split(to, LOST, e0 * lo(y[1][j]), e1 * hi(y[1][j]));
        put_split(to + R * 128, LOST, e0 * lo(y[0][j]), e1 * hi(y[0][j]));
        if constexpr (!SOFTPLUS) put_split(to + W * 128, 8, ex2(-log[0]) * lo(y[1][j]), ex2(-log[1]) * hi(y[1][j]));
      }
      if constexpr (SOFTPLUS) {
        // Factors of at most 1. Across the halves: later tokens decay from the end of token 3, and take the rows of w (k of tokens 4 to 7,
        // then q); earlier keys decay up to it.
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float e0 = ex2(half ? cum[j][0] : cum[3][0] - cum[j][0]), e1 = ex2(half ? cum[j][1] : cum[3][1] - cum[j][1]);
          if (half) {
            const uint32_t base = at(s.probes[ch / 64]) + W * 128 + ch % 8 * 2, chunk = ch % 64 / 8;
            put_split(base + j * 128 + ((chunk ^ j) << 4), 8, e0 * lo(y[1][j]), e1 * hi(y[1][j]));
            put_split(base + (4 + j) * 128 + ((chunk ^ (4 + j)) << 4), 8, e0 * lo(y[0][j]), e1 * hi(y[0][j]));
          } else {
            const float a = e0 * lo(y[1][j]), b = e1 * hi(y[1][j]);
            const uint32_t w = pack(a, b);
            put(at(&s.keys[warp][j][2 * pair]), w), put(at(&s.keys[warp][4 + j][2 * pair]), pack(a - lo(w), b - hi(w)));
          }
        }
        // Within a half: of token j, C_ji and D_ji of the tokens up to it, from j² on, D_jj last.
        float w[4][2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float k[2] = {lo(y[1][j]), hi(y[1][j])}, q[2] = {lo(y[0][j]), hi(y[0][j])};
          const float fall[2] = {ex2(own[j][0]), ex2(own[j][1])};
#pragma unroll
          for (int i = 0; i < j; i++) {
            w[i][0] *= fall[0], w[i][1] *= fall[1];
            sums[8 + j * j + 2 * i] = fmaf(k[0], w[i][0], k[1] * w[i][1]);
            sums[8 + j * j + 2 * i + 1] = fmaf(q[0], w[i][0], q[1] * w[i][1]);
          }
          w[j][0] = k[0], w[j][1] = k[1];
          sums[8 + j * j + 2 * j] = fmaf(q[0], k[0], q[1] * k[1]);
        }
      }
      scatter<4, 8>(sums, pair);
      const float square = sums[0] + __shfl_xor_sync(~0u, sums[0], 1);
      if (l % 2 == 0) s.norms[l % 16 / 8 * 8 + token0 + l / 2 % 4][warp] = square;
      if constexpr (SOFTPLUS) {
        scatter<8, 8>(sums + 8, pair);
        const unsigned n = l % 16, j = n >= 9 ? 3 : n >= 4 ? 2 : n >= 1 ? 1 : 0, rest = n - j * j;
        const unsigned i = token0 + rest / 2, is_d = rest == 2 * j || rest % 2;
        ((float*)&s.parts[warp][4 * (token0 + j) + i / 2])[i % 2 + 2 * is_d] = sums[8];
      }
      __syncwarp();

      // Couplings of this warp's channels: C in rows 0 to 7, D in rows 8 to 15.
      float gram[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int chunk = 4 * warp + 2 * k;
        const uint32_t tile = at(s.probes[chunk / 8]) + r * 128;
        const int across = chunk % 8 + matrix / 2, down = chunk % 8 + matrix % 2;
        if constexpr (!SOFTPLUS) {
          uint32_t high[4], low[4], w[4];
          load_matrices(high, tile + matrix % 2 * R * 128 + ((across ^ r) << 4));
          load_matrices(w, tile + (W + matrix / 2 * 8) * 128 + ((down ^ r) << 4));
          load_matrices(low, tile + (LOST + matrix % 2 * R) * 128 + ((across ^ r) << 4));
          mma(gram, high, w[2], w[3]);
          mma(gram, low, w[0], w[1]);
          mma(gram, high, w[0], w[1]);
        } else {
          uint32_t later[4], earlier[4];
          load_matrices(earlier, at(&s.keys[warp][r][8 * matrix]));
          load_matrices(later, tile + (W + matrix % 2 * 8) * 128 + ((across ^ r) << 4));
          mma(gram, later, earlier[2 * k], earlier[2 * k + 1]);
        }
      }
      if constexpr (!SOFTPLUS) s.parts[warp][l] = make_float4(gram[0], gram[1], gram[2], gram[3]);
      else {
        // What rounding lost, of rows and of columns.
        float a = gram[0] + gram[2], b = gram[1] + gram[3];
        a += __shfl_xor_sync(~0u, a, 2), b += __shfl_xor_sync(~0u, b, 2);
        if (c < 2) ((float2*)&s.parts[warp][4 * (4 + t % 4) + c])[t / 4] = make_float2(a, b);
      }
      if (tid == 0) s.ticket = ticket;
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      ticket = s.ticket;

      // State times all probes; between the issues every warp makes the coefficients of the solve.
      wait(&s.landed, parity), parity ^= 1;
      float d[2][16];
      const uint64_t rows = descriptor(s.state), probes = descriptor(s.probes);
      auto product = [&](auto& d, int k, int block) {
        const uint64_t a = rows + (k / 4 * sizeof s.state[0] + block * 8192 + k % 4 * 32) / 16, b = probes + (k / 4 * sizeof s.probes[0] + k % 4 * 32) / 16;
        if (k == 0) wgmma<false>(d, a, b);
        else wgmma<true>(d, a, b);
      };
#define STEP(K) product(d[0], K, 0), product(d[1], K, 1)
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      STEP(0);
      float4 part[4];
#pragma unroll
      for (int w = 0; w < 4; w++) part[w] = get_four(&s.parts[w][l]);
      const float4 squares = get_four(s.norms[l % 16]);
      const float beta_t = get_f32(&s.beta[t]), beta[2] = {get_f32(&s.beta[2 * c]), get_f32(&s.beta[2 * c + 1])};
      STEP(1);
      const float norm = rsq((squares.x + squares.y) + (squares.z + squares.w) + 1e-6f) * (lane & 8 ? p.scale : 1.f);
      float4 sum = part[0];
#pragma unroll
      for (int w = 1; w < 4; w++) sum.x += part[w].x, sum.y += part[w].y, sum.z += part[w].z, sum.w += part[w].w;
      STEP(2);
      const float rk_t = beta_t * shfl(norm, t);
      const float rk[2] = {shfl(norm, 2 * c), shfl(norm, 2 * c + 1)}, rq[2] = {shfl(norm, 8 + 2 * c), shfl(norm, 9 + 2 * c)};
      const float below[2] = {2 * c < t ? rk_t * rk[0] * sum.x : 0.f, 2 * c + 1 < t ? rk_t * rk[1] * sum.y : 0.f};
      const float upto[2] = {2 * c <= t ? rk[0] * sum.z : 0.f, 2 * c + 1 <= t ? rk[1] * sum.w : 0.f};
      float inverse[2] = {2 * c == t ? 1.f : 0.f, 2 * c + 1 == t ? 1.f : 0.f};
      auto eliminate = [&](int i) {
        const float l = shfl(below[i % 2], 4 * t + i / 2), a = shfl(inverse[0], 4 * i + c), b = shfl(inverse[1], 4 * i + c);
        inverse[0] = fmaf(-l, a, inverse[0]), inverse[1] = fmaf(-l, b, inverse[1]);
      };
      STEP(3), eliminate(0), eliminate(1);
      STEP(4), eliminate(2), eliminate(3);
      STEP(5), eliminate(4), eliminate(5);
      STEP(6), eliminate(6);
      STEP(7);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");

      // Under the products: what is done with the raw inputs, and the next ones into the same registers.
      if constexpr (!COPIES) {
        bf16* history = p.conv + (size_t)slot * line + mine;
        bf16* from = history + (size_t)(2 + first) * pitch;
#pragma unroll
        for (int x = 0; x < 3; x++) {
          store_if(history + x * width, stream[x][1], !half), store_if(history + pitch + x * width, stream[x][2], !half);
#pragma unroll
          for (int j = 0; j < 4; j++) store_if(from + j * pitch + x * width, stream[x][3 + j], first + j < len);
        }
      }
      const int record = (request * H + head) * Q;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        bf16* to = p.kg + (size_t)(record + first) * 2 * D + ch + j * 2 * D;
        store_if(to, key[j], first + j < len), store_if(to + D, gate[j], first + j < len);
      }
      if (next_live) fetch(next_slot, next_begin, next_len, next_past);
      uint32_t v[2][2];  // token, block
#pragma unroll
      for (int e = 0; e < 2; e++)
#pragma unroll
        for (int block = 0; block < 2; block++) v[e][block] = get(&s.v[2 * c + e][32 * block + 8 * warp + t]);
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 16; i++) asm volatile("" : "+f"(d[0][i]), "+f"(d[1][i])::"memory");
      __syncthreads();
      if (next_live && warp == 0 && elected()) fetch_state(next_slot);

      // U = X Tᵀ, O = R + U Dᵀ on the accumulator's registers.
#pragma unroll
      for (int block = 0; block < 2; block++) {
        float x[4], u[4] = {0.f, 0.f, 0.f, 0.f}, o[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int e = i % 2;
          const float value = i / 2 ? hi(v[e][block]) : lo(v[e][block]);
          x[i] = fmaf(-beta[e] * rk[e], d[block][i] + d[block][8 + i], beta[e] * value);
          o[i] = d[block][4 + i] + d[block][12 + i];
        }
        mma_three(u, x, inverse[0], inverse[1]);
        mma_three(o, u, upto[0], upto[1]);
        const int row = 64 * block + 16 * warp + 2 * t;
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int token = 2 * c + e;
          store_two_if(p.corr + (size_t)(record + 2 * c) * D + row + e * D, u[e], u[2 + e], token < len);
          store_if(p.out + (size_t)(begin + token) * width + head * D + row, pack(o[e] * rq[e], o[2 + e] * rq[e]), token < len);
        }
      }
    } else {
      if (tid == 0) s.ticket = ticket;
      __syncthreads();
      ticket = s.ticket;
      __syncthreads();
      fresh = false;
      if (next_live) {
        fetch(next_slot, next_begin, next_len, next_past);
        if (warp == 0 && elected()) fetch_state(next_slot);
      }
      if (!valid)
        for (int i = tid; i < len * (D / 2); i += THREADS) *(uint32_t*)(p.out + (size_t)(begin + i / (D / 2)) * width + head * D + i % (D / 2) * 2) = 0;
    }
    if (!more) break;
    request = next, next = ticket, slot = next_slot, begin = next_begin, len = next_len, past = next_past;
    valid = slot > p.null, live = valid && len > 0;
  }
  if constexpr (COPIES)
    if (tid == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// NAME, heads, CTAs an SM, taps of f32, softplus gate, raw inputs as boxes.
#define KERNEL(NAME, HEADS, CTAS, TAPS_F32, SOFTPLUS, COPIES)                                         \
  extern "C" __constant__ unsigned NAME##_shared = sizeof(Memory<SOFTPLUS, COPIES>::Type);           \
  extern "C" __global__ void __launch_bounds__(THREADS, CTAS) NAME(const __grid_constant__ Args p) { \
    verify<HEADS, TAPS_F32, SOFTPLUS, COPIES>(p);                                                    \
  }
KERNEL(threads, 0, 4, false, false, false)
KERNEL(threads_h12, 12, 4, false, false, false)
KERNEL(threads_f32, 0, 4, true, false, false)
KERNEL(threads_h12_f32, 12, 4, true, false, false)
KERNEL(threads_softplus, 0, 4, false, true, false)
KERNEL(threads_h12_softplus, 12, 4, false, true, false)
KERNEL(boxes, 0, 3, false, false, true)
KERNEL(boxes_h12, 12, 3, false, false, true)
KERNEL(boxes_f32, 0, 3, true, false, true)
KERNEL(boxes_h12_f32, 12, 3, true, false, true)
