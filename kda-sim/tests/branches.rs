//! Branches marked `.uni`: the lanes that come to one together must take it together.

mod common;
use common::{Bench, clean, faulty};
use kda_sim::Code;

/// Lanes of which `first` decides come to the second branch, and take it where `second` holds.
fn kernel(first: &str, second: &str, branch: &str) -> Bench {
    let body = format!(
        "    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 31;
    shr.u32 %r2, %r0, 5;
    setp.{first};
    setp.{second};
    @%p0 bra END;
    {branch} THERE;
    add.u32 %r3, %r0, 1;
THERE:
    add.u32 %r4, %r0, 1;
END:"
    );
    Bench::new(&[], &body).block(80)
}

const NOBODY: &str = "gt.u32 %p0, %r1, 31";

#[test]
fn a_uniform_branch_is_taken_by_all_or_none() {
    for second in ["lt.u32 %p1, %r2, 1", "lt.u32 %p1, %r1, 32", "gt.u32 %p1, %r1, 31"] {
        for branch in ["@%p1 bra.uni", "@!%p1 bra.uni"] {
            clean(|| kernel(NOBODY, second, branch), |_| {});
        }
    }
    for branch in ["@%p1 bra.uni", "@!%p1 bra.uni"] {
        faulty(|| kernel(NOBODY, "lt.u32 %p1, %r1, 7", branch), Code::Divergent, branch);
        faulty(|| kernel(NOBODY, "eq.u32 %p1, %r0, 31", branch), Code::Divergent, branch);
        // The same without the mark.
        let plain = branch.trim_end_matches(".uni");
        clean(|| kernel(NOBODY, "lt.u32 %p1, %r1, 7", plain), |_| {});
    }
}

/// Lanes that are elsewhere have no say.
#[test]
fn lanes_elsewhere_do_not_matter() {
    clean(|| kernel("ge.u32 %p0, %r1, 7", "lt.u32 %p1, %r1, 7", "@%p1 bra.uni"), |_| {});
    clean(|| kernel("lt.u32 %p0, %r1, 7", "lt.u32 %p1, %r1, 7", "@%p1 bra.uni"), |_| {});
    faulty(|| kernel("ge.u32 %p0, %r1, 7", "lt.u32 %p1, %r1, 6", "@%p1 bra.uni"), Code::Divergent, "bra.uni");
}

/// Lanes that meet in different iterations of a loop are not in step there; those of one iteration are.
#[test]
fn lanes_of_other_iterations_do_not_matter() {
    let kernel = |condition: &str| {
        let body = format!(
            "    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra APART;
    mov.u32 %r1, 0;
WORK:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 40;
    @%p1 bra.uni WORK;
APART:
    mov.u32 %r2, 0;
ROUND:
    and.b32 %r3, %r2, 1;
    setp.{condition};
    @%p2 bra.uni ODD;
    add.u32 %r4, %r2, 1;
ODD:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 200;
    @%p1 bra.uni ROUND;"
        );
        Bench::new(&[], &body).block(32)
    };
    clean(|| kernel("ne.u32 %p2, %r3, 0"), |_| {});
    faulty(|| kernel("lt.u32 %p2, %r0, 17"), Code::Divergent, "bra.uni ODD");
}
