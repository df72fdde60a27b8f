//! What synchronises through memory, and what does not: a release that is seen by an acquire of the same bytes.

mod common;
use common::{Bench, clean, faulty};
use kda_sim::Code;

/// CTA 0 writes its data and executes `release`; CTA 1 goes on when `acquire`, into `%r2`, no longer gives the value at first,
/// and reads the data. `%rd1` is the flag, of 16 bytes, and `first` its first word.
fn handover(first: u32, release: &str, acquire: &str) -> Bench {
    let body = format!(
        "    ld.param.u64 %rd0, [data];
    ld.param.u64 %rd1, [flag];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, 0;
    mov.u64 %rd2, 0;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra READ;
    st.global.u32 [%rd0], 5;
    {release}
    bra END;
READ:
    {acquire}
    setp.eq.u32 %p1, %r2, {first};
    @%p1 bra READ;
    ld.global.u32 %r3, [%rd0];
END:"
    );
    let mut b = Bench::new(&["data", "flag"], &body).block(1).grid(2);
    b.buffer(&[0; 4]);
    b.buffer(&[first.to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat());
    b
}

const ACQUIRE: &str = "ld.acquire.gpu.global.u32 %r2, [%rd1];";

/// A comparison that fails writes nothing, and releases nothing.
#[test]
fn a_failed_cas_does_not_release() {
    let kernel = |found: u32| {
        let release = format!(
            "atom.acq_rel.gpu.global.cas.b32 %r4, [%rd1], {found}, 7;\n    st.relaxed.gpu.global.u32 [%rd1+4], 1;"
        );
        let acquire = "ld.relaxed.gpu.global.u32 %r2, [%rd1+4];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra READ;
    ld.acquire.gpu.global.u32 %r5, [%rd1];
    mov.u32 %r2, 1;";
        handover(0, &release, acquire)
    };
    // The relaxed flag only says when to look; in the simulator it is never ahead of the swap.
    clean(|| kernel(0), |_| {});
    faulty(|| kernel(3), Code::Race, "ld.global.u32 %r3");
    clean(|| handover(0, "atom.acq_rel.gpu.global.cas.b32 %r4, [%rd1], 0, 7;", ACQUIRE), |_| {});
}

/// A load marked `.nc` reads what was there before the launch.
#[test]
fn constant_loads_read_what_is_not_written() {
    let kernel = |write: &str, load: &str| {
        let body = format!(
            "    ld.param.u64 %rd0, [data];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd2, %r0, 4, %rd0;
    mad.wide.u32 %rd3, %r0, 4, %rd1;
    mov.u32 %r1, smem;
    setp.eq.u32 %p0, %r0, 9;
    mov.u16 %h0, 1;
    @%p0 st.shared.v4.u32 [%r1], {{%r0, %r0, %r0, %r0}};
    fence.proxy.async.shared::cta;
    {write}
    bar.sync 0;
    {load}
    st.global.u32 [%rd3], %r4;"
        );
        let mut b = Bench::new(&["data", "out"], &body).block(64);
        b.buffer(&[0; 256]);
        b.undefined(256);
        b
    };
    let load = "ld.global.nc.u32 %r4, [%rd2];";
    let copy = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;";
    clean(|| kernel("", load), |_| {});
    clean(|| kernel("st.global.u32 [%rd3], %r0;", load), |_| {});
    for write in ["st.global.u32 [%rd2], %r0;", "@%p0 st.global.u8 [%rd2+1], %h0;", copy] {
        let line = write.lines().next().unwrap();
        clean(|| kernel(write, "ld.global.u32 %r4, [%rd2];"), |_| {});
        faulty(|| kernel(write, load), Code::Race, load);
        faulty(|| kernel(write, load), Code::Race, line);
    }
    // The bytes beside those that are written.
    clean(|| kernel("@%p0 st.global.u8 [%rd2+1], %h0;", "ld.global.nc.u8 %h1, [%rd2];\n    mov.u32 %r4, 0;"), |_| {});
    // What an earlier launch has written.
    let mut b = kernel("", load);
    b.run().unwrap_or_else(|r| panic!("{r}"));
    b.params.rotate_left(8);
    b.run().unwrap_or_else(|r| panic!("{r}"));
}

/// A release is seen by an acquire of the same bytes, and by no other.
#[test]
fn accesses_of_other_bytes_do_not_synchronise() {
    let set = |release: &str| format!("mov.u32 %r5, 1;\n    mov.u16 %h0, 1;\n    mov.u64 %rd3, 1;\n    {release}");
    let word = set("st.release.gpu.global.u32 [%rd1], %r5;");
    let long = set("st.release.gpu.global.u64 [%rd1], %rd3;");
    let half = set("st.release.gpu.global.u16 [%rd1], %h0;");
    let acquire_long = "ld.acquire.gpu.global.u64 %rd2, [%rd1];\n    cvt.u32.u64 %r2, %rd2;";
    let acquire_half = "ld.acquire.gpu.global.u16 %h1, [%rd1];\n    cvt.u32.u16 %r2, %h1;";
    for (release, acquire) in [(&word, ACQUIRE), (&long, acquire_long), (&half, acquire_half)] {
        clean(|| handover(0, release, acquire), |_| {});
    }
    for (release, acquire) in
        [(&word, acquire_long), (&long, ACQUIRE), (&word, acquire_half), (&half, ACQUIRE), (&half, acquire_long)]
    {
        faulty(|| handover(0, release, acquire), Code::Race, "ld.");
    }
    // The flag is set by a relaxed store of the neighbouring half; the acquire looks at the half that was not released.
    let beside = set("st.release.gpu.global.u16 [%rd1+2], %h0;\n    st.relaxed.gpu.global.u16 [%rd1], %h0;");
    faulty(|| handover(0, &beside, acquire_half), Code::Race, "ld.global.u32 %r3");
}
