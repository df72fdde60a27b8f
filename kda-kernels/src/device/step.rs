//! What a token of KDA takes in every kernel that applies it: inputs as a pool holds them, decays, norms, live indices.

/// Shared by `conv_verify` and `decode`, so that a verify of T tokens gives the bits of T decodes.
#[kda_dsl::device_lib]
pub mod step {
    const EPSILON: f32 = 1e-6;

    /// Whether an entry of a pool of this length may be touched; `null` and everything below it is nobody's.
    fn is_live(index: i32, null: i32, length: u32) -> bool {
        null < index && index < length as i32
    }

    /// exp(g) of the gate's input `z`: bounded, or softplus. Finite for every `z`, infinities included.
    fn decay(bounded: bool, lower_bound: f32, a_log: f32, z: f32) -> f32 {
        let g =
            if bounded { lower_bound * math::sigmoid(math::rate(a_log) * z) } else { -math::scaled_softplus(a_log, z) };
        math::exp(g)
    }

    /// 1 / |y|, from the sums of y^2 of four warps.
    fn inverse_norm(squares: [f32; 4]) -> f32 {
        rsqrt_approx(((squares[0] + squares[1]) + squares[2]) + squares[3] + EPSILON)
    }

    /// The four taps whose bits two words hold.
    fn unpack(words: [u32; 2]) -> [f32; 4] {
        from_fn::<4>(|j| {
            f32::from_bits(if const { j % 2 == 0 } { words[j / 2] << 16 } else { words[j / 2] & 0xffff0000 })
        })
    }

    /// An input as a convolution pool holds it: raw inputs and histories are never rounded.
    fn as_pool<POOL: Elem>(x: f32) -> POOL {
        if const { size_of::<POOL>() == 4 } { x } else { bf16::from_bits((x.to_bits() >> 16) as u16) }
    }
}
