//! Tensor maps: what the bulk tensor copies of a kernel need to know about a tensor.
//!
//! The kernel fixes element type, box and swizzle ([`TensorMapParam`]); the launch adds address, sizes and strides
//! ([`TensorMapArg`]). An executor turns the argument into the 128 bytes that its device reads: the CUDA driver's own
//! encoding, or [`TensorMapArg::encode`] for the simulator.

use crate::Elem;
use crate::desc::DimDesc;
use crate::launch::TensorArg;

/// Bytes of a tensor map in the parameter block.
pub const MAP_BYTES: u32 = 128;
/// Alignment of a tensor map in the parameter block.
pub const MAP_ALIGN: u32 = 64;
/// Highest rank of a tensor map.
pub const MAX_MAP_RANK: usize = 5;

/// Permutation of 16-byte chunks in shared memory: chunk c of row r goes to c ^ (r mod span/16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// None: rows of the box lie one after another.
    #[default]
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl Swizzle {
    /// The swizzle whose span is that many bytes; 0 is none.
    pub const fn of_span(bytes: u32) -> Option<Swizzle> {
        match bytes {
            0 => Some(Swizzle::None),
            32 => Some(Swizzle::B32),
            64 => Some(Swizzle::B64),
            128 => Some(Swizzle::B128),
            _ => None,
        }
    }

    /// Span in bytes: the most that a row of the box may have; `None` without a swizzle.
    pub const fn span(self) -> Option<u32> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }

    /// Where the byte at `offset` of an unswizzled box lies. The box starts at a multiple of 1024 bytes.
    pub const fn place(self, offset: u32) -> u32 {
        // The bits of the row that enter are those right above the span, at 128 bytes a step of the pattern.
        match self {
            Swizzle::None => offset,
            Swizzle::B32 => offset ^ ((offset >> 3) & 0x10),
            Swizzle::B64 => offset ^ ((offset >> 3) & 0x30),
            Swizzle::B128 => offset ^ ((offset >> 3) & 0x70),
        }
    }
}

/// A tensor-map parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorMapParam {
    /// Element type.
    pub elem: Elem,
    /// True if the kernel stores or reduces through the map.
    pub writes: bool,
    /// True if it may be absent: the bytes of its map are then zero, and the kernel copies nothing through it.
    pub optional: bool,
    /// True if it is not written by a kernel that may still run when this one starts.
    pub stable: bool,
    /// Shape and strides of the tensor, outermost first. The innermost stride is 1.
    pub dims: &'static [DimDesc],
    /// Elements of a box, outermost first; 1 to 256 each.
    pub tile: &'static [u32],
    /// Swizzle of the box in shared memory.
    pub swizzle: Swizzle,
}

/// A tensor map of a launch: the parameter, the tensor, and where the map lies in the parameter block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorMapArg {
    /// The kernel's side.
    pub param: TensorMapParam,
    /// The tensor.
    pub tensor: TensorArg,
    /// Byte offset of the map in the parameter block.
    pub offset: u32,
}

/// A map as the simulator reads it from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedMap {
    /// Address of element 0.
    pub ptr: u64,
    /// Number of axes.
    pub rank: usize,
    /// Sizes, innermost first.
    pub sizes: [u64; MAX_MAP_RANK],
    /// Strides in bytes, innermost first; the first is the element's size.
    pub strides: [u64; MAX_MAP_RANK],
    /// Elements of a box, innermost first.
    pub tile: [u32; MAX_MAP_RANK],
    /// Bytes of an element.
    pub elem_bytes: u32,
    /// True for f32 and the other types that a reduction adds as floats.
    pub elem: Elem,
    /// Swizzle.
    pub swizzle: Swizzle,
}

const MAGIC: [u8; 4] = *b"kmap";

impl TensorMapArg {
    /// The map in the simulator's encoding: magic, rank, element, swizzle, address, sizes, strides, box; little-endian.
    pub fn encode(&self) -> [u8; MAP_BYTES as usize] {
        let mut out = [0u8; MAP_BYTES as usize];
        let rank = self.param.tile.len().min(MAX_MAP_RANK);
        out[..4].copy_from_slice(&MAGIC);
        out[4] = rank as u8;
        out[5] = Elem::ALL.iter().position(|e| *e == self.param.elem).unwrap_or(0) as u8;
        out[6] = self.param.swizzle.span().unwrap_or(0) as u8;
        out[8..16].copy_from_slice(&self.tensor.ptr.to_le_bytes());
        let bytes = u64::from(self.param.elem.bytes());
        for axis in 0..rank {
            let outer = rank - 1 - axis;
            let size = self.tensor.shape()[outer];
            // Sizes run from 1 to 2^32.
            out[16 + 4 * axis..20 + 4 * axis].copy_from_slice(&((size - 1) as u32).to_le_bytes());
            let stride = match (axis, size) {
                (0, _) => bytes,
                // An axis that is never stepped along has any stride; its pitch is the least that a map can have.
                (_, 1) => 16,
                _ => self.tensor.strides()[outer] * bytes,
            };
            out[40 + 8 * axis..48 + 8 * axis].copy_from_slice(&stride.to_le_bytes());
            out[80 + 2 * axis..82 + 2 * axis].copy_from_slice(&(self.param.tile[outer] as u16).to_le_bytes());
        }
        out
    }
}

impl DecodedMap {
    /// Reads a map in the simulator's encoding; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<DecodedMap> {
        if bytes.len() < MAP_BYTES as usize || bytes[..4] != MAGIC {
            return None;
        }
        let rank = bytes[4] as usize;
        let elem = *Elem::ALL.get(bytes[5] as usize)?;
        let swizzle = Swizzle::of_span(bytes[6].into())?;
        if !(1..=MAX_MAP_RANK).contains(&rank) {
            return None;
        }
        let word = |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
        let mut map = DecodedMap {
            ptr: word(8, 8),
            rank,
            sizes: [1; MAX_MAP_RANK],
            strides: [0; MAX_MAP_RANK],
            tile: [1; MAX_MAP_RANK],
            elem_bytes: elem.bytes(),
            elem,
            swizzle,
        };
        for axis in 0..rank {
            map.sizes[axis] = word(16 + 4 * axis, 4) + 1;
            map.strides[axis] = word(40 + 8 * axis, 8);
            map.tile[axis] = word(80 + 2 * axis, 2) as u32;
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expr;
    use crate::desc::StrideDesc;

    #[test]
    fn swizzles_permute_chunks_of_a_row() {
        for (swizzle, span) in [(Swizzle::B128, 128), (Swizzle::B64, 64), (Swizzle::B32, 32)] {
            let mut places: Vec<u32> = (0..1024).map(|byte| swizzle.place(byte)).collect();
            assert!(places.iter().enumerate().all(|(byte, place)| *place / span == byte as u32 / span));
            places.sort_unstable();
            assert_eq!(places, (0..1024).collect::<Vec<_>>());
        }
        // Row 3, chunk 5 of a 128-byte row.
        assert_eq!(Swizzle::B128.place(3 * 128 + 5 * 16), 3 * 128 + (5 ^ 3) * 16);
        // The 64-byte pattern steps every 128 bytes: row 2 of 64 bytes is the first that moves.
        assert_eq!(Swizzle::B64.place(64), 64);
        assert_eq!(Swizzle::B64.place(128), 128 + 16);
    }

    #[test]
    fn maps_round_trip() {
        const DIM: DimDesc = DimDesc { size: Expr::Int(0), stride: StrideDesc::Const(1) };
        let param = TensorMapParam {
            elem: Elem::BF16,
            writes: false,
            optional: false,
            stable: false,
            dims: &[DIM, DIM],
            tile: &[128, 64],
            swizzle: Swizzle::B128,
        };
        let tensor = TensorArg::strided(0x7f00_0000_1000, 1 << 20, Elem::BF16, &[300, 200], &[256, 1]).unwrap();
        let map = DecodedMap::decode(&TensorMapArg { param, tensor, offset: 0 }.encode()).unwrap();
        assert_eq!((map.ptr, map.rank, map.elem), (0x7f00_0000_1000, 2, Elem::BF16));
        assert_eq!(
            (&map.sizes[..2], &map.strides[..2], &map.tile[..2]),
            (&[200, 300][..], &[2, 512][..], &[64, 128][..])
        );
        assert_eq!(map.swizzle, Swizzle::B128);
        assert_eq!(DecodedMap::decode(&[0; 128]), None);
        // One row, or one of anything but the innermost axis: its stride does not matter.
        for stride in [0, 31, 200, u64::MAX] {
            let row = TensorArg::strided(0x7f00_0000_1000, 1 << 20, Elem::BF16, &[1, 200], &[stride, 1]).unwrap();
            let map = DecodedMap::decode(&TensorMapArg { param, tensor: row, offset: 0 }.encode()).unwrap();
            assert_eq!((&map.sizes[..2], &map.strides[..2]), (&[200, 1][..], &[2, 16][..]), "{stride}");
        }
    }
}
