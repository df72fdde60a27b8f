//! The two fixed reduction trees of the contract, so that bits depend neither on the variant nor on the batch.
//!
//! ```text
//! sums over K:      32 groups of 4 consecutive channels (fma in order), combined by strides 8, 16, 1, 2, 4
//! sums of squares:  one channel a lane, strides 16, 8, 4, 2, 1 in a warp of 32, then the four warps in order
//! ```
//! A butterfly gives every lane the same bits, because fp32 addition commutes; the trees below compute lane 0.

/// Strides that combine the groups of a sum over K.
pub const GROUP_STRIDES: [usize; 5] = [8, 16, 1, 2, 4];
/// Strides of a butterfly inside a warp for a sum of squares.
pub const WARP_STRIDES: [usize; 5] = [16, 8, 4, 2, 1];

/// Visits the additions `x[i] += x[i + stride]` of a butterfly over 32 lanes that lane 0 depends on, in order.
pub fn butterfly(strides: [usize; 5], mut add: impl FnMut(usize, usize)) {
    let mut folded = 0;
    for stride in strides {
        folded |= stride;
        for lane in (0..32).filter(|lane| lane & folded == 0) {
            add(lane, lane | stride);
        }
    }
}

/// Sum of 128 squares: butterfly in each of four warps, then the warps in order.
pub fn norm_sum(squares: &[f32; 128]) -> f32 {
    let warp_sum = |warp: &[f32]| {
        let mut lanes = [0.0f32; 32];
        lanes.copy_from_slice(warp);
        butterfly(WARP_STRIDES, |to, from| lanes[to] += lanes[from]);
        lanes[0]
    };
    let warps: Vec<f32> = squares.chunks_exact(32).map(warp_sum).collect();
    ((warps[0] + warps[1]) + warps[2]) + warps[3]
}

/// The dot product over K with the contract's tree.
pub fn dot(a: &[f32; 128], b: &[f32; 128]) -> f32 {
    let mut groups = [0.0f32; 32];
    for (group, sum) in groups.iter_mut().enumerate() {
        let first = 4 * group;
        *sum = a[first] * b[first];
        for k in first + 1..first + 4 {
            *sum = a[k].mul_add(b[k], *sum);
        }
    }
    butterfly(GROUP_STRIDES, |to, from| groups[to] += groups[from]);
    groups[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_enters_once() {
        for strides in [GROUP_STRIDES, WARP_STRIDES] {
            let mut count = [1u32; 32];
            butterfly(strides, |to, from| count[to] += count[from]);
            assert_eq!(count[0], 32);
        }
    }

    #[test]
    fn equals_a_real_butterfly_in_every_lane() {
        let values: [f32; 32] = std::array::from_fn(|i| 1.0 / (1.0 + i as f32) - 0.1 * i as f32);
        for strides in [GROUP_STRIDES, WARP_STRIDES] {
            let mut lanes = values;
            for stride in strides {
                lanes = std::array::from_fn(|lane| lanes[lane] + lanes[lane ^ stride]);
            }
            let mut tree = values;
            butterfly(strides, |to, from| tree[to] += tree[from]);
            assert!(lanes.iter().all(|lane| lane.to_bits() == tree[0].to_bits()));
        }
    }

    #[test]
    fn the_order_is_visible() {
        // 2^24 + 1 loses the 1 in fp32. Group 0 meets group 8 first, so their 2^24 cancel before group 1 arrives.
        let (mut a, b) = ([0.0f32; 128], [1.0f32; 128]);
        (a[0], a[32], a[4]) = (16_777_216.0, -16_777_216.0, 1.0);
        assert_eq!(dot(&a, &b), 1.0);
        (a[32], a[8]) = (0.0, -16_777_216.0);
        // Group 1 joins group 0 at stride 1, before group 2 does at stride 2: the 1 is lost.
        assert_eq!(dot(&a, &b), 0.0);
    }
}
