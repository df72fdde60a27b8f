//! Tensor copies: boxes, bounds, swizzles, and what may go wrong round them.

mod common;
use common::{Bench, Map, clean, encode, faulty, faulty_under, noise, one_barrier, wait};
use kda_core::Elem;
use kda_core::tensor_map::Swizzle;
use kda_sim::{Code, Schedule};

/// Loads a box, and copies shared memory to `out`.
fn load(map: &Map, from: &[i32]) -> Bench {
    let bytes = map.box_bytes();
    let rank = map.tile.len();
    // Coordinates are written innermost first.
    let coordinates: Vec<String> = from.iter().rev().map(i32::to_string).collect();
    let body = format!(
        "{}    mov.b64 %rd0, map;
    cvta.param.u64 %rd0, %rd0;
    ld.param.u64 %rd1, [out];
    @%p0 bra READY;
    prefetch.tensormap [%rd0];
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{bytes}], {bytes};
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd0, {{{}}}], [%r1+{bytes}];
READY:
{}    mov.u32 %r2, %r0;
LOOP:
    setp.ge.u32 %p1, %r2, {};
    @%p1 bra DONE;
    mad.lo.u32 %r3, %r2, 4, %r1;
    ld.shared.u32 %r4, [%r3];
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    st.global.u32 [%rd2], %r4;
    add.u32 %r2, %r2, 64;
    bra LOOP;
DONE:",
        one_barrier(bytes),
        coordinates.join(", "),
        wait("WAIT", bytes, 0),
        bytes / 4
    );
    let mut b = Bench::new(&["map", "out"], &body).block(64).shared(bytes + 64);
    let elements = map.sizes[0] * map.strides[0];
    let values: Vec<f32> = (0..elements as usize).map(|i| noise(1, i)).collect();
    b.map(map, &encode(map.elem, &values));
    b.undefined(u64::from(bytes));
    b
}

/// The bytes of a box as shared memory should hold them, computed element by element.
fn expected(map: &Map, from: &[i32]) -> Vec<u8> {
    let size = map.elem.bytes() as usize;
    let mut out = vec![0; map.box_bytes() as usize];
    for e in 0..map.tile.iter().product::<u32>() {
        let (mut rest, mut index, mut inside) = (e, 0u64, true);
        for axis in (0..map.tile.len()).rev() {
            let at = i64::from(from[axis]) + i64::from(rest % map.tile[axis]);
            rest /= map.tile[axis];
            inside &= at >= 0 && (at as u64) < map.sizes[axis];
            index = index.wrapping_add((at as u64).wrapping_mul(map.strides[axis]));
        }
        let place = map.swizzle.place(e * size as u32) as usize;
        if inside {
            out[place..place + size].copy_from_slice(&encode(map.elem, &[noise(1, index as usize)]));
        }
    }
    out
}

#[test]
fn boxes_are_loaded_with_zeros_outside() {
    let cases = [
        (Map::matrix(Elem::BF16, [100, 128], [32, 64], Swizzle::B128), vec![16, 64]),
        (Map::matrix(Elem::BF16, [100, 128], [32, 64], Swizzle::B128), vec![90, 72]),
        (Map::matrix(Elem::BF16, [100, 128], [32, 64], Swizzle::B128), vec![-7, -24]),
        (Map::matrix(Elem::BF16, [40, 72], [16, 32], Swizzle::B64), vec![8, 48]),
        (Map::matrix(Elem::BF16, [40, 72], [16, 16], Swizzle::B32), vec![30, 0]),
        (Map::matrix(Elem::F32, [40, 36], [16, 36], Swizzle::None), vec![33, -4]),
        (Map::matrix(Elem::F32, [40, 36], [16, 32], Swizzle::B128), vec![200, 0]),
        (
            Map { elem: Elem::F32, sizes: vec![300], strides: vec![1], tile: vec![128], swizzle: Swizzle::None },
            vec![248],
        ),
        (
            Map {
                elem: Elem::BF16,
                sizes: vec![5, 6, 40],
                strides: vec![384, 64, 1],
                tile: vec![2, 4, 64],
                swizzle: Swizzle::B128,
            },
            vec![4, 3, -8],
        ),
        (
            Map {
                elem: Elem::F32,
                sizes: vec![3, 4, 5, 12],
                strides: vec![320, 80, 16, 1],
                tile: vec![2, 2, 3, 8],
                swizzle: Swizzle::B32,
            },
            vec![2, -1, 3, 8],
        ),
        (
            Map {
                elem: Elem::BF16,
                sizes: vec![2, 3, 4, 5, 24],
                strides: vec![1536, 512, 128, 24, 1],
                tile: vec![2, 1, 2, 3, 16],
                swizzle: Swizzle::None,
            },
            vec![1, 2, 3, 3, 16],
        ),
    ];
    for (map, from) in cases {
        clean(
            || load(&map, &from),
            |b| {
                let out = b.pointer(128);
                assert_eq!(b.bytes(out, map.box_bytes() as usize), expected(&map, &from), "{map:?} at {from:?}");
            },
        );
    }
}

fn tile() -> Map {
    Map::matrix(Elem::BF16, [64, 128], [16, 64], Swizzle::B128)
}

/// The load of a tile with a piece of its text replaced.
fn changed(from: &'static str, to: &'static str) -> impl Fn() -> Bench {
    move || {
        let mut b = load(&tile(), &[16, 64]);
        assert!(b.text.contains(from), "`{from}`\n{}", b.text);
        b.text = b.text.replace(from, to);
        b
    }
}

#[test]
fn faults_round_a_load_are_found() {
    let late = &[Schedule::RoundRobin, Schedule::LateAsync, Schedule::ReverseWarps];
    let unwaited = changed("    @!%p7 bra WAIT;\n", "");
    faulty_under(late, || unwaited().options(|o| o.checks.undefined = false), Code::Race, "ld.shared.u32");
    faulty(changed("2048], 2048;", "2048], 2064;"), Code::Deadlock, "try_wait");
    // Sixteen bytes too few: the phase never ends with the right number of bytes.
    faulty(changed("2048], 2048;", "2048], 2032;"), Code::Deadlock, "try_wait");
    faulty(changed("    @!%p0 fence.mbarrier_init.release.cluster;\n", ""), Code::Barrier, "cp.async.bulk.tensor");
    faulty(changed("[%r1], [%rd0,", "[%r1+128], [%rd0,"), Code::Misaligned, "cp.async.bulk.tensor");
    faulty(changed("{64, 16}", "{64, 16, 0}").text_error(), Code::TensorMap, "cp.async.bulk.tensor");
    faulty(changed("cvta.param.u64 %rd0, %rd0", "mov.u64 %rd0, 64"), Code::TensorMap, "prefetch.tensormap");
    faulty(changed("bra READY;", "bra READY;\n    add.u64 %rd0, %rd0, 8;"), Code::Misaligned, "prefetch.tensormap");
    // Nobody looks at what is loaded, so nobody waits for it.
    let unused = || {
        let mut b = unwaited();
        let loop_at = b.text.find("LOOP:").unwrap();
        b.text.insert_str(loop_at, "    bra DONE;\n");
        b
    };
    faulty_under(&[Schedule::LateAsync, Schedule::RoundRobin], unused, Code::Race, "cp.async.bulk.tensor");
    // The wait is on a barrier on which nothing completes.
    let other = |text: &str| {
        text.replace("    bar.sync 0;\n", "    @!%p0 mbarrier.init.shared::cta.b64 [%r1+2056], 1;\n    bar.sync 0;\n")
            .replace("%p7, [%r1+2048], 0", "%p7, [%r1+2056], 0")
    };
    faulty(
        || {
            let mut b = load(&tile(), &[16, 64]);
            b.text = other(&b.text);
            b
        },
        Code::Deadlock,
        "try_wait",
    );
}

/// A rank that does not fit the map: the instruction's own rank goes with its coordinates.
trait TextError {
    fn text_error(self) -> Box<dyn Fn() -> Bench>;
}

impl<F: Fn() -> Bench + 'static> TextError for F {
    fn text_error(self) -> Box<dyn Fn() -> Bench> {
        Box::new(move || {
            let mut b = self();
            b.text = b.text.replace("tensor.2d", "tensor.3d");
            b
        })
    }
}

#[test]
fn the_tensor_must_lie_in_its_allocation() {
    let map = Map::matrix(Elem::F32, [64, 32], [16, 32], Swizzle::B128);
    let make = || {
        let mut b = load(&map, &[48, 0]);
        // A map of 80 rows over memory of 64.
        b.params[20..24].copy_from_slice(&79u32.to_le_bytes());
        b
    };
    clean(make, |_| {});
    let outside = || {
        let mut b = make();
        b.text = b.text.replace("{0, 48}", "{0, 56}");
        b
    };
    faulty(outside, Code::OutOfBounds, "cp.async.bulk.tensor");
}

/// Fills shared memory with its words' numbers (as f32 or bf16 pairs), and stores or reduces a box.
fn store(map: &Map, from: &[i32], what: &str, fence: &str, wait: &str) -> Bench {
    let bytes = map.box_bytes();
    let coordinates: Vec<String> = from.iter().rev().map(i32::to_string).collect();
    let value = if map.elem == Elem::F32 {
        "cvt.rn.f32.u32 %r4, %r2;"
    } else {
        "and.b32 %r4, %r2, 127;\n    cvt.rn.f32.u32 %r4, %r4;\n    cvt.rn.bf16x2.f32 %r4, %r4, %r4;"
    };
    let body = format!(
        "    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.ne.u32 %p0, %r0, 0;
    mov.b64 %rd0, map;
    cvta.param.u64 %rd0, %rd0;
    mov.u32 %r2, %r0;
LOOP:
    setp.ge.u32 %p1, %r2, {};
    @%p1 bra FILLED;
    mad.lo.u32 %r3, %r2, 4, %r1;
    {value}
    st.shared.u32 [%r3], %r4;
    add.u32 %r2, %r2, 64;
    bra LOOP;
FILLED:
    {fence}
    bar.sync 0;
    @%p0 bra DONE;
    {what} [%rd0, {{{}}}], [%r1];
    cp.async.bulk.commit_group;
    {wait}
DONE:",
        bytes / 4,
        coordinates.join(", "),
    );
    let mut b = Bench::new(&["map"], &body).block(64).shared(bytes);
    let elements = (map.sizes[0] * map.strides[0]) as usize;
    b.map(map, &encode(map.elem, &vec![100.0; elements]));
    b
}

const STORE: &str = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group";
const FENCE: &str = "fence.proxy.async.shared::cta;";
const DONE: &str = "cp.async.bulk.wait_group 0;";

/// The tensor after a store or a reduction.
fn stored(map: &Map, from: &[i32], combine: impl Fn(f32, f32) -> f32) -> Vec<u8> {
    let mut out = vec![100.0; (map.sizes[0] * map.strides[0]) as usize];
    let size = map.elem.bytes();
    for e in 0..map.tile[0] * map.tile[1] {
        let at = [from[0] + (e / map.tile[1]) as i32, from[1] + (e % map.tile[1]) as i32];
        // The 16 bytes in which a row ends are written as a whole.
        let ends = [map.sizes[0], map.sizes[1].next_multiple_of(u64::from(16 / size))];
        if (0..2).any(|a| at[a] as u64 >= ends[a]) {
            continue;
        }
        let word = map.swizzle.place(e * size) / 4;
        let value = if size == 4 { word as f32 } else { (word & 127) as f32 };
        let index = (at[0] as u64 * map.strides[0] + at[1] as u64) as usize;
        out[index] = combine(out[index], value);
    }
    encode(map.elem, &out)
}

#[test]
fn boxes_are_stored_and_reduced_within_bounds() {
    let reduce = |op: &str| format!("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group");
    for (map, from) in [
        (Map::matrix(Elem::F32, [40, 48], [16, 32], Swizzle::B128), [30, 32]),
        (Map::matrix(Elem::F32, [40, 48], [16, 16], Swizzle::B64), [3, 4]),
        (Map::matrix(Elem::BF16, [40, 72], [16, 64], Swizzle::B128), [20, 8]),
        (Map::matrix(Elem::BF16, [40, 72], [16, 24], Swizzle::None), [0, 64]),
        // Rows that end within 16 bytes, and a box beyond the end.
        (Map { sizes: vec![40, 57], ..Map::matrix(Elem::BF16, [40, 72], [16, 64], Swizzle::B128) }, [30, 0]),
        (Map { sizes: vec![40, 57], ..Map::matrix(Elem::BF16, [40, 72], [16, 16], Swizzle::None) }, [2, 56]),
        (Map { sizes: vec![40, 57], ..Map::matrix(Elem::BF16, [40, 72], [16, 8], Swizzle::None) }, [2, 64]),
        (Map { sizes: vec![40, 30], ..Map::matrix(Elem::F32, [40, 36], [16, 32], Swizzle::B128) }, [0, 0]),
        (Map::matrix(Elem::F32, [40, 32], [16, 32], Swizzle::B128), [41, 0]),
    ] {
        type Combine = fn(f32, f32) -> f32;
        let kinds: [(String, Combine); 3] =
            [(STORE.to_string(), |_, new| new), (reduce("add"), |old, new| old + new), (reduce("max"), f32::max)];
        for (what, combine) in kinds {
            clean(
                || store(&map, &from, &what, FENCE, DONE),
                |b| {
                    let ptr = u64::from_le_bytes(b.params[8..16].try_into().unwrap());
                    let want = stored(&map, &from, combine);
                    assert_eq!(b.bytes(ptr, want.len()), want, "{what} {map:?} at {from:?}");
                },
            );
        }
    }
}

/// Coordinates that the hardware takes for illegal instructions.
#[test]
fn a_box_begins_at_a_multiple_of_16_bytes_and_stores_inside() {
    let map = Map::matrix(Elem::BF16, [100, 128], [32, 64], Swizzle::B128);
    for from in [[0, 1], [0, 4], [16, 60], [16, -4]] {
        let map = map.clone();
        faulty(move || load(&map, &from), Code::TensorMap, "cp.async.bulk.tensor");
    }
    let narrow = Map::matrix(Elem::F32, [40, 36], [16, 32], Swizzle::B128);
    let reduce = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group";
    for (what, from) in
        [(STORE, [0, 2]), (STORE, [0, -4]), (STORE, [-1, 0]), (reduce, [0, 1]), (reduce, [-2, 0]), (reduce, [0, -8])]
    {
        let map = narrow.clone();
        faulty(move || store(&map, &from, what, FENCE, DONE), Code::TensorMap, "tensor.2d.global");
    }
}

#[test]
fn faults_round_a_store_are_found() {
    let map = Map::matrix(Elem::F32, [40, 32], [16, 32], Swizzle::B128);
    let make = |fence: &'static str, wait: &'static str| {
        let map = map.clone();
        move || store(&map, &[0, 0], STORE, fence, wait)
    };
    clean(make(FENCE, "cp.async.bulk.wait_group.read 0;"), |_| {});
    // The fence in the storing thread, after the barrier, is right as well.
    let after = || {
        let mut b = make("", DONE)();
        b.text = b.text.replace("    bar.sync 0;\n", &format!("    bar.sync 0;\n    {FENCE}\n"));
        b
    };
    clean(after, |_| {});
    faulty(make("", DONE), Code::Race, "st.shared.u32");
    faulty(make(FENCE, ""), Code::Race, "ret");
    // Shared memory is used again before the store has read it.
    let reused = || {
        let mut b = make(FENCE, "st.shared.u32 [%r1], %r0;\n    cp.async.bulk.wait_group 0;")();
        b.options.seed = 3;
        b
    };
    faulty(reused, Code::Race, "st.shared.u32 [%r1]");
}

#[test]
fn bulk_reductions_add() {
    let body = format!(
        "    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    setp.ne.u32 %p0, %r0, 0;
    cvt.rn.f32.u32 %r3, %r0;
    st.shared.f32 [%r2], %r3;
    {FENCE}
    bar.sync 0;
    @%p0 bra DONE;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r1], 256;
    cp.async.bulk.commit_group;
    {DONE}
DONE:"
    );
    clean(
        || {
            let mut b = Bench::new(&["out"], &body).block(64).grid(5);
            b.buffer(&[0; 256]);
            b
        },
        |b| assert_eq!(b.read_f32(b.pointer(0), 64), (0..64).map(|i| 5.0 * i as f32).collect::<Vec<_>>()),
    );
}

/// Two CTAs; rank 0 loads one tile for both; each writes its first words out.
fn multicast(init_barrier: &str, end_barrier: &str) -> Bench {
    let map = Map::matrix(Elem::F32, [16, 32], [16, 32], Swizzle::None);
    let bytes = map.box_bytes();
    let body = format!(
        "{}    {init_barrier}
    mov.b64 %rd0, map;
    cvta.param.u64 %rd0, %rd0;
    ld.param.u64 %rd1, [out];
    mov.u32 %r5, %cluster_ctarank;
    setp.ne.or.u32 %p1, %r5, 0, %p0;
    mov.u16 %h0, 3;
    @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{bytes}], {bytes};
    @!%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd0, {{0, 0}}], [%r1+{bytes}], %h0;
{}    mad.lo.u32 %r3, %r0, 4, %r1;
    ld.shared.u32 %r4, [%r3];
    mad.lo.u32 %r6, %r5, 64, %r0;
    mad.wide.u32 %rd2, %r6, 4, %rd1;
    st.global.u32 [%rd2], %r4;
    {end_barrier}",
        one_barrier(bytes),
        wait("WAIT", bytes, 0),
    );
    let mut b = Bench::new(&["map", "out"], &body).block(64).grid(2).cluster(2).shared(bytes + 64);
    let values: Vec<f32> = (0..16 * 32).map(|i| noise(1, i)).collect();
    b.map(&map, &encode(Elem::F32, &values));
    b.undefined(512);
    b
}

#[test]
fn a_multicast_reaches_every_cta_of_its_mask() {
    let barrier = "barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;";
    clean(
        || multicast(barrier, ""),
        |b| {
            let values: Vec<f32> = (0..64).map(|i| noise(1, i)).collect();
            let out = b.read_f32(b.pointer(128), 128);
            assert_eq!(out, [values.clone(), values].concat());
        },
    );
    for (schedule, seed) in common::schedules() {
        let mut b = multicast("", barrier);
        (b.options.schedule, b.options.seed) = (schedule, seed);
        let code = b.run().expect_err("the peer's barrier may not be there").code;
        assert!(matches!(code, Code::Race | Code::Barrier), "{code}");
    }
    let wide = || {
        let mut b = multicast(barrier, "");
        b.text = b.text.replace("mov.u16 %h0, 3", "mov.u16 %h0, 7");
        b
    };
    faulty(wide, Code::TensorMap, "multicast");
}
