//! Tensor copies: tiles in and out by tensor map, under every schedule.

use super::harness::{Random, Run};

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
