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

#[test]
fn text_survives() {
    let module = kda_ptx::parse(TEXT).unwrap();
    assert_eq!(module.to_string(), TEXT);
}
