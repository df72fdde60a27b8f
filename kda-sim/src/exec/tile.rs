//! Operands of products in shared memory: descriptors, and reading the matrices that they describe.

use super::access::Target;
use super::asynchronous::Accessor;
use super::fault::Fault;
use super::{Machine, Outcome, SHARED_BASE, SHARED_BITS};
use crate::alu::matrix::{bf16, f16, tf32_to_f32};
use crate::program::details::MatrixType;
use crate::program::op::MemSpace;
use crate::report::Code;
use kda_core::tensor_map::Swizzle;

/// What a matrix descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Shared address, without the rank of the CTA.
    pub start: u32,
    /// Leading and stride byte offsets.
    pub leading: u32,
    pub stride: u32,
    pub swizzle: Swizzle,
}

impl Descriptor {
    fn parts(bits: u64) -> [u32; 3] {
        [0, 16, 32].map(|shift| ((bits >> shift) as u32 & 0x3fff) << 4)
    }

    /// A descriptor of `wgmma`; an error says what is not modelled.
    pub fn hopper(bits: u64) -> Result<Descriptor, String> {
        let [start, leading, stride] = Descriptor::parts(bits);
        if bits >> 49 & 7 != 0 {
            return Err(format!("base offset {}", bits >> 49 & 7));
        }
        let rest = bits & !0xc000_3fff_3fff_3fff;
        if rest != 0 {
            return Err(format!("bits {rest:#x} of the descriptor {bits:#018x}, which are none of its fields"));
        }
        let swizzle = [Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32][(bits >> 62) as usize];
        Ok(Descriptor { start, leading, stride, swizzle })
    }

    /// A descriptor of `tcgen05`; an error says what is not modelled.
    pub fn blackwell(bits: u64) -> Result<Descriptor, String> {
        let [start, leading, stride] = Descriptor::parts(bits);
        if bits >> 46 & 7 != 1 {
            return Err(format!("bits 46 to 48 of the descriptor {bits:#018x}, which must be 0b001"));
        }
        let rest = bits & !0xe001_ffff_3fff_3fff;
        if rest != 0 {
            return Err(format!("base offset or absolute leading dimension in the descriptor {bits:#018x}"));
        }
        let swizzle = match bits >> 61 {
            0 => Swizzle::None,
            2 => Swizzle::B128,
            4 => Swizzle::B64,
            6 => Swizzle::B32,
            other => return Err(format!("swizzle mode {other}")),
        };
        Ok(Descriptor { start, leading, stride, swizzle })
    }

    /// Shared address of the 16 bytes from an element on, `along` the direction in which elements lie side by side and
    /// `across` the other; `along` in chunks of 16 bytes. Side by side are the elements of a row of K, or of a column of M or
    /// N where `transposed`.
    fn chunk(&self, along: u32, across: u32, transposed: bool) -> u32 {
        let (inner, outer) = (across % 8, across / 8);
        let plain = match (self.swizzle.span(), transposed) {
            (None, false) => outer * self.stride + inner * 16 + along * self.leading,
            (None, true) => outer * self.leading + inner * 16 + along * self.stride,
            (Some(span), false) => outer * self.stride + inner * span + along * 16,
            (Some(span), true) => {
                let chunks = span / 16;
                outer * self.stride + inner * span + along / chunks * self.leading + along % chunks * 16
            }
        };
        // The pattern is one of addresses; a descriptor's have 18 bits.
        self.swizzle.place((self.start + plain) & 0x3_ffff)
    }
}

impl Machine<'_> {
    /// Reads a matrix `[rows, k]` of a CTA's shared memory, as `[k, rows]` if `by_columns`.
    pub(super) fn read_matrix(
        &mut self,
        who: &Accessor,
        cta: usize,
        descriptor: Descriptor,
        (rows, k): (usize, usize),
        ty: MatrixType,
        transposed: bool,
        negated: bool,
        by_columns: bool,
    ) -> Outcome<Vec<f32>> {
        let size = ty.bytes() as usize;
        let per_chunk = 16 / size;
        let (along, across) = if transposed { (rows, k) } else { (k, rows) };
        let mut out = vec![0f32; rows * k];
        for a in 0..across {
            for c in 0..along / per_chunk {
                let address = descriptor.chunk(c as u32, a as u32, transposed);
                let offset = address.wrapping_sub(SHARED_BASE) as usize;
                let full = u64::from(address | self.ctas[cta].rank << SHARED_BITS);
                if address < SHARED_BASE || offset + 16 > self.launch.shared_bytes as usize {
                    let fault = Fault::Bounds { address: full, bytes: 16, space: MemSpace::Shared };
                    return Err(self.fault(who.warp, who.pc, u32::MAX, fault));
                }
                self.async_access(who, &Target::Shared { cta }, full, offset, 16, false)?;
                let block = &self.ctas[cta].shared;
                if self.options.checks.undefined && !block.is_defined(offset, 16) {
                    let how = format!("at shared offset {offset} is an operand of a product");
                    return Err(self.undefined(who.warp, who.pc, u32::MAX, &how));
                }
                for (e, bytes) in block.data[offset..offset + 16].chunks_exact(size).enumerate() {
                    let bits = bytes.iter().rev().fold(0u32, |v, b| v << 8 | u32::from(*b));
                    let value = value(ty, bits);
                    let value = if negated { -value } else { value };
                    let (row, depth) = if transposed { (c * per_chunk + e, a) } else { (a, c * per_chunk + e) };
                    out[if by_columns { depth * rows + row } else { row * k + depth }] = value;
                }
            }
        }
        Ok(out)
    }

    /// A descriptor that is not modelled.
    pub(super) fn descriptor_error(&self, w: usize, pc: u32, what: String) -> Box<crate::report::Report> {
        let help = "let every pattern start at a multiple of its length (base offset 0), and use the swizzles of the tensor maps";
        let message = format!("the product's descriptor has {what}");
        self.report_at(w, pc, u32::MAX, Code::Product, message, "product", help)
    }
}

/// An operand's value.
#[inline(always)]
pub fn value(ty: MatrixType, bits: u32) -> f32 {
    match ty {
        MatrixType::Bf16 => bf16(bits),
        MatrixType::F16 => f16(bits),
        MatrixType::Tf32 => tf32_to_f32(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_the_fields_of_the_manual() {
        // Start 0x1400, a stride of 1024 bytes, swizzle of 128 bytes.
        let d = Descriptor::hopper(0x4000_0040_0001_0000 | 0x1400 >> 4).unwrap();
        let expected = Descriptor { start: 0x1400, leading: 16, stride: 1024, swizzle: Swizzle::B128 };
        assert_eq!(d, expected);
        assert_eq!(Descriptor::blackwell(0x4000_4040_0001_0000 | 0x1400 >> 4).unwrap(), expected);
        assert!(Descriptor::hopper(0x4002_0040_0001_0000).is_err());
        assert!(Descriptor::blackwell(0x4000_0040_0001_0000).is_err());
        // Row 3, second chunk of a K-major tile: chunk 1 ^ 3.
        assert_eq!(d.chunk(1, 3, false), 0x1400 + 3 * 128 + (1 ^ 3) * 16);
        // A start that is 32 bytes inside the atom.
        let inside = Descriptor { start: 0x1420, ..d };
        assert_eq!(inside.chunk(0, 3, false), 0x1400 + 3 * 128 + 16);
        // Column 64 of a transposed tile begins the next box.
        let d = Descriptor::hopper(0x4000_0040_0400_0000 | 0x1400 >> 4).unwrap();
        assert_eq!(d.chunk(8, 9, true), 0x1400 + 16384 + 1024 + 128 + 16);
    }
}
