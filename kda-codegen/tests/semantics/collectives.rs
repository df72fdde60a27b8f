//! Roles, named barriers, shuffles, uniformity.

use super::harness::{Run, check, error_of, source};

#[test]
fn shuffles() {
    check("let r = shfl_xor(a, 5) + shfl(a, 3) * 3 + shfl(a, lane / 2);", |i| {
        let at = |lane: u32| i.all[(i.tid / 32 * 32 + lane) as usize];
        let lane = i.tid % 32;
        at(lane ^ 5).wrapping_add(at(3).wrapping_mul(3)).wrapping_add(at(lane / 2))
    });
}

#[test]
fn shuffles_up_and_down() {
    check("let r = shfl_up(a, 3) + shfl_down(a, n) * 3;", |i| {
        let lane = i.tid % 32;
        let at = |lane: u32| i.all[(i.tid / 32 * 32 + lane) as usize];
        let up = if lane >= 3 { at(lane - 3) } else { i.a };
        let down = if lane + i.n < 32 { at(lane + i.n) } else { i.a };
        up.wrapping_add(down.wrapping_mul(3))
    });
}

#[test]
fn votes() {
    check(
        "let c = a % 4 == n;
         let mut r = ballot(c);
         if any(c) { r += shfl(a, 7); }
         if all(c || lane % 2 == 0) { r += 9; }
         r += all(true) as u32 + any(false) as u32;",
        |i| {
            let warp = &i.all[(i.tid / 32 * 32) as usize..][..32];
            let holds = |lane: usize| warp[lane] % 4 == i.n;
            let mut r = (0..32).filter(|lane| holds(*lane)).map(|lane| 1u32 << lane).sum::<u32>();
            if (0..32).any(holds) {
                r = r.wrapping_add(warp[7]);
            }
            if (0..32).all(|lane| holds(lane) || lane % 2 == 0) {
                r = r.wrapping_add(9);
            }
            r.wrapping_add(1)
        },
    );
    assert_eq!(error_of(&source("", "let mut r = 0; if tid % 2 == 0 { r = ballot(true); }")), 350);
}

/// Four warps with uneven roles; `body` may use `out: [128]`.
fn roles(body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90)]
mod family {{
    #[kernel(block = 192, grid = 1)]
    #[roles(a = 0..1, b = 1..3, c = 4..5)]
    fn k(#[dims(192)] out: GlobalMut<u32>, n: u32) {{
        let t = smem::<u32, Shape<192>>();
        {body}
    }}
}}"
    )
}

fn run_roles(body: &str, n: u32) -> Vec<u32> {
    Run::new(&roles(body)).tensor("out", &[99u32; 192]).set("n", n).launch(1).read("out")
}

/// Role of a warp in [`roles`]; 3 is none.
const ROLE: [u32; 6] = [0, 1, 1, 3, 2, 3];

#[test]
fn the_role_of_a_warp() {
    let out = run_roles("out.at([tid]).store(role);", 0);
    for tid in 0..192 {
        assert_eq!(out[tid], ROLE[tid / 32], "{tid}");
    }
    let out =
        run_roles("out.at([tid]).store((role == a) as u32 + 2 * (role == b) as u32 + 4 * (role != c) as u32);", 0);
    for tid in 0..192 {
        let role = ROLE[tid / 32];
        assert_eq!(out[tid], u32::from(role == 0) + 2 * u32::from(role == 1) + 4 * u32::from(role != 2), "{tid}");
    }
}

#[test]
fn code_of_roles_that_are_no_neighbours() {
    let body = "let mut x: u32 = 7;
        #[role(a, c)] { x = 10 + role; }
        #[role(b)] for i in 0..n { x += i; }
        out.at([tid]).store(x);";
    let out = run_roles(body, 3);
    for tid in 0..192 {
        let want = match ROLE[tid / 32] {
            0 => 10,
            1 => 10,
            2 => 12,
            _ => 7,
        };
        assert_eq!(out[tid], want, "{tid}");
    }
}

#[test]
fn a_named_barrier_hands_over() {
    let body = "let ready = NamedBarrier { between: (a, b) };
        let done = NamedBarrier { between: (b, c) };
        out.at([tid]).store(0);
        #[role(a)] { #[unroll] for i in 0..2 { t[[2 * lane + i]] = lane + n; } ready.arrive(); }
        #[role(b)] { ready.sync(); let x = t[[tid - 32]]; t[[tid + 64]] = x + 1; done.sync(); out.at([tid]).store(x); }
        #[role(c)] { done.sync(); out.at([tid]).store(t[[96 + lane]] + t[[128 + lane]]); }";
    let out = run_roles(body, 5);
    for i in 0..64u32 {
        assert_eq!(out[32 + i as usize], i / 2 + 5);
    }
    for lane in 0..32u32 {
        assert_eq!(out[128 + lane as usize], (lane / 2 + 6) + ((lane + 32) / 2 + 6));
    }
}

#[test]
fn a_role_of_the_whole_block() {
    let source = "#[kernels(arch = sm_90)]
mod family {
    #[kernel(block = 64, grid = 1)]
    #[roles(all = 0..2)]
    fn k(#[dims(64)] out: GlobalMut<u32>) {
        #[role(all)] { let t = from_fn::<2>(|i| i + role); out.at([tid]).store(tid + t[1]); }
    }
}";
    let out = Run::new(source).tensor("out", &[0u32; 64]).launch(1).read::<u32>("out");
    assert!((0..64).all(|i| out[i] == i as u32 + 1));
}

#[test]
fn collectives_need_their_threads() {
    for body in [
        "let mut r = a; if tid < 5 { r = shfl(a, 0); }",
        "let mut r = a; for i in 0..a % 4 { r += shfl(a, 0); }",
        "let mut r = a; while shfl_xor(r, 1) > b { r += 1; }",
        "let mut r = a; let mut i: u32 = 0; while i < n { i += lane; r += shfl(a, 0); }",
        "let r = a; if warp == 0 { cta_sync(); }",
        "let r = a; let mut p = n; if tid == 3 { p = 1; } if p > 2 { cta_sync(); }",
        "let r = a; let c = a < b && { warp_sync(); true };",
    ] {
        assert_eq!(error_of(&source("", body)), 350, "{body}");
    }
    assert_eq!(error_of(&source("", "let r = a; let x = NamedBarrier { between: (first, first) };")), 352);
    assert_eq!(error_of(&source("", "let r = a; let x = NamedBarrier { between: () };")), 352);
}

#[test]
fn uniform_loops_may_meet() {
    check(
        "let t = smem::<u32, Shape<64>>(); let mut r = a;
         for i in 0..n { t[[tid]] = r; cta_sync(); r = t[[(tid + 1) % 64]]; cta_sync(); }
         if n > 1 { r = shfl(r, 0); }",
        |i| {
            let at = |tid: u32| i.all[((tid + i.n) % 64) as usize];
            if i.n > 1 { at(i.tid / 32 * 32) } else { at(i.tid) }
        },
    );
}

#[test]
fn waiting_for_the_predecessor() {
    let kernel = |body: &str| {
        format!(
            "#[kernels(arch = sm_90)] mod family {{
            #[kernel(block = 32, grid = 1)]
            fn k(#[dims(32; stable)] fixed: Global<u32>, #[dims(32)] x: Global<u32>, #[dims(32)] y: GlobalMut<u32>, n: u32, early: bool) {{ {body} }} }}"
        )
    };
    for body in [
        "let v = x.at([lane]).load(); pdl::wait(); y.at([lane]).store(v);",
        "if early { pdl::wait(); } y.at([lane]).store(1); if !early { pdl::wait(); }",
        "for i in 0..n { pdl::wait(); } y.at([lane]).store(1);",
        "while n > 3 { let v = x.at([lane]).load(); pdl::wait(); }",
        "let c = early && x.at([lane]).load() > 3; pdl::wait();",
    ] {
        assert_eq!(error_of(&kernel(body)), 651, "{body}");
    }
    for body in [
        "let v = fixed.at([lane]).load(); pdl::wait(); y.at([lane]).store(v);",
        "if early { pdl::wait(); } else { pdl::wait(); } y.at([lane]).store(1);",
        "if n == 0 { pdl::wait(); return; } pdl::wait(); y.at([lane]).store(1);",
        "let v = x.at([lane]).load(); y.at([lane]).store(v);",
    ] {
        let _ = Run::new(&kernel(body));
    }
}
