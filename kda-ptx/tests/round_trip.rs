//! Text of every kind of statement survives parsing and printing.

const TEXT: &str = r#".version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry k(
    .param .u64 x,
    .param .align 64 .b8 map[128]
)
.maxntid 384, 1, 1
.minnctapersm 1
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .loc 1 12 5
    // first loads
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mov.u32 %r8, smem;
    mov.b64 {%r6, %r7}, %rd0;
    mov.b64 %rd1, {%r6, %r7};
    setp.ge.u32 %p0, %r0, 32;
    @%p0 bra $L_end;
    elect.sync _|%p1, -1;
    ld.global.L1::no_allocate.v4.f32 {%r1, %r2, %r3, %r4}, [%rd0+16];
    ld.global.nc.L2::128B.b32 %r5, [%rd0+-4];
    fma.rn.f32 %r1, %r1, 0f3F800000, %r2;
    st.global.L2::cache_hint.v4.f32 [%rd0], {%r1, %r2, %r3, %r4}, %rd1;
    shfl.sync.bfly.b32 %r1|%p2, %r1, 16, 31, -1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8+8], 4096;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+8], %r0;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r8], 1536;
    cp.async.bulk.wait_group.read 0;
    bar.sync 1, 256;
    bar.sync 0;
    fence.proxy.async.shared::cta;
    atom.acq_rel.gpu.global.inc.u32 %r1, [%rd0], 7;
    @!%p1 exit;
$L_end:
    ret;
}

.file 1 "src/k.rs"
"#;

/// A text as it is printed: what stands in a body is indented by a tab.
fn printed(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("    ") {
        Some(rest) if !rest.starts_with(".param") => format!("\t{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn text_survives() {
    let module = kda_ptx::parse(TEXT).unwrap();
    assert_eq!(module.to_string(), printed(TEXT));
}

const HOPPER: &str = r#".version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry k(
    .param .align 64 .b8 map[128],
    .param .u64 x
)
.maxntid 128, 1, 1
.minnctapersm 1
{
    .reg .pred %p<2>;
    .reg .b16 %h<2>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<8>;
    mov.b64 %rd0, map;
    ld.param.u64 %rd1, [x];
    mov.u32 %r0, smem;
    mov.u32 %r1, 0;
    setp.eq.u32 %p0, %r1, 0;
    mov.u64 %rd3, 4611686293305294848;
    mov.b32 %r4, 0;
    mov.b32 %r5, 0;
    mov.b32 %r6, 0;
    mov.b32 %r7, 0;
    mov.b32 %r8, 0;
    mov.b32 %r9, 0;
    mov.b32 %r10, 0;
    mov.b32 %r11, 0;
    mov.b64 %rd2, %rd1;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1, %r1}], [smem+8];
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd0, {%r1, %r1}], [%r0];
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd0, {%r1, %r1}], [%r0];
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r0], 16;
    prefetch.tensormap [%rd0];
    cp.async.cg.shared.global [%r0], [%rd1], 16, %r1;
    cp.async.ca.shared.global [%r0], [%rd1], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+8];
    mapa.shared::cluster.u32 %r2, %r0, %r1;
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r4, %r5, %r6, %r7}, [%r0];
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r0];
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r0], {%r4, %r5};
    movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r5;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r8, %r9, %r10, %r11}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%r8, %r9, %r10, %r11};
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r8, %r9, %r10, %r11}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%r8, %r9, %r10, %r11};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r8, %r9, %r10, %r11}, %rd3, %rd3, %p0, 1, -1, 0, 1;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r8, %r9, %r10, %r11}, {%r4, %r5, %r6, %r7}, %rd3, %p0, 1, 1, 0;
    wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%r8, %r9, %r10, %r11}, %rd3, %rd3, %p0, 1, 1;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    st.global.v4.b32 [%rd1], {%r8, %r9, %r10, %r11};
    ret;
}

"#;

const BLACKWELL: &str = r#".version 8.8
.target sm_100f
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry k(
    .param .u64 x
)
.maxntid 128, 1, 1
.minnctapersm 1
{
    .reg .pred %p<2>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r0, smem;
    mov.u32 %r1, 0;
    setp.eq.u32 %p0, %r1, 0;
    mov.u64 %rd3, 4611756387170910208;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    ld.shared.b32 %r2, [%r0];
    tcgen05.mma.cta_group::1.kind::f16 [%r2], %rd3, %rd3, %r1, %p0;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r0];
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r4, %r5}, [%r2];
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r2];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r2], {%r4, %r5};
    tcgen05.wait::st.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
    st.global.b32 [%rd1], %r4;
    ret;
}

"#;

#[test]
fn matrix_and_tensor_instructions_survive() {
    for text in [HOPPER, BLACKWELL] {
        let module = kda_ptx::parse(text).unwrap();
        assert_eq!(module.to_string(), printed(text));
        let gate = module.gate();
        assert!(gate.open(module.isa, module.arch), "{gate:?}");
    }
}
