//! Halves of a state in accumulators: 64 rows of K each, and N columns of V.

/// A lane has two rows of each 16 that its warp has. An image has the order of a warpgroup's registers.
#[kda_dsl::device_lib]
pub mod halves {
    /// Multiplies the two rows of a lane by their factors.
    fn scale<const N: u32>(s: &mut Acc<f32, 64, N>, factors: [f32; 2]) {
        let pairs = s.fragment().pairs();
        let scaled = from_fn::<{ N / 4 }>(|j| pairs[j] * [factors[j / (N / 8)], factors[j / (N / 8)]]);
        s = Acc::of(Frag::<f32, 16, N>::from_pairs(scaled));
    }

    /// Rounds the half whose rows begin at FROM to its part of h.
    fn round_to<const V_FIRST: bool, const FROM: u32, const N: u32>(s: Acc<f32, 64, N>, h: Tile<bf16, _>) {
        if const { V_FIRST } {
            s.store_t(h.columns(FROM..FROM + 64));
        } else {
            s.store(h.rows(FROM..FROM + 64));
        }
    }

    /// Stores a half, rounded, and what that leaves over.
    fn split_to<const N: u32>(s: Acc<f32, 64, N>, rounded: Tile<bf16, _>, left_over: Tile<bf16, _>) {
        let (leading, rest) = s.split_a::<bf16>();
        leading.store(rounded);
        rest.store(left_over);
    }

    /// A half, from its image.
    fn load_image<const N: u32>(image: Global<f32>) -> Frag<f32, 16, N> {
        Frag::<f32, 16, N>::from_pairs(from_fn::<{ N / 4 }>(|i| image.at([256 * i + 2 * tid]).load_v::<2>()))
    }

    /// Writes the image of a half.
    fn store_image<const N: u32>(image: GlobalMut<f32>, s: Acc<f32, 64, N>) {
        let pairs = s.fragment().pairs();
        #[unroll]
        for i in 0..N / 4 {
            image.at([256 * i + 2 * tid]).store_v(pairs[i]);
        }
    }
}
