//! Elementwise fp32 loops over contiguous channels: `acc[i] = fma(a, x[i], acc[i])` and scaling.
//!
//! The results are the same bits on every machine, because a fused multiply-add has one correct result. Where the CPU
//! has the instruction, the loop is compiled to it; elsewhere the standard library computes it, slowly.

#[inline(always)]
fn fma_loop(acc: &mut [f32], a: f32, x: &[f32]) {
    for (acc, x) in acc.iter_mut().zip(x) {
        *acc = a.mul_add(*x, *acc);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma_loop_avx2(acc: &mut [f32], a: f32, x: &[f32]) {
    fma_loop(acc, a, x);
}

/// `acc[i] = fma(a, x[i], acc[i])` for the common length of the two slices.
pub fn fma(acc: &mut [f32], a: f32, x: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has both features that the function is compiled for.
        unsafe { fma_loop_avx2(acc, a, x) };
        return;
    }
    fma_loop(acc, a, x);
}

/// `out[i] = a * x[i]`.
pub fn multiply(out: &mut [f32], a: f32, x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = a * x;
    }
}

/// `acc[i] += x[i]`.
pub fn add(acc: &mut [f32], x: &[f32]) {
    for (acc, x) in acc.iter_mut().zip(x) {
        *acc += x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn both_paths_give_the_same_bits() {
        let mut rng = Rng::new(7);
        let x: Vec<f32> = (0..131).map(|_| rng.normal() as f32).collect();
        let start: Vec<f32> = (0..131).map(|_| rng.normal() as f32).collect();
        let (mut fast, mut slow) = (start.clone(), start);
        fma(&mut fast, 0.37, &x);
        fma_loop(&mut slow, 0.37, &x);
        assert!(fast.iter().zip(&slow).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
