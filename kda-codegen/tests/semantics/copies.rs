//! Tensor copies: tiles in and out by tensor map, under every schedule.

use super::harness::{Random, Run, error_of};

/// Every swizzle; a tensor whose last box reaches past its end: what lies outside is 0 in the tile, and is not written.
#[test]
fn tiles_go_round() {
    for (span, columns) in [(128, 32), (64, 16), (32, 8), (0, 8)] {
        let source = format!(
            "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 64, grid = 2)]
    fn double(
        #[dims(m, {columns})] a: TensorMap<f32, Shape<64, {columns}>, Swizzle<{span}>>,
        #[dims(m, {columns})] out: TensorMapMut<f32, Shape<64, {columns}>, Swizzle<{span}>>,
    ) {{
        let ring = Pipeline::cta {{ tile: smem::<f32, Shape<64, {columns}>, Swizzle<{span}>, 2>() }};
        let result = smem::<f32, Shape<64, {columns}>, Swizzle<{span}>>();
        #[elect_one]
        {{
            let slot = ring.acquire();
            slot.tile.tma_load(a, [ctaid.x * 64, 0]);
            slot.commit();
        }}
        let slot = ring.wait();
        #[unroll]
        for i in 0..{columns} {{
            result[[tid, i]] = slot.tile[[tid, i]] + 1.0;
        }}
        slot.release();
        cta_sync();
        #[elect_one]
        {{
            tma::store(out, [ctaid.x * 64, 0], result);
            bulk::commit();
            bulk::wait_read::<0>();
        }}
    }}
}}"
        );
        let mut random = Random::new(span);
        let rows = 64 + random.below(64) as usize;
        let a: Vec<f32> = (0..rows * columns).map(|_| random.below(1000) as f32).collect();
        let mut run = Run::new(&source);
        let shape = [rows as u64, columns as u64];
        run.map("a", &a, &shape).map("out", &vec![-1.0f32; rows * columns], &shape).launch_everywhere(2);
        let expected: Vec<f32> = a.iter().map(|x| x + 1.0).collect();
        assert_eq!(run.read::<f32>("out"), expected, "swizzle {span}, {rows} rows");
    }
}

/// Elements and vectors of a tile at runtime and constant places, against plain arithmetic; guarded ones too.
#[test]
fn elements_of_tiles() {
    for (span, rows, columns) in [(128, 32, 64), (128, 16, 32), (128, 32, 16), (64, 64, 16), (32, 32, 8), (0, 16, 12)] {
        let source = format!(
            "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 32, grid = 1)]
    fn k(#[dims({rows}, {columns})] x: Global<u32>, #[dims(3, {rows}, {columns})] y: GlobalMut<u32>) {{
        let t = smem::<u32, Shape<{rows}, {columns}>, Swizzle<{span}>>();
        for i in (lane..{rows} * {columns} / 4).step_by(32) {{
            let (row, column) = (4 * i / {columns}, 4 * i % {columns});
            t.at([row, column]).store_v(x.at([row, column]).load_v::<4>());
        }}
        cta_sync();
        for i in (lane..{rows} * {columns}).step_by(32) {{
            y.at([0, i / {columns}, i % {columns}]).store(t[[i / {columns}, i % {columns}]]);
        }}
        #[unroll]
        for column in 0..{columns} / 2 {{
            let row = lane % {rows};
            y.at([1, row, 2 * column]).store_v(t.at([row, 2 * column]).load_v::<2>());
        }}
        cta_sync();
        #[unroll]
        for column in 0..{columns} / 2 {{
            t.at([lane % {rows}, 2 * column]).store_if(lane % 2 == 0 && lane < {rows}, 7);
        }}
        cta_sync();
        #[unroll]
        for row in 0..{rows} {{
            if lane < {columns} {{
                y.at([2, row, lane % {columns}]).store(t.at([row, lane % {columns}]).load_if(row != 3));
            }}
        }}
    }}
}}"
        );
        let size = rows * columns;
        let x: Vec<u32> = (0..size as u32).map(|i| i + 100).collect();
        let mut run = Run::new(&source);
        run.tensor("x", &x).tensor("y", &vec![0u32; 3 * size]).launch_everywhere(1);
        let got = run.read::<u32>("y");
        assert_eq!(got[..size], x, "swizzle {span} [{rows}, {columns}]");
        for row in 0..rows {
            for column in 0..columns {
                let place = row * columns + column;
                if row < 32 {
                    assert_eq!(got[size + place], x[place], "vectors, swizzle {span}, {row}, {column}");
                }
                if column < 32 && row < 32 {
                    let stored = row % 2 == 0 && column % 2 == 0;
                    let wanted = if row == 3 {
                        0
                    } else if stored {
                        7
                    } else {
                        x[place]
                    };
                    assert_eq!(got[2 * size + place], wanted, "guarded, swizzle {span}, {row}, {column}");
                }
            }
        }
    }
    for (body, code) in [
        ("let a = t[[32, 0]];", 154),
        ("let a = t[[0, 64]];", 154),
        ("let a = t[[0]];", 452),
        ("let a = t.at([0, 0..4]);", 455),
        ("let a = t.at([0, 2]).load_v::<4>();", 450),
        ("let a = t.at([lane, lane]).load_v::<2>();", 450),
        ("let a = t.at([0, 0]).load_v::<8>();", 451),
        ("let a = t.at([0.5, 0]).load();", 156),
    ] {
        let source = format!(
            "#[kernels(arch = sm_90a)] mod family {{ #[kernel(block = 32, grid = 1)] fn k() {{
                 let t = smem::<f32, Shape<32, 64>, Swizzle<128>>(); {body} }} }}"
        );
        assert_eq!(error_of(&source), code, "{body}");
    }
}

/// Maps of one to five axes: boxes inside the tensor, across its end and outside; stored back to another tensor, and added.
#[test]
fn maps_of_every_rank() {
    let tiles: [&[usize]; 5] = [&[32], &[4, 32], &[4, 2, 32], &[2, 3, 2, 32], &[2, 1, 3, 2, 32]];
    let sizes: [&[usize]; 5] = [&[80], &[10, 40], &[7, 3, 36], &[3, 5, 4, 40], &[3, 4, 4, 3, 36]];
    let firsts: [&[usize]; 5] = [&[60], &[8, 4], &[5, 2, 8], &[2, 3, 3, 20], &[2, 3, 2, 2, 32]];
    for rank in 1..=5 {
        let (tile, size, first) = (tiles[rank - 1], sizes[rank - 1], firsts[rank - 1]);
        let list = |numbers: &[usize]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let shape = format!("Shape<{}>", list(tile));
        let rows: usize = tile[..rank - 1].iter().product();
        let source = format!(
            "#[kernels(arch = sm_90a)]
mod family {{
    #[kernel(block = 32, grid = 1)]
    fn k(
        #[dims({dims})] a: TensorMap<f32, {shape}, Swizzle<128>>,
        #[dims({dims})] b: TensorMapMut<f32, {shape}, Swizzle<128>>,
        #[dims({dims})] sum: TensorMapMut<f32, {shape}, Swizzle<128>>,
        #[dims({rows}, 32)] seen: GlobalMut<f32>,
    ) {{
        let ring = Pipeline::cta {{ t: smem::<f32, {shape}, Swizzle<128>>() }};
        #[elect_one]
        {{
            let slot = ring.acquire();
            slot.t.tma_load(a, [{at}]);
            slot.commit();
        }}
        let slot = ring.wait();
        for row in 0..{rows} {{
            seen.at([row, lane]).store(slot.t[[row, lane]]);
        }}
        cta_sync();
        #[elect_one]
        {{
            tma::store(b, [{at}], slot.t);
            tma::reduce_add(sum, [{at}], slot.t);
            bulk::commit();
            bulk::wait_read::<0>();
        }}
        slot.release();
    }}
}}",
            dims = list(size),
            at = list(first),
        );
        let count: usize = size.iter().product();
        let mut random = Random::new(rank as u64);
        let mut draw = || -> Vec<f32> { (0..count).map(|_| random.below(100) as f32 + 1.0).collect() };
        let (a, sum) = (draw(), draw());
        let dims: Vec<u64> = size.iter().map(|n| *n as u64).collect();
        let mut run = Run::new(&source);
        run.map("a", &a, &dims).map("b", &vec![-1.0f32; count], &dims).map("sum", &sum, &dims);
        run.tensor("seen", &vec![-1.0f32; rows * 32]).launch_everywhere(1);
        let (seen, b, total) = (run.read::<f32>("seen"), run.read::<f32>("b"), run.read::<f32>("sum"));
        let (mut wanted_b, mut wanted_sum) = (vec![-1.0f32; count], sum);
        for (place, seen) in seen.iter().enumerate() {
            // The element's coordinates, innermost last, and its place in the tensor.
            let (mut rest, mut at, mut stride, mut inside) = (place, 0, 1, true);
            for axis in (0..rank).rev() {
                let coordinate = first[axis] + rest % tile[axis];
                rest /= tile[axis];
                inside &= coordinate < size[axis];
                at += coordinate * stride;
                stride *= size[axis];
            }
            assert_eq!(*seen, if inside { a[at] } else { 0.0 }, "{rank} axes, element {place}");
            if inside {
                wanted_b[at] = a[at];
                wanted_sum[at] += a[at];
            }
        }
        assert_eq!(b, wanted_b, "{rank} axes, stored");
        assert_eq!(total, wanted_sum, "{rank} axes, added");
    }
}

/// A tensor that is written as whole tiles, and row by row where a tile is cut: two parameters of the same memory.
#[test]
fn a_cut_tile_goes_row_by_row() {
    let source = "#[kernels(arch = sm_90a)]
mod family {
    #[kernel(block = 64, grid = 1)]
    fn k(
        #[dims(m, 16)] out: TensorMapMut<f32, Shape<64, 16>, Swizzle<64>>,
        #[dims(m, 16)] rows: GlobalMut<f32>,
        n: u32,
    ) {
        let tile = smem::<f32, Shape<64, 16>, Swizzle<64>>();
        for first in (0..n).step_by(64) {
            #[unroll]
            for i in 0..16 {
                tile[[tid, i]] = (16 * (first + tid) + i) as f32;
            }
            cta_sync();
            if first + 64 <= n {
                #[elect_one]
                {
                    tma::store(out, [first, 0], tile);
                    bulk::commit();
                    bulk::wait::<0>();
                }
            } else {
                for i in (tid..(n - first) * 4).step_by(64) {
                    rows.at([first + i / 4, 4 * (i % 4)]).store_v(tile.at([i / 4, 4 * (i % 4)]).load_v::<4>());
                }
            }
            cta_sync();
        }
    }
}";
    for n in [64, 65, 100, 128, 190] {
        let mut run = Run::new(source);
        run.map("out", &[-1.0f32; 200 * 16], &[200, 16]).same("rows", "out").set("m", 200u32).set("n", n as u32);
        let got = run.launch_everywhere(1).read::<f32>("out");
        for (at, got) in got.iter().enumerate() {
            assert_eq!(*got, if at < 16 * n { at as f32 } else { -1.0 }, "{n} rows, element {at}");
        }
    }
}
