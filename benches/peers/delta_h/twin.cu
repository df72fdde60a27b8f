// delta_h by hand in CUDA C++, for sm_90a: the kernel beside which the one in the language is timed.
//
// Contract: that of kda-kernels/src/families/delta_h/recurrence.rs with a gate a key channel, f32 states [K, V] of sequence n in
// place n, initial and final ones apart, every chunk's h [K, V] stored, dense tensors, the work list that delta_h_schedule has
// written. Whole sequences in one launch; or segments in two, `maps` and `fold`, of which the second is a dependent launch.
//
// A CTA walks the chunks of one (sequence, head, VS columns of V). S is held transposed, [V, K], in accumulators of one
// warpgroup: rounded, they are the A operands of both products. A warp loads, one stores, one makes decays. Of two CTAs in a
// cluster each loads half of w and kg for both.
//
//     nvcc -ptx -arch=sm_90a -O3 -std=c++17 twin.cu
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <type_traits>

struct alignas(64) Map { unsigned char bytes[128]; };

// The one parameter; src/bench/delta_h/twin.rs packs it in this order.
struct Args {
  Map w, kg, u;          // [2 HV, T, 64], heads cut in two
  Map h;                 // [states HV 128, 128]
  Map v;                 // [T, HV 128]
  Map m;                 // [2, maps HV 2 128, 64], rows of `maps_m` cut in two
  const float* gate;     // [T, HV, 128] cumulative, log2 units
  const float* initial;  // [N, HV, 128, 128] or null
  float* final;          // the same or null
  __nv_bfloat16* v_new;  // [T, HV, 128]
  const uint32_t* list;  // 16 words with numbers of entries: 0 of whole sequences and first segments, 1 of maps, 4 of later segments;
                         // entries of 8 words, of the first kind right behind them
  float2* maps_b;        // [maps, HV, 2, 32, 128] B of maps, each an image of registers
  uint32_t* maps_m;      // [maps, HV, 2, 128, 64] M of maps, transposed, two bf16 a word: rounded, and what that leaves over
  uint32_t heads, more;  // word of the first entry of another kind
};
static_assert(sizeof(Args) == 832, "as the host packs it");

constexpr int STAGES = 4, BT = 64, D = 128, THREADS = 224, PITCH = 36;
enum { SEQUENCE, ROW0, END, H0, CHUNK, FIRST_CHUNK, KIND, MAP0 };  // words of an entry
constexpr uint32_t IDENTITY = 1u << 30, LAST = 1u << 31;           // of KIND, whose low byte is the segment
// What a kernel does: whole sequences, without and with a policy for stores; maps of segments; segments.
enum Mode { WHOLE, STREAM, MAPS, FOLD };

template <int VS> struct alignas(1024) Smem {
  __nv_bfloat16 w[STAGES][2][BT][64], kg[STAGES][2][BT][64];  // halves of K
  __nv_bfloat16 u[STAGES][BT][VS];                            // of the next chunk
  __nv_bfloat16 first[BT][VS];                                // u of chunk 0
  __nv_bfloat16 h[2][D][VS], v[2][BT][VS];                    // a slot: h of a chunk, v_new of the chunk before it
  float factors[STAGES][4][PITCH];                            // row q: columns 8 j + 2 q + {0, 1}
  float gates[STAGES][D];
  uint64_t wu_full[STAGES], wu_free[STAGES], kg_full[STAGES], kg_free[STAGES], gate_full[STAGES];
  uint64_t out_full[2], out_free[2], first_full, first_free;
};

// ---- Barriers and copies

#define INLINE static __device__ __forceinline__
INLINE uint32_t at(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
INLINE void init(uint64_t* b, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(count) : "memory"); }
INLINE void arrive(uint64_t* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory"); }
INLINE void arrive_at(uint64_t* b, int cta) {
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(at(b)), "r"(cta) : "memory");
}
INLINE void expect(uint64_t* b, uint32_t bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes) : "memory"); }
INLINE bool done(uint64_t* b, uint32_t parity) {
  uint32_t yes;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(yes) : "r"(at(b)), "r"(parity) : "memory");
  return yes;
}
INLINE void wait(uint64_t* b, uint32_t parity) { while (!done(b, parity)) {} }
// Parities of up to 32 barriers, a bit each.
struct Turns {
  uint32_t bits;
  __device__ uint32_t of(int i) const { return bits >> i & 1; }
  __device__ void next(int i) { bits ^= 1u << i; }
};
INLINE bool elected() {
  uint32_t yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}
INLINE void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The second pass over the inputs finds in L2 what the first has read.
template <int MODE> INLINE uint64_t load_policy() {
  uint64_t policy;
  if constexpr (MODE == MAPS) asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  else asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#define TENSOR_3D "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
#define OPERANDS "r"(at(to)), "l"(&m), "r"(x), "r"(y), "r"(z), "r"(at(b))
template <int MODE> INLINE void load(void* to, const Map& m, int x, int y, int z, uint64_t* b, uint64_t policy) {
  if constexpr (MODE >= MAPS) asm volatile(TENSOR_3D ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::OPERANDS, "l"(policy) : "memory");
  else asm volatile(TENSOR_3D " [%0], [%1, {%2, %3, %4}], [%5];" ::OPERANDS : "memory");
}
template <int MODE> INLINE void load_both(void* to, const Map& m, int x, int y, int z, uint64_t* b, uint64_t policy) {
  const uint16_t both = 3;
  if constexpr (MODE >= MAPS) asm volatile(TENSOR_3D ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::OPERANDS, "h"(both), "l"(policy) : "memory");
  else asm volatile(TENSOR_3D ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::OPERANDS, "h"(both) : "memory");
}
INLINE void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
INLINE void load_row(void* to, const float* from, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(b)) : "memory");
}
// FIRST: what is written leaves L2 first.
template <bool FIRST> INLINE void store(const Map& m, int x, int y, const void* from) {
  if constexpr (FIRST) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(&m), "r"(x), "r"(y), "r"(at(from)), "l"(policy) : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&m), "r"(x), "r"(y), "r"(at(from)) : "memory");
  }
}
template <int N> INLINE void stores_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }

// ---- Products and fragments

INLINE void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> INLINE void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// The registers of an accumulator have these values from here on.
template <int N> INLINE void settle(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// Of a tile of 64 rows of 128 bytes, swizzled: rows are N (K-major), or they are K and N lies along them.
template <bool ROWS_ARE_K> INLINE uint64_t descriptor(const void* tile) {
  return (ROWS_ARE_K ? 0x4000004004000000ull : 0x4000004000010000ull) | (at(tile) & 0x3ffff) >> 4;
}
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d, i) R4(d, i), R4(d, i + 4), R4(d, i + 8), R4(d, i + 12)
// d += SIGN a b: 64 x 64, K = 16.
template <int SIGN, bool ROWS_ARE_K> INLINE void mma(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, %37, 1, %38; }"
      : R16(d, 0), R16(d, 16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(SIGN), "n"(ROWS_ARE_K));
}
// 64 columns of an accumulator as A fragments, four registers for each 16.
INLINE void round_to(uint32_t* a, const float (&d)[32]) {
#pragma unroll
  for (int i = 0; i < 16; i++) asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(a[i]) : "f"(d[2 * i + 1]), "f"(d[2 * i]));
}
// The same, and what it leaves over.
INLINE void split(uint32_t* a, uint32_t* over, const float (&d)[32]) {
  round_to(a, d);
  float left[32];
#pragma unroll
  for (int i = 0; i < 16; i++) {
    left[2 * i] = d[2 * i] - __uint_as_float(a[i] << 16);
    left[2 * i + 1] = d[2 * i + 1] - __uint_as_float(a[i] & 0xffff0000u);
  }
  round_to(over, left);
}
INLINE void widen(float (&d)[32], const uint32_t* a) {
#pragma unroll
  for (int i = 0; i < 16; i++) {
    asm volatile("shl.b32 %0, %1, 16;" : "=f"(d[2 * i]) : "r"(a[i]));
    asm volatile("and.b32 %0, %1, 0xffff0000;" : "=f"(d[2 * i + 1]) : "r"(a[i]));
  }
}
// Four 8 x 8 tiles, transposed; a warp without rows of V leaves its registers and the memory alone.
INLINE void load_t(bool holds, uint32_t from, uint32_t* a) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4]; }" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]) : "r"(from), "r"((uint32_t)holds) : "memory");
}
INLINE void store_t(bool holds, uint32_t to, const uint32_t* a) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4}; }" ::"r"(to), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"((uint32_t)holds) : "memory");
}
// Columns of an accumulator by their factors: f[i] has those of columns 16 i + 2 q + {0, 1} and 16 i + 8 + 2 q + {0, 1}.
INLINE void decay(float (&d)[32], const float4* f) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float c[4] = {f[i].x, f[i].y, f[i].z, f[i].w};
#pragma unroll
    for (int e = 0; e < 8; e++) d[8 * i + e] *= c[e / 4 * 2 + e % 2];
  }
}

// ---- What there is to do

// Maps are made of cut sequences' first segments, too.
template <int VS, int MODE> struct Item {
  int head, slice, row0, end, chunks;
  uint32_t sequence, h0, kind, map0;
  __device__ Item(const Args& p, uint32_t item) {
    const uint32_t number = item / (D / VS) / p.heads, first = __ldg(p.list);
    const uint32_t* entry = p.list + (number < first ? 16 + 8 * number : p.more + 8 * (number - first));
    slice = item % (D / VS), head = item / (D / VS) % p.heads;
    sequence = __ldg(entry + SEQUENCE), row0 = __ldg(entry + ROW0), end = __ldg(entry + END);
    h0 = __ldg(entry + H0) + __ldg(entry + FIRST_CHUNK), kind = __ldg(entry + KIND), map0 = __ldg(entry + MAP0);
    chunks = MODE == MAPS && (kind >> 8 & 255) == 1 ? 0 : (end - row0 + BT - 1) / BT;
  }
  __device__ int segment() const { return kind & 0xff; }
  // Maps that are applied to B of the first segment.
  __device__ int folds() const { return max(segment(), 1) - 1; }
  // Place of a map of this head.
  __device__ size_t map(const Args& p, uint32_t number) const { return (size_t)(map0 + number) * p.heads + head; }
};
// Items lie longest first: every other round over the CTAs goes backwards.
INLINE uint32_t item_of(uint32_t trip, uint32_t items) {
  const uint32_t first = trip / gridDim.x * gridDim.x;
  return trip / gridDim.x % 2 ? first + min(items - first, gridDim.x) - 1 - (trip - first) : trip;
}
#define EACH_ITEM(it) for (uint32_t it = blockIdx.x; it < items; it += gridDim.x)

template <int VS, int CL, int MODE> INLINE void load_role(const Args& p, Smem<VS>& s, uint32_t items) {
  const int rank = blockIdx.x % CL;
  Turns wu_free{~0u}, kg_free{~0u}, first{1};
  uint64_t policy = 0;
  if constexpr (MODE >= MAPS) policy = load_policy<MODE>();
  EACH_ITEM(it) {
    const Item<VS, MODE> i(p, item_of(it, items));
    const int x = i.slice * VS % 64, z = 2 * i.head + i.slice * VS / 64;
    if (i.chunks > 0) {
      wait(&s.first_free, first.of(0)), first.next(0);
      expect(&s.first_full, sizeof s.first);
      load<MODE>(s.first, p.u, x, i.row0, z, &s.first_full, policy);
    }
    auto tile = [&](__nv_bfloat16 (*to)[BT][64], const Map& m, int row, uint64_t* full) {
      if constexpr (CL == 2) load_both<MODE>(to[rank], m, 0, row, 2 * i.head + rank, full, policy);
      else load<MODE>(to, m, 0, row, 2 * i.head, full, policy);
    };
    if constexpr (MODE == FOLD) {
      if (i.folds() > 0) {
        wait_for_predecessor();
        asm volatile("fence.proxy.async.global;" ::: "memory");
      }
      for (int k = 0; k < 4 * i.folds(); k++) {
        const int g = k % STAGES, row = (i.map(p, 1 + k / 4) * 2 + k % 4 / 2) * D + k % 2 * BT;
        wait(&s.kg_free[g], kg_free.of(g)), kg_free.next(g);
        expect(&s.kg_full[g], sizeof s.kg[g]);
        load_both<WHOLE>(s.kg[g][rank], p.m, 0, row, rank, &s.kg_full[g], 0);
      }
    }
    for (int c = 0, g = 0; c < i.chunks; c++, g = (g + 1) % STAGES) {
      const int row = i.row0 + c * BT, last = min(row + BT, i.end) - 1;
      wait(&s.wu_free[g], wu_free.of(g)), wu_free.next(g);
      expect(&s.gate_full[g], sizeof s.gates[g]);
      load_row(s.gates[g], p.gate + ((size_t)last * p.heads + i.head) * D, sizeof s.gates[g], &s.gate_full[g]);
      expect(&s.wu_full[g], sizeof s.w[g] + sizeof s.u[g]);
      tile(s.w[g], p.w, row, &s.wu_full[g]);
      load<MODE>(s.u[g], p.u, x, c + 1 < i.chunks ? row + BT : row, z, &s.wu_full[g], policy);
      wait(&s.kg_free[g], kg_free.of(g)), kg_free.next(g);
      expect(&s.kg_full[g], sizeof s.kg[g]);
      tile(s.kg[g], p.kg, row, &s.kg_full[g]);
    }
  }
}

template <int VS, int MODE> INLINE void decay_role(const Args& p, Smem<VS>& s, uint32_t items, int lane) {
  Turns full{0};
  EACH_ITEM(it) {
    const Item<VS, MODE> i(p, item_of(it, items));
    for (int c = 0, g = 0; c < i.chunks; c++, g = (g + 1) % STAGES) {
      wait(&s.gate_full[g], full.of(g)), full.next(g);
      float e[4];
#pragma unroll
      for (int k = 0; k < 4; k++) asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e[k]) : "f"(s.gates[g][4 * lane + k]));
      float* to = &s.factors[g][lane % 2 * 2][lane / 2 * 2];
      *(float2*)to = make_float2(e[0], e[1]);
      *(float2*)(to + PITCH) = make_float2(e[2], e[3]);
      __syncwarp();
      if (lane == 0) arrive(&s.wu_full[g]);
    }
  }
}

template <int VS, int MODE> INLINE void store_role(const Args& p, Smem<VS>& s, uint32_t items, int lane) {
  const bool leads = elected();
  Turns full{0};
  EACH_ITEM(it) {
    const Item<VS, MODE> i(p, item_of(it, items));
    if (i.chunks == 0) continue;
    // A slot is held while the next one is stored.
    for (int c = 0; c <= i.chunks; c++) {
      const int b = c % 2, row = i.row0 + (c - 1) * BT;
      const bool cut = c == i.chunks && i.end - row < BT;
      wait(&s.out_full[b], full.of(b)), full.next(b);
      if (leads) {
        fence_proxy();
        if (c < i.chunks) store<MODE != WHOLE>(p.h, i.slice * VS, ((i.h0 + c) * p.heads + i.head) * D, s.h[b]);
        if (c > 0 && !cut) store<MODE != WHOLE>(p.v, i.head * D + i.slice * VS, row, s.v[b]);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        stores_read<1>();
        if (c > 0) arrive(&s.out_free[b ^ 1]);
      }
      if (cut) {
        for (int j = lane; j < (i.end - row) * (VS / 8); j += 32) {
          const int t = j / (VS / 8), q = j % (VS / 8), swizzled = q ^ (VS == 64 ? t & 7 : t >> 1 & 3);
          __nv_bfloat16* to = p.v_new + ((size_t)(row + t) * p.heads + i.head) * D + i.slice * VS + 8 * q;
          *(uint4*)to = *(const uint4*)&s.v[b][t][8 * swizzled];
        }
        __syncwarp();
      }
    }
    if (leads) stores_read<0>(), arrive(&s.out_free[i.chunks % 2]);
  }
  if (leads) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <int VS, int CL, int MODE> INLINE void math_role(const Args& p, Smem<VS>& s, uint32_t items, int warp, int lane) {
  float low[32], high[32], x[32];  // S^T, halves of K; v_new^T ahead of rounding
  uint32_t a[32], v[16], u[16] = {};
  float4 f[8];
  const bool holds = VS == 64 || warp < VS / 16;
  const int q = lane % 4, strip = warp % (VS / 16);
  // This lane's place in four 8 x 8 tiles at rows 0 to 15 of a [rows, VS] tile.
  const int r = lane % 8, chunk = (2 * strip + lane / 8 % 2) ^ (VS == 64 ? r : r >> 1);
  const uint32_t place = (r + lane / 16 * 8) * (VS * 2) + chunk * 16, step16 = 16 * VS * 2;
  Turns wu{0}, kg{0}, out{~0u}, first{0};

  auto arrive_all = [&](uint64_t* b) {
    __syncwarp();
    if (lane == 0) {
      if constexpr (CL == 2) arrive_at(b, 0), arrive_at(b, 1);
      else arrive(b);
    }
  };
  auto arrive_warp = [&](uint64_t* b) {
    __syncwarp();
    if (lane == 0) arrive(b);
  };
  auto load_u = [&](const void* tile) {
#pragma unroll
    for (int j = 0; j < 4; j++) load_t(holds, at(tile) + place + j * step16, u + 4 * j);
  };
  auto store_v = [&](int b) {
#pragma unroll
    for (int j = 0; j < 4; j++) store_t(holds, at(s.v[b]) + place + j * step16, v + 4 * j);
  };
  auto store_h = [&](int b) {
#pragma unroll
    for (int j = 0; j < 8; j++) store_t(holds, at(s.h[b]) + place + j * step16, a + 4 * j);
  };
  auto load_factors = [&](int g) {
#pragma unroll
    for (int i = 0; i < 8; i++)
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(f[i].x), "=f"(f[i].y), "=f"(f[i].z), "=f"(f[i].w) : "r"(at(&s.factors[g][q][4 * i])) : "memory");
  };
  auto rest = [&] { settle(low), settle(high); };

  EACH_ITEM(it) {
    const Item<VS, MODE> i(p, item_of(it, items));
    // All lanes have one number of chunks, and the compiler knows it.
    const int chunks = __shfl_sync(~0u, i.chunks, 0);
    const size_t state = ((size_t)i.sequence * p.heads + i.head) * D * D + i.slice * VS + strip * 16 + lane / 4;
    // Element e of columns 8 j of a half: row of V, column of K.
    auto place_of = [&](int j, int e) { return (size_t)(8 * j + 2 * q + e % 2) * D + e / 2 * 8; };
    // Images of registers: both halves of s, pairs of a thread 128 apart.
    auto image = [&](uint32_t number) { return p.maps_b + (i.map(p, number) * 2 + i.slice) * 32 * 128 + threadIdx.x; };
    auto load_image = [&](const float2* from) {
#pragma unroll
      for (int j = 0; j < 16; j++) {
        const float2 a = from[128 * j], b = from[128 * (16 + j)];
        low[2 * j] = a.x, low[2 * j + 1] = a.y, high[2 * j] = b.x, high[2 * j + 1] = b.y;
      }
    };
    const bool identity = MODE == MAPS && i.kind & IDENTITY;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const bool there = p.initial && holds && (MODE < MAPS || i.segment() == 0);
        low[4 * j + e] = there ? p.initial[state + place_of(j, e)] : 0.f;
        high[4 * j + e] = there ? p.initial[state + place_of(j, e) + 64 * D] : 0.f;
      }
    if (identity) {
      const int v = i.slice * VS + strip * 16 + lane / 4;
#pragma unroll
      for (int j = 0; j < 32; j++) {
        const int k = j / 4 * 8 + 2 * q + j % 2, mine = v + j / 2 % 2 * 8;
        low[j] = k == mine, high[j] = k + 64 == mine;
      }
    }
    if constexpr (MODE == FOLD) {
      if (i.segment() > 0) wait_for_predecessor(), load_image(image(0));
      const int folds = __shfl_sync(~0u, i.folds(), 0);
      for (int n = 1; n <= folds; n++) {
        // S <- M S + B, both factors in two parts: the product of what both leave over is below the rounding of f32.
        uint32_t rest_of[32];
        split(a, rest_of, low), split(a + 16, rest_of + 16, high);
        load_image(image(n));
        rest();
#pragma unroll
        for (int part = 0; part < 4; part++) {
          wait(&s.kg_full[part], kg.of(part)), kg.next(part);
          const uint64_t rows = descriptor<true>(s.kg[part]);
          mma_fence();
#pragma unroll
          for (int k = 0; k < 4; k++) {
            const int from = part % 2 * 16 + 4 * k;
            mma<1, true>(low, a + from, rows + 128 * k), mma<1, true>(high, a + from, rows + 512 + 128 * k);
            if (part < 2) mma<1, true>(low, rest_of + from, rows + 128 * k), mma<1, true>(high, rest_of + from, rows + 512 + 128 * k);
          }
          mma_commit();
          mma_wait<0>(), rest();
          arrive_all(&s.kg_free[part]);
        }
      }
    }
    // No values where columns of the identity are followed.
    auto widen_u = [&] {
      widen(x, u);
      if constexpr (MODE == MAPS) {
#pragma unroll
        for (int j = 0; j < 32; j++) x[j] = identity ? 0.f : x[j];
      }
    };
    if (chunks > 0) {
      // First product of chunk 0. Nothing is in flight where the loop goes round.
      wait(&s.first_full, first.of(0)), first.next(0);
      load_u(s.first);
      arrive_warp(&s.first_free);
      widen_u();
      wait(&s.wu_full[0], wu.of(0)), wu.next(0);
      round_to(a, low), round_to(a + 16, high);
      settle(x), mma_fence();
#pragma unroll
      for (int k = 0; k < 8; k++) mma<-1, false>(x, a + 4 * k, descriptor<false>(s.w[0][k / 4]) + k % 4 * 2);
      mma_commit();
      if constexpr (MODE != MAPS) wait(&s.out_free[0], out.of(0)), out.next(0);
      mma_wait<0>(), settle(x);
      if constexpr (MODE != MAPS) store_h(0), arrive_warp(&s.out_full[0]);
      load_factors(0), load_u(s.u[0]);
      decay(low, f), decay(high, f + 4), rest();
      wait(&s.kg_full[0], kg.of(0)), kg.next(0);

      // Here x is v_new^T of the chunk before, in stage OLD, ahead of rounding; s is decayed, u that of this chunk, in stage NEW.
      auto step = [&](auto old_, auto new_, auto slot_) {
        constexpr int OLD = decltype(old_)::value, NEW = decltype(new_)::value, B = decltype(slot_)::value;
        const uint64_t keys = descriptor<true>(s.kg[OLD]), w = descriptor<false>(s.w[NEW]);
        round_to(v, x);
        mma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) mma<1, true>(low, v + 4 * k, keys + 128 * k);
        mma_commit();
#pragma unroll
        for (int k = 0; k < 4; k++) mma<1, true>(high, v + 4 * k, keys + 512 + 128 * k);
        mma_commit();
        // A barrier takes long to answer: it is asked in the shadow of the products.
        const bool landed = done(&s.wu_full[NEW], wu.of(NEW)), room = MODE == MAPS || done(&s.out_free[B], out.of(B));
        widen_u(), settle(x);
        arrive_all(&s.wu_free[OLD]);
        if (!landed) wait(&s.wu_full[NEW], wu.of(NEW));
        if (!room) wait(&s.out_free[B], out.of(B));
        wu.next(NEW), out.next(B);
        if constexpr (MODE != MAPS) store_v(B);
        // One half of s while the other is in flight.
        mma_wait<1>(), settle(low);
        round_to(a, low);
        mma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) mma<-1, false>(x, a + 4 * k, w + 2 * k);
        mma_commit();
        mma_wait<1>(), settle(high);
        round_to(a + 16, high);
        mma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) mma<-1, false>(x, a + 16 + 4 * k, w + 512 + 2 * k);
        mma_commit();
        const bool keyed = done(&s.kg_full[NEW], kg.of(NEW));
        arrive_all(&s.kg_free[OLD]);
        // Loads ahead of the stores of h: shared memory serves in order.
        load_factors(NEW), load_u(s.u[NEW]);
        decay(low, f), decay(high, f + 4), rest();
        if constexpr (MODE != MAPS) store_h(B), arrive_warp(&s.out_full[B]);
        if (!keyed) wait(&s.kg_full[NEW], kg.of(NEW));
        kg.next(NEW);
        mma_wait<0>(), settle(x);
      };
      // Stages are known to the compiler: descriptors from registers would wait for the product before.
      using std::integral_constant;
#define STEP(OLD, NEW, B) step(integral_constant<int, OLD>{}, integral_constant<int, NEW>{}, integral_constant<int, B>{})
      for (int c = 1; c < chunks;) {
        STEP(0, 1, 1);
        if (++c >= chunks) break;
        STEP(1, 2, 0);
        if (++c >= chunks) break;
        STEP(2, 3, 1);
        if (++c >= chunks) break;
        STEP(3, 0, 0);
        ++c;
      }

      // Second product of the last chunk. Rows of other sequences count as zero, whatever they are.
      const int g = (chunks - 1) % STAGES, b = chunks % 2, count = i.end - i.row0 - (chunks - 1) * BT;
      if (count < BT) {
        for (int j = 16 * count + threadIdx.x; j < 16 * BT; j += 128)
          *(uint4*)&s.kg[g][j % 2][j / 16][j / 2 % 8 * 8] = make_uint4(0, 0, 0, 0);
        fence_proxy();
        asm volatile("bar.sync 1, 128;" ::: "memory");
#pragma unroll
        for (int j = 0; j < 32; j++)
          if (j / 4 * 8 + 2 * q + j % 2 >= count) x[j] = 0.f;
      }
      const uint64_t keys = descriptor<true>(s.kg[g]);
      round_to(v, x);
      mma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++) mma<1, true>(low, v + 4 * k, keys + 128 * k);
#pragma unroll
      for (int k = 0; k < 4; k++) mma<1, true>(high, v + 4 * k, keys + 512 + 128 * k);
      mma_commit();
      if constexpr (MODE != MAPS) {
        wait(&s.out_free[b], out.of(b)), out.next(b);
        store_v(b);
        arrive_warp(&s.out_full[b]);
      }
      mma_wait<0>(), rest();
      arrive_all(&s.wu_free[g]), arrive_all(&s.kg_free[g]);
    }
    if constexpr (MODE == MAPS) {
      if (identity) {
        split(a, u, low), split(a + 16, v, high);
        // Row of V of this lane, pairs of K.
        uint32_t* to = p.maps_m + (i.map(p, i.segment()) * 2 * D + i.slice * VS + strip * 16 + lane / 4) * 64 + q;
#pragma unroll
        for (int j = 0; j < 16; j++) {
          uint32_t* mine = to + j % 2 * 8 * 64 + j / 2 * 4;
          mine[0] = a[j], mine[32] = a[16 + j], mine[D * 64] = u[j], mine[D * 64 + 32] = v[j];
        }
      } else if (chunks > 0) {
        float2* to = image(i.segment());
#pragma unroll
        for (int j = 0; j < 16; j++) {
          to[128 * j] = make_float2(low[2 * j], low[2 * j + 1]);
          to[128 * (16 + j)] = make_float2(high[2 * j], high[2 * j + 1]);
        }
      }
    } else if (p.final && holds && i.kind & LAST) {
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          p.final[state + place_of(j, e)] = low[4 * j + e];
          p.final[state + place_of(j, e) + 64 * D] = high[4 * j + e];
        }
    }
  }
}

template <int VS, int CL, int MODE> INLINE void recurrence(const Args& p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Smem<VS>& s = *reinterpret_cast<Smem<VS>*>(memory);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int g = 0; g < STAGES; g++) {
      init(&s.wu_full[g], 2), init(&s.wu_free[g], 4 * CL), init(&s.kg_full[g], 1), init(&s.kg_free[g], 4 * CL), init(&s.gate_full[g], 1);
    }
    for (int b = 0; b < 2; b++) init(&s.out_full[b], 4), init(&s.out_free[b], 1);
    init(&s.first_full, 1), init(&s.first_free, 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_proxy();
  }
  __syncthreads();
  if constexpr (CL == 2) asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if constexpr (MODE != FOLD) wait_for_predecessor();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const uint32_t more = MODE == MAPS ? __ldg(p.list + 1) : MODE == FOLD ? __ldg(p.list + 4) : 0;
  const uint32_t items = (__ldg(p.list) + more) * p.heads * (D / VS);
  if (warp < 4) math_role<VS, CL, MODE>(p, s, items, warp, lane);
  else if (warp == 6) decay_role<VS, MODE>(p, s, items, lane);
  else if (warp == 4) {
    if (elected()) load_role<VS, CL, MODE>(p, s, items);
  } else if constexpr (MODE != MAPS) store_role<VS, MODE>(p, s, items, lane);
  __syncwarp();
  // Its successor waits for this grid, and through it for the one before.
  if constexpr (MODE == FOLD) wait_for_predecessor();
  // Neither CTA of a cluster leaves while the other may still write its memory.
  if constexpr (CL == 2) {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  }
}

// NAME, columns of V a CTA, CTAs of a cluster, what it does.
#define KERNEL(NAME, VS, CL, MODE)                                                              \
  extern "C" __constant__ unsigned NAME##_shared = sizeof(Smem<VS>);                            \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(const __grid_constant__ Args p) { \
    recurrence<VS, CL, MODE>(p);                                                                \
  }
KERNEL(v32, 32, 1, WHOLE)
KERNEL(v64_pair, 64, 2, STREAM)
KERNEL(maps, 64, 1, MAPS)
KERNEL(fold, 64, 2, FOLD)
