// conv_verify by hand in CUDA C++, for sm_90a: the kernel beside which the one in the language is timed.
//
// Contract: that of kda-kernels/src/families/conv_verify.rs with K = V = 128, f32 convolution pool [D, 3], f32 states, roll
// always on, T = TOKENS fixed, snapshots of request n in row n, a request padded if its state slot is negative. The arrival
// counters are zero ahead of a launch and zero after it.
//
// A CTA owns BV rows of V of one (request, value head). Phase 1: four warps each for q, k, v and the gate, a channel a thread.
// Then, behind one CTA barrier, the recurrence: LW lanes share the K of a row.
//
//     nvcc -ptx -arch=sm_90a -O3 -std=c++17 -DTOKENS=4 twin.cu
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// The one parameter; src/bench/conv_verify/twin.rs packs it in this order.
struct Args {
  const __nv_bfloat16* x;  // [N, T, D]
  const float* w;          // [D, 4]
  const float* bias;       // [D] or null
  float* cs;               // [lines, D, 3]
  const int *ci, *si, *ii; // [N] line of cs, slot of S, row of win
  float* win;              // [rows, T, D, 3]
  const __nv_bfloat16* a;  // [N, T, HV, 128]
  const __nv_bfloat16* b;  // [N, T, HV]
  const float* Alog;       // [HV]
  const float* dtb;        // [HV, 128]
  const float* S;          // [slots, HV, 128, 128]
  float* snap;             // [N, T, HV, 128, 128]
  __nv_bfloat16* o;        // [N, T, HV, 128]
  unsigned* cnt;           // [N, H]
  int N, H, HV, D, G;      // G = HV / H
  float scale, lb;
  int safe;                // 1 bounded gate, 0 softplus
  int pdl;                 // 0 none, 1 weights alone ahead of the wait, 2 everything but x, a and b
  int pol;                 // 1 snapshots leave L2 first
};
static_assert(sizeof(Args) == 168, "as the host packs it");

// ---- Loads, stores and functions

static __device__ __forceinline__ float4 ldg4(const float* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
// Read once: not kept in L1.
static __device__ __forceinline__ float4 ldg4s(const float* p) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
static __device__ __forceinline__ unsigned ldgu16(const void* p) {
  unsigned short v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
static __device__ __forceinline__ int ldgi(const int* p) { int v; asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p)); return v; }
static __device__ __forceinline__ float ldgf(const float* p) { float v; asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v; }
static __device__ __forceinline__ float ldgbf(const void* p) { return __uint_as_float(ldgu16(p) << 16); }
static __device__ __forceinline__ void stg4p(float* p, float4 v, uint64_t pol) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(pol));
}
static __device__ __forceinline__ float4 lds4(const float* p) { return *reinterpret_cast<const float4*>(p); }
static __device__ __forceinline__ uint32_t s2u(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
static __device__ __forceinline__ void bulk_store(void* g, uint32_t s, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(g), "r"(s), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void gdc_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
static __device__ __forceinline__ void gdc_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
static __device__ __forceinline__ float ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
static __device__ __forceinline__ float rcpa(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
static __device__ __forceinline__ float rsqa(float x) { float r; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
constexpr float LOG2E = 1.4426950408889634f;
static __device__ __forceinline__ float sigm(float x) { return rcpa(1.f + ex2(-LOG2E * x)); }
static __device__ __forceinline__ float silu_bf(float y) { return __bfloat162float(__float2bfloat16_rn(y * sigm(y))); }
static __device__ __forceinline__ float dot4(const float4& a, const float4& b) { return fmaf(a.x, b.x, a.y * b.y) + fmaf(a.z, b.z, a.w * b.w); }

// ---- Geometry

constexpr int NTH = 512, NW = 16;

// Shared memory, in floats.
template <int T, int BV> struct Smem {
  static constexpr int Q = 0, K = Q + T * 128, G = K + T * 128, V = G + T * 128;  // after SiLU; the decay
  static constexpr int SS = V + T * BV, B = SS + T * 8, O = (B + T + 3) / 4 * 4;  // sums of squares, beta, outputs
  static constexpr int WQ = (O + T * BV / 2 + 31) / 32 * 32, WK = WQ + T * 384, WV = WK + T * 384;  // windows
  static constexpr int HX = WV + T * BV * 3, BYTES = (HX + 768) * 4;              // history of q and k
};
template <int BV, int LW> struct Geo {
  static constexpr int NT = 128 / BV;                      // V tiles a head
  static constexpr int GRP = 32 / LW, KP = 32 / LW;        // rows a warp touches at once; float4 a row and lane
  static constexpr int RS = BV < NW * GRP ? BV : NW * GRP; // rows the CTA touches at once
  static constexpr int R = BV / RS, RW = RS / GRP;         // rows a thread; warps in the recurrence
  static constexpr bool STAGE_O = LW == 32 && R >= 4;      // outputs leave in 16-byte pieces
};

// c[0..R) summed over LW lanes; every lane ends with the full sum of row (lane % LW) / (LW / R).
template <int M, int N, int R> static __device__ __forceinline__ void trstep(float (&c)[R], int lane) {
  if constexpr (M > 0) {
    if constexpr (N > 1) {
      const bool hi = lane & M;
#pragma unroll
      for (int i = 0; i < N / 2; i++) {
        float keep = hi ? c[i + N / 2] : c[i], send = hi ? c[i] : c[i + N / 2];
        c[i] = keep + __shfl_xor_sync(0xffffffffu, send, M);
      }
      trstep<M / 2, N / 2, R>(c, lane);
    } else {
      c[0] += __shfl_xor_sync(0xffffffffu, c[0], M);
      trstep<M / 2, 1, R>(c, lane);
    }
  }
}
template <int LW, int R> static __device__ __forceinline__ float treduce(float (&c)[R], int lane) {
  trstep<LW / 2, R, R>(c, lane);
  return c[0];
}

// ---- Phase 1: convolution, SiLU, gate; sums of squares and windows to shared memory

template <int T, int BV>
static __device__ __forceinline__ void phase1(const Args& p, float* sm, int role, int c, bool act, bool owner, const float4& w4, float bias,
                                              const float (&hx)[3], const unsigned (&raw)[T], float bl, int warp, int lane) {
  using L = Smem<T, BV>;
  constexpr int TP = T <= 1 ? 1 : T <= 2 ? 2 : T <= 4 ? 4 : 8;
  if (role == 3) {
    const float ea = ex2(LOG2E * w4.x);
#pragma unroll
    for (int t = 0; t < T; t++) {
      float z = __uint_as_float(raw[t] << 16) + bias, lg;
      if (p.safe) lg = p.lb * sigm(ea * z);
      else {
        float sp = fmaxf(z, 0.f) + __logf(1.f + ex2(-LOG2E * fabsf(z)));
        lg = -ea * (z > 20.f ? z : sp);
      }
      sm[L::G + t * 128 + c] = ex2(LOG2E * lg);
    }
    if (c < T) sm[L::B + c] = sigm(bl);
  } else if (act) {
    float x0 = hx[0], x1 = hx[1], x2 = hx[2], ss[TP];
#pragma unroll
    for (int t = 0; t < TP; t++) ss[t] = 0.f;
    float* dst = sm + (role == 0 ? L::Q : role == 1 ? L::K : L::V) + c;
    const int dstep = role == 2 ? BV : 128;
    float* dw = sm + (role == 0 ? L::WQ : role == 1 ? L::WK : L::WV) + 3 * c;
#pragma unroll
    for (int t = 0; t < T; t++) {
      const float x3 = __uint_as_float(raw[t] << 16);
      float s = fmaf(w4.x, x0, bias); s = fmaf(w4.y, x1, s); s = fmaf(w4.z, x2, s); s = fmaf(w4.w, x3, s);
      const float y = silu_bf(s);
      ss[t] = y * y;
      dst[t * dstep] = y;
      if (role == 2 || owner || t == T - 1) { float* d = dw + t * (3 * dstep); d[0] = x1; d[1] = x2; d[2] = x3; }
      x0 = x1; x1 = x2; x2 = x3;
    }
    if (role < 2) {
      float z = treduce<32, TP>(ss, lane);
      constexpr int LT = 32 / TP;
      if ((lane & (LT - 1)) == 0 && lane / LT < T) sm[L::SS + role * T * 4 + (lane / LT) * 4 + (warp & 3)] = z;
    }
  }
}

// ---- Phase 2: the recurrence; S k of a token is reduced together with S q of the token before

template <int T, int BV, int LW, bool PF, bool UNR>
static __device__ __forceinline__ void phase2(float4 (&S)[Geo<BV, LW>::R][Geo<BV, LW>::KP], const Args& p, float* sm, int n, int hv, int v0, int warp, int lane) {
  using L = Smem<T, BV>; using E = Geo<BV, LW>;
  constexpr int GRP = E::GRP, KP = E::KP, RS = E::RS, R = E::R;
  const int lk = lane & (LW - 1), lrow0 = warp * GRP + lane / LW;
  uint64_t pol;
  if (p.pol == 1) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(pol));
  else asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(pol));
  float* Pp = p.snap + (((size_t)n * T * p.HV + hv) * 128 + v0 + lrow0) * 128 + 4 * lk;
  const size_t pstep = (size_t)p.HV * 16384;
  constexpr int LPR = R == 1 ? LW : LW / (2 * R);  // lanes that end with one value
  const bool ohalf = R > 1 && (lk & (LW / 2));     // R > 1: the upper half of the lanes ends with outputs
  const int lrow = lrow0 + RS * (R == 1 ? 0 : (lk & (LW / 2 - 1)) / LPR);
  const bool owr = R == 1 ? lk == 0 : ohalf && (lk & (LPR - 1)) == 0;
  __nv_bfloat16* Op = p.o + ((size_t)n * T * p.HV + hv) * 128 + v0 + lrow;
  const float *kb = sm + L::K + 4 * lk, *qb = sm + L::Q + 4 * lk, *gb = sm + L::G + 4 * lk;
  float4 kn[KP], gn[KP];
#pragma unroll
  for (int i = 0; i < KP; i++) if (PF) { kn[i] = lds4(kb + 4 * LW * i); gn[i] = lds4(gb + 4 * LW * i); }
  float c1, c2, rqp = 0.f, rq;
  auto scal = [&](int t) {
    const float4 sk = lds4(sm + L::SS + T * 4 + t * 4), sq = lds4(sm + L::SS + t * 4);
    const float beta = sm[L::B + t];
    const float rk = rsqa((sk.x + sk.y) + (sk.z + sk.w) + 1e-6f);
    rq = rsqa((sq.x + sq.y) + (sq.z + sq.w) + 1e-6f) * p.scale;
    c1 = sm[L::V + t * BV + lrow] * beta * rk; c2 = -beta * rk * rk;
  };
  scal(0);
  float ao[R];
#pragma unroll
  for (int r = 0; r < R; r++) ao[r] = 0.f;
  auto put_o = [&](float ov, int t) {
    if (E::STAGE_O) reinterpret_cast<__nv_bfloat16*>(sm + L::O)[t * BV + lrow] = __float2bfloat16_rn(ov);
    else *(Op + (size_t)t * p.HV * 128) = __float2bfloat16_rn(ov);
  };
  constexpr int UN = (R == 1 && PF && UNR) ? T : 1;
#pragma unroll UN
  for (int t = 0; t < T; t++) {
    float4 k4[KP];
    float acc[2 * R];
#pragma unroll
    for (int r = 0; r < R; r++) acc[r] = 0.f;
#pragma unroll
    for (int i = 0; i < KP; i++) {
      if (!PF) { kn[i] = lds4(kb + t * 128 + 4 * LW * i); gn[i] = lds4(gb + t * 128 + 4 * LW * i); }
      k4[i] = kn[i];
#pragma unroll
      for (int r = 0; r < R; r++) {
        float4& s = S[r][i];
        s.x *= gn[i].x; s.y *= gn[i].y; s.z *= gn[i].z; s.w *= gn[i].w;
        acc[r] += dot4(s, k4[i]);
      }
    }
    float4 q4[KP];
    if constexpr (KP == 1) q4[0] = lds4(qb + t * 128);
    if (PF && t + 1 < T) {
#pragma unroll
      for (int i = 0; i < KP; i++) { kn[i] = lds4(kb + (t + 1) * 128 + 4 * LW * i); gn[i] = lds4(gb + (t + 1) * 128 + 4 * LW * i); }
    }
    const float c1t = c1, c2t = c2, rqt = rq;
    float u[R];
    if constexpr (R == 1) {
      float d = acc[0], e = ao[0];
#pragma unroll
      for (int m = LW / 2; m; m >>= 1) { d += __shfl_xor_sync(0xffffffffu, d, m); e += __shfl_xor_sync(0xffffffffu, e, m); }
      if (t > 0 && owr) put_o(e * rqp, t - 1);
      u[0] = fmaf(c2t, d, c1t);
    } else {
#pragma unroll
      for (int r = 0; r < R; r++) acc[R + r] = ao[r];
      const float z = treduce<LW, 2 * R>(acc, lane);
      if (t > 0 && owr) put_o(z * rqp, t - 1);
      const float u1 = fmaf(c2t, z, c1t);  // meaningful in the lower half
#pragma unroll
      for (int r = 0; r < R; r++) u[r] = __shfl_sync(0xffffffffu, u1, (lane & ~(LW - 1)) + r * LPR);
    }
    if (t + 1 < T) scal(t + 1);
    rqp = rqt;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int i = 0; i < KP; i++) {
        float4& s = S[r][i];
        s.x = fmaf(u[r], k4[i].x, s.x); s.y = fmaf(u[r], k4[i].y, s.y); s.z = fmaf(u[r], k4[i].z, s.z); s.w = fmaf(u[r], k4[i].w, s.w);
        stg4p(Pp + r * (RS * 128) + 4 * LW * i, s, pol);
      }
#pragma unroll
    for (int r = 0; r < R; r++) ao[r] = 0.f;
#pragma unroll
    for (int i = 0; i < KP; i++) {
      if constexpr (KP > 1) q4[i] = lds4(qb + t * 128 + 4 * LW * i);
#pragma unroll
      for (int r = 0; r < R; r++) ao[r] += dot4(S[r][i], q4[i]);
    }
    Pp += pstep;
  }
  if constexpr (R == 1) {
    float e = ao[0];
#pragma unroll
    for (int m = LW / 2; m; m >>= 1) e += __shfl_xor_sync(0xffffffffu, e, m);
    if (owr) put_o(e * rqp, T - 1);
  } else {
    float acc[2 * R];
#pragma unroll
    for (int r = 0; r < R; r++) { acc[r] = 0.f; acc[R + r] = ao[r]; }
    const float z = treduce<LW, 2 * R>(acc, lane);
    if (owr) put_o(z * rqp, T - 1);
  }
}

// ---- One CTA

template <int T, int BV, int LW, int MINB, bool UNR>
static __device__ __forceinline__ void verify(const Args& p) {
  using L = Smem<T, BV>; using E = Geo<BV, LW>;
  constexpr int NT = E::NT, GRP = E::GRP, KP = E::KP, RS = E::RS, R = E::R, RW = E::RW;
  extern __shared__ __align__(128) float sm[];
  const int tid = threadIdx.x, lane = tid & 31, warp = __shfl_sync(0xffffffffu, tid >> 5, 0);
  const int tile = blockIdx.x % NT, nh = blockIdx.x / NT, hv = nh % p.HV, n = nh / p.HV, h = hv / p.G;
  const int v0 = tile * BV;
  const bool owner = tile == 0 && hv == h * p.G;  // stores the windows of q and k
  const int role = warp >> 2, c = tid & 127;      // 0 q, 1 k, 2 v, 3 gate; channel
  const bool act = role != 2 || c < BV;
  const int ch = role == 0 ? h * 128 + c : role == 1 ? (p.H + h) * 128 + c : 2 * p.H * 128 + hv * 128 + v0 + c;

  // Loads; source order is issue order.
  float4 w4 = make_float4(0, 0, 0, 0); float bias = 0.f;  // gate: w4.x = A_log, bias = dt_bias
  int slot, line, iline;
  auto load_w = [&]() {
    if (role == 3) { bias = ldgf(p.dtb + hv * 128 + c); w4.x = ldgf(p.Alog + hv); }
    else if (act) { w4 = ldg4(p.w + (size_t)ch * 4); if (p.bias) bias = ldgf(p.bias + ch); }
  };
  auto load_i = [&]() { slot = ldgi(p.si + n); line = ldgi(p.ci + n); iline = ldgi(p.ii + n); };
  unsigned raw[T]; float bl = 0.f;
  auto load_x = [&]() {
    const __nv_bfloat16* src = role == 3 ? p.a + ((size_t)n * T * p.HV + hv) * 128 + c : p.x + (size_t)n * T * p.D + ch;
    const size_t st = role == 3 ? (size_t)p.HV * 128 : (size_t)p.D;
#pragma unroll
    for (int t = 0; t < T; t++) raw[t] = act ? ldgu16(src + t * st) : 0u;
    if (role == 3 && c < T) bl = ldgbf(p.b + ((size_t)n * T + c) * p.HV + hv);
  };
  if (p.pdl == 1) { load_w(); gdc_wait(); gdc_launch(); load_i(); load_x(); }
  else { load_i(); load_w(); if (p.pdl == 0) load_x(); }
  if (slot < 0) {  // a padded request: zeros and nothing else
    if (p.pdl == 2) gdc_wait();
    for (int i = tid; i < T * BV; i += NTH)
      p.o[(((size_t)n * T + i / BV) * p.HV + hv) * 128 + v0 + i % BV] = __float2bfloat16_rn(0.f);
    return;
  }
  float hx[3] = {0, 0, 0};
  if (role != 3 && act) {
    const float* hp = p.cs + ((size_t)line * p.D + ch) * 3;
#pragma unroll
    for (int i = 0; i < 3; i++) hx[i] = ldgf(hp + i);
  }
  const int lk = lane & (LW - 1), lrow0 = warp * GRP + lane / LW;  // rows lrow0 + RS r of the tile
  float4 S[R][KP];
  const float* Sp = p.S + (((size_t)slot * p.HV + hv) * 128 + v0 + lrow0) * 128 + 4 * lk;
  if (RW == NW || warp < RW) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int i = 0; i < KP; i++) S[r][i] = ldg4s(Sp + r * (RS * 128) + 4 * LW * i);
  }
  if (p.pdl == 2) { gdc_wait(); gdc_launch(); load_x(); }
  // The CTA arrives once its copy of the history is complete, which shared memory shows.
  unsigned arrived = 0;
  const unsigned ncta = NT * p.G;
  if (ncta > 1 && role < 2) {
    float* d = sm + L::HX + (warp >> 2) * 384 + c;
    d[0] = hx[0]; d[128] = hx[1]; d[256] = hx[2];
    asm volatile("bar.arrive 1, 288;" ::: "memory");
  }

  phase1<T, BV>(p, sm, role, c, act, owner, w4, bias, hx, raw, bl, warp, lane);
  if (ncta > 1 && warp == NW - 1) {
    asm volatile("bar.sync 1, 288;" ::: "memory");
    if (lane == 0)
      asm volatile("atom.global.acq_rel.gpu.inc.u32 %0, [%1], %2;" : "=r"(arrived) : "l"(p.cnt + n * p.H + h), "r"(ncta - 1) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  // Windows, and the history of v.
  if (warp == NW - 1) {
    const uint32_t sb = s2u(sm);
    const size_t wl = (size_t)iline * T * p.D * 3;
    if (lane < T) bulk_store(p.win + wl + ((size_t)lane * p.D + 2 * p.H * 128 + hv * 128 + v0) * 3, sb + (L::WV + lane * BV * 3) * 4, BV * 12);
    if (lane == T) bulk_store(p.cs + ((size_t)line * p.D + 2 * p.H * 128 + hv * 128 + v0) * 3, sb + (L::WV + (T - 1) * BV * 3) * 4, BV * 12);
    if (owner && lane < T) {
      bulk_store(p.win + wl + ((size_t)lane * p.D + h * 128) * 3, sb + (L::WQ + lane * 384) * 4, 1536);
      bulk_store(p.win + wl + ((size_t)lane * p.D + (p.H + h) * 128) * 3, sb + (L::WK + lane * 384) * 4, 1536);
    }
  }
  if (RW == NW || warp < RW) phase2<T, BV, LW, LW == 32 || MINB == 1, UNR>(S, p, sm, n, hv, v0, warp, lane);
  if (E::STAGE_O) {
    __syncthreads();
    constexpr int CH = BV / 8;  // 16-byte pieces a token
    if (tid < T * CH)
      *reinterpret_cast<uint4*>(p.o + (((size_t)n * T + tid / CH) * p.HV + hv) * 128 + v0 + (tid % CH) * 8) =
          *reinterpret_cast<const uint4*>(reinterpret_cast<const __nv_bfloat16*>(sm + L::O) + tid * 8);
  }
  // The history of q and k, by the last CTA that read it.
  if (warp == NW - 1) {
    const bool roll = __shfl_sync(0xffffffffu, arrived, 0) == ncta - 1;
    if (roll && lane < 2) {
      asm volatile("fence.proxy.async;" ::: "memory");
      bulk_store(p.cs + ((size_t)line * p.D + (lane ? p.H : 0) * 128 + h * 128) * 3, s2u(sm) + ((lane ? L::WK : L::WQ) + (T - 1) * 384) * 4, 1536);
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

// ---- Configurations: name, rows of V a CTA, lanes that share a row, CTAs an SM, recurrence unrolled

#define KERNEL(NAME, BV, LW, CTAS, UNROLLED)                                                      \
  extern "C" __constant__ unsigned NAME##_shared = Smem<TOKENS, BV>::BYTES;                       \
  extern "C" __global__ void __launch_bounds__(NTH, CTAS) NAME(const __grid_constant__ Args p) { \
    verify<TOKENS, BV, LW, CTAS, UNROLLED>(p);                                                    \
  }
KERNEL(v8_k8, 8, 8, 1, true)
KERNEL(v8_k8_rolled, 8, 8, 1, false)
KERNEL(v16_k8, 16, 8, 1, true)
KERNEL(v16_k8_rolled, 16, 8, 1, false)
KERNEL(v32_k8, 32, 8, 1, true)
KERNEL(v32_k8_rolled, 32, 8, 1, false)
KERNEL(v32_k8_two, 32, 8, 2, true)
KERNEL(v32_k32_two, 32, 32, 2, true)
KERNEL(v64_k32_two, 64, 32, 2, true)
KERNEL(v128_k32, 128, 32, 1, true)
KERNEL(v128_k32_two, 128, 32, 2, true)
