//! Shared memory of other CTAs is reached as `.shared::cluster` alone.

mod common;
use common::{Bench, clean, faulty};
use kda_sim::Code;

const MEET: &str = "barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;";

/// Thread 0 of each CTA accesses the CTA whose rank is its own, changed by `other`.
fn kernel(access: &str, other: u32) -> Bench {
    let body = format!(
        "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r2, %r2, {other};
    mapa.shared::cluster.u32 %r3, %r1, %r2;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 st.shared.u32 [%r1+64], 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
    {MEET}
    @!%p0 {access}
    {MEET}"
    );
    Bench::new(&[], &body).block(32).grid(2).cluster(2)
}

#[test]
fn addresses_of_the_cta_are_its_own() {
    for access in [
        "st.SPACE.u32 [%r3+64], 1;",
        "ld.SPACE.u32 %r4, [%r3+64];",
        "ld.acquire.cta.SPACE.u32 %r4, [%r3+64];",
        "atom.relaxed.gpu.SPACE.add.u32 %r4, [%r3+64], 1;",
        "mbarrier.arrive.SPACE.b64 _, [%r3];",
    ] {
        let wide = access.replace("SPACE", "shared::cluster");
        clean(|| kernel(&wide, 0), |_| {});
        clean(|| kernel(&wide, 1), |_| {});
        let spaces = if access.starts_with("mbarrier") { &["shared::cta"][..] } else { &["shared::cta", "shared"] };
        for space in spaces {
            let narrow = access.replace("SPACE", space);
            clean(|| kernel(&narrow, 0), |_| {});
            faulty(|| kernel(&narrow, 1), Code::OutOfBounds, &narrow);
        }
    }
    let wait = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 1;";
    clean(|| kernel(wait, 0), |_| {});
    faulty(|| kernel(wait, 1), Code::OutOfBounds, wait);
}
