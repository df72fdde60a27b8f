//! Kernels of clusters from macro to launch: in the simulator, and on a device where there is one. With `KDA_REQUIRE_CUDA` set
//! a device must be there.

mod common;

use kda::checks::Device;
use kda::core::exec::Stream;
use kda::core::{Elem, LaunchError};
use kda::reference::rng::Rng;
use kda::runtime::executor::sim::SimExecutor;
use kda::runtime::{DeviceBuffer, Guarding};

#[kda_dsl::kernels(arch = sm_90a)]
mod clusters {
    /// Each CTA adds the next one's row, mirrored.
    #[kernel(block = 64, grid = rows, cluster = C)]
    #[variants(C in [2, 4, 8])]
    fn add_next<const C: u32>(#[dims(rows, 64)] x: Global<f32>, #[dims(rows, 64)] y: GlobalMut<f32>) {
        let row = smem::<f32, Shape<64>>();
        row[[tid]] = x[[ctaid.x, tid]];
        cluster_sync();
        let next = row.remote((cluster_rank + 1) % cluster_size);
        y.at([ctaid.x, tid]).store(row[[tid]] + next[[63 - tid]]);
    }

    /// C = A · Bᵀ; the CTAs of a cluster lie side by side and load their rows of A once.
    #[kernel(block = 160, grid = [n / 64, m / 64], cluster = C, min_blocks_per_sm = 1)]
    #[roles(math = 0..4, load = 4..5)]
    #[variants(C in [1, 2, 4])]
    #[requires(k % 64 == 0, n % 64 == 0, m % 64 == 0, pitch % 2 == 0)]
    fn product<const C: u32>(
        #[dims(m, k)] a: TensorMap<bf16, Shape<{ 64 / C }, 64>, Swizzle<128>>,
        #[dims(n, k)] b: TensorMap<bf16, Shape<64, 64>, Swizzle<128>>,
        #[dims(m:pitch, n)] c: GlobalMut<f32>,
    ) {
        let ab = Pipeline::<load, math> {
            a: smem::<bf16, Shape<64, 64>, Swizzle<128>, 4>(),
            b: smem::<bf16, Shape<64, 64>, Swizzle<128>, 4>(),
        };
        #[role(load)]
        #[elect_one]
        for kb in 0..k / 64 {
            let slot = ab.acquire();
            slot.a.tma_multicast(a, [ctaid.y * 64, kb * 64]);
            slot.b.tma_load(b, [ctaid.x * 64, kb * 64]);
            slot.commit();
        }
        #[role(math)]
        {
            let mut acc = Acc::<f32, 64, 64>::zero();
            for kb in 0..k / 64 {
                let slot = ab.wait();
                #[unroll]
                for i in 0..4 {
                    acc.mma(slot.a.k_slice(16 * i), slot.b.k_slice(16 * i));
                }
                wgmma::commit();
                wgmma::wait::<0>();
                slot.release();
            }
            acc.for_each(|row, column, pair| {
                c.at([ctaid.y * 64 + row, ctaid.x * 64 + column]).store_v(pair);
            });
        }
    }
}

use clusters::{AddNextArgs, AddNextVariant, ProductArgs, ProductVariant};

/// Runs a check in the simulator, and on a device with larger tensors; `size` is 1 there and 4 here.
fn everywhere(check: impl Fn(Device<'_>, u64)) {
    let simulator = SimExecutor::default();
    check(Device { executor: &simulator, guarding: Guarding::BANDS }, 1);
    if let Some((executor, _guard)) = common::device() {
        check(common::on(&executor), 4);
    }
}

#[test]
fn ctas_read_each_other() {
    everywhere(|Device { executor, guarding }, size| {
        for variant in AddNextVariant::ALL {
            let (ctas, rows) = (u64::from(variant.c()), 16 * size);
            let values: Vec<f32> = (0..rows * 64).map(|i| i as f32).collect();
            let x = DeviceBuffer::of(executor, "x", &values, guarding).expect("memory");
            let y = DeviceBuffer::new(executor, "y", 4 * rows * 64, guarding).expect("memory");
            let shape = [rows, 64];
            let args = AddNextArgs {
                x: x.dense(Elem::F32, &shape).expect("a tensor"),
                y: y.dense(Elem::F32, &shape).expect("a tensor"),
            };
            let launch = args.prepare(variant, false).expect("a launch");
            // SAFETY: the buffers outlive the wait.
            unsafe { executor.launch(&launch, Stream::default()) }.expect("a run");
            executor.synchronize(Stream::default()).expect("no fault");
            let at = |row: u64, column: u64| values[(row * 64 + column) as usize];
            for (i, got) in y.download::<f32>().expect("results").into_iter().enumerate() {
                let (row, column) = (i as u64 / 64, i as u64 % 64);
                let next = row / ctas * ctas + (row + 1) % ctas;
                assert_eq!(got, at(row, column) + at(next, 63 - column), "{}, element {i}", variant.desc().entry);
            }
        }
    });
}

#[test]
fn a_cluster_loads_a_tile_together() {
    everywhere(|Device { executor, guarding }, size| {
        for variant in ProductVariant::ALL {
            let (m, n, k) = (64 * size, 256 * size, 64 * 9 * size);
            let mut rng = Rng::new(5);
            // Small integers: every sum is exact.
            let mut draw = |count: u64| -> Vec<half::bf16> {
                let values = rng.normals_bf16(count as usize, 1.0);
                values.into_iter().map(|v| half::bf16::from_f32(v.to_f32().round())).collect()
            };
            let (a, b) = (draw(m * k), draw(n * k));
            let a_buffer = DeviceBuffer::of(executor, "a", &a, guarding).expect("memory");
            let b_buffer = DeviceBuffer::of(executor, "b", &b, guarding).expect("memory");
            let c_buffer = DeviceBuffer::new(executor, "c", 4 * m * n, guarding).expect("memory");
            let args = ProductArgs {
                a: a_buffer.dense(Elem::BF16, &[m, k]).expect("a tensor"),
                b: b_buffer.dense(Elem::BF16, &[n, k]).expect("a tensor"),
                c: c_buffer.dense(Elem::F32, &[m, n]).expect("a tensor"),
            };
            let launch = args.prepare(variant, false).expect("a launch");
            // Again and again: stages are filled by other CTAs while this one still computes.
            for _ in 0..size {
                // SAFETY: the buffers outlive the wait.
                unsafe { executor.launch(&launch, Stream::default()) }.expect("a run");
            }
            executor.synchronize(Stream::default()).expect("no fault");
            let got: Vec<f32> = c_buffer.download().expect("results");
            let wide = |values: &[half::bf16]| values.iter().map(|v| v.to_f32()).collect::<Vec<f32>>();
            let (a, b, k) = (wide(&a), wide(&b), k as usize);
            let sums = a.chunks_exact(k).flat_map(|row| {
                b.chunks_exact(k).map(move |column| row.iter().zip(column).map(|(x, y)| x * y).sum::<f32>())
            });
            for (i, (got, want)) in got.iter().zip(sums).enumerate() {
                assert_eq!(*got, want, "{}, element {i}", variant.desc().entry);
            }
        }
    });
}

#[test]
fn a_grid_that_clusters_do_not_divide_is_refused() {
    let executor = SimExecutor::default();
    let x = DeviceBuffer::new(&executor, "x", 4 * 6 * 64, Guarding::BANDS).expect("memory");
    let tensor = || x.dense(Elem::F32, &[6, 64]).expect("a tensor");
    let args = AddNextArgs { x: tensor(), y: tensor() };
    for variant in AddNextVariant::ALL {
        match (variant.c(), args.prepare(variant, false)) {
            (2, result) => assert!(result.is_ok(), "{result:?}"),
            (_, Err(LaunchError::Requirement { text, .. })) => assert!(text.contains("(rows) % "), "{text}"),
            (_, other) => panic!("{other:?}"),
        }
    }
}
