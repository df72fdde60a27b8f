//! Rows of tensor copies, copies by threads, matrices, products and tensor memory.

use super::decode::Decoded;
use super::details::{Left, MatrixType, Product, TensorCopy, TensorCopyKind, TensorProduct, WarpProduct};
use super::op::{Kind, NONE};
use super::{Decoder, LoadError};
use crate::memory::PARAM_WINDOW;
use kda_ptx::modifier::*;
use kda_ptx::operand::{Address, Base, PredSrc, Reg, Src, TensorAddress, Trailing};
use kda_ptx::table::*;

type Result<T> = std::result::Result<T, LoadError>;

impl Decoder<'_> {
    fn registers(&self, regs: &[Reg]) -> Result<Vec<u16>> {
        regs.iter().map(|r| self.dst(*r, 32)).collect()
    }

    fn register_list(&mut self, regs: &[Reg], needed: usize) -> Result<u32> {
        self.count(regs.len(), needed, "registers")?;
        let list = self.lists.len() as u32;
        let mut regs = self.registers(regs)?;
        self.lists.append(&mut regs);
        Ok(list)
    }

    fn count(&self, found: usize, needed: usize, what: &str) -> Result<()> {
        if found == needed {
            return Ok(());
        }
        Err(self.operand_error(format!("found {found} {what}; the instruction takes {needed}")))
    }

    pub(super) fn small(&self, src: &Src, what: &str, most: i64) -> Result<u32> {
        match src {
            Src::Imm(value) if (0..=most).contains(value) => Ok(*value as u32),
            _ => Err(self.operand_error(format!("{what} must be a constant from 0 to {most}"))),
        }
    }

    fn negation(&self, src: &Src) -> Result<bool> {
        match src {
            Src::Imm(1) => Ok(false),
            Src::Imm(-1) => Ok(true),
            _ => Err(self.operand_error("a negation is the constant 1 or -1")),
        }
    }

    fn scale(&self, pred: &PredSrc) -> Result<(u16, bool)> {
        Ok((self.pred(pred.reg)?, pred.negated))
    }

    fn no_second_group(&self, group: CtaGroup) -> Result<()> {
        if group == CtaGroup::Two { Err(self.unsupported("tcgen05 with .cta_group::2")) } else { Ok(()) }
    }

    fn tensor_copy(
        &mut self,
        kind: TensorCopyKind,
        rank: TensorRank,
        tensor: &TensorAddress,
        shared: &Address,
        barrier: Option<&Address>,
        multicast: Option<u16>,
    ) -> Decoded {
        self.count(tensor.coordinates.len(), rank.axes(), "coordinates")?;
        let map = match &tensor.map {
            Base::Reg(reg) => self.dst(*reg, 64)?,
            Base::Symbol(name) => {
                let offset = self.param(name)?;
                self.constant64(PARAM_WINDOW + u64::from(offset))
            }
        };
        let coordinates = tensor.coordinates.iter().map(|c| self.src(c, 32)).collect::<Result<Vec<_>>>()?;
        let space = if kind == TensorCopyKind::Load { Space::SharedCluster } else { Space::SharedCta };
        let shared = self.address(shared, Some(space))?;
        let barrier = barrier.map(|b| self.address(b, Some(Space::SharedCluster))).transpose()?;
        let detail = self.details.copies.len() as u32;
        self.details.copies.push(TensorCopy { kind, map, coordinates, shared, barrier, multicast });
        self.push(Kind::TensorCopy { detail });
        Ok(())
    }

    pub(super) fn decode_tensor_load(&mut self, i: &TensorLoad) -> Decoded {
        let more = usize::from(i.multicast.0) + usize::from(i.hint.0);
        self.count(i.more.0.len(), more, "operands behind the mbarrier")?;
        let multicast = if i.multicast.0 { Some(self.src(&i.more.0[0], 16)?) } else { None };
        self.tensor_copy(TensorCopyKind::Load, i.rank, &i.src, &i.dst, Some(&i.barrier), multicast)
    }

    pub(super) fn decode_tensor_store(&mut self, i: &TensorStore) -> Decoded {
        self.tensor_copy(TensorCopyKind::Store, i.rank, &i.dst, &i.src, None, None)
    }

    pub(super) fn decode_tensor_reduce(&mut self, i: &TensorReduce) -> Decoded {
        if matches!(i.op, AtomicOp::Exch | AtomicOp::Cas) {
            return Err(self.unsupported("a tensor reduction by exchange"));
        }
        self.tensor_copy(TensorCopyKind::Reduce(i.op), i.rank, &i.dst, &i.src, None, None)
    }

    pub(super) fn decode_bulk_reduce(&mut self, i: &BulkReduce) -> Decoded {
        if (i.op, i.ty) != (AtomicOp::Add, Type::F32) {
            return Err(self.unsupported(&format!("cp.reduce.async.bulk{}{}", i.op.text(), i.ty.text())));
        }
        let dst = self.address(&i.dst, Some(Space::Global))?;
        let src = self.address(&i.src, Some(Space::SharedCta))?;
        let bytes = self.src(&i.bytes, 32)?;
        self.push(Kind::BulkReduce { dst, src, bytes, op: i.op });
        Ok(())
    }

    pub(super) fn decode_prefetch_map(&mut self, i: &PrefetchTensorMap) -> Decoded {
        let Base::Reg(reg) = &i.map.base else {
            let Base::Symbol(name) = &i.map.base else { return Ok(()) };
            self.param(name)?;
            self.push(Kind::Nop);
            return Ok(());
        };
        if i.map.offset != 0 {
            return Err(self.unsupported("prefetch.tensormap with an offset"));
        }
        let map = self.dst(*reg, 64)?;
        self.push(Kind::PrefetchMap { map });
        Ok(())
    }

    pub(super) fn decode_cp_async(&mut self, i: &CpAsync) -> Decoded {
        let bytes = self.small(&i.bytes, "the number of bytes", 16)?;
        let fits = if i.cache == AsyncCache::Cg { bytes == 16 } else { matches!(bytes, 4 | 8 | 16) };
        if !fits {
            return Err(self.operand_error(format!("cp.async of {bytes} bytes; .ca copies 4, 8 or 16, .cg 16")));
        }
        let dst = self.address(&i.dst, Some(Space::Shared))?;
        let src = self.address(&i.src, Some(Space::Global))?;
        let size = i.size.as_ref().map_or(Ok(NONE), |s| self.src(s, 32))?;
        self.push(Kind::ThreadCopy { dst, src, bytes: bytes as u8, size });
        Ok(())
    }

    pub(super) fn decode_mapa(&mut self, i: &Mapa) -> Decoded {
        if i.space != Space::SharedCluster || i.ty != Type::U32 {
            return Err(self.unsupported(&format!("mapa{}{}", i.space.text(), i.ty.text())));
        }
        let f = crate::alu::lanes::lane_fn!(|a: u32, b: u32| (a & 0xff_ffff) | b << 24);
        self.binary(f, [32; 3], i.dst, &i.address, &i.rank, 0)
    }

    pub(super) fn decode_ldmatrix(&mut self, i: &LdMatrix) -> Decoded {
        let list = self.register_list(&i.dst.0, i.count.registers())?;
        let address = self.address(&i.address, Some(i.space))?;
        let count = i.count.registers() as u8;
        self.push(Kind::LoadMatrix { address, list, count, transposed: i.trans.0 });
        Ok(())
    }

    pub(super) fn decode_stmatrix(&mut self, i: &StMatrix) -> Decoded {
        let list = self.register_list(&i.src.0, i.count.registers())?;
        let address = self.address(&i.address, Some(i.space))?;
        let count = i.count.registers() as u8;
        self.push(Kind::StoreMatrix { address, list, count, transposed: i.trans.0 });
        Ok(())
    }

    pub(super) fn decode_movmatrix(&mut self, i: &MovMatrix) -> Decoded {
        let (d, a) = (self.dst(i.dst, 32)?, self.src(&i.src, 32)?);
        self.push(Kind::MoveMatrix { d, a });
        Ok(())
    }

    pub(super) fn decode_mma(&mut self, i: &Mma) -> Decoded {
        use MatrixType::*;
        let (ty, k, [a, b]) = match i.kind {
            MmaKind::Bf16K16 => (Bf16, 16, [4, 2]),
            MmaKind::F16K16 => (F16, 16, [4, 2]),
            MmaKind::Bf16K8 => (Bf16, 8, [2, 1]),
            MmaKind::Tf32K8 => (Tf32, 8, [4, 2]),
            MmaKind::Tf32K4 => (Tf32, 4, [2, 1]),
        };
        self.count(i.d.0.len(), 4, "registers of D")?;
        self.count(i.a.0.len(), a, "registers of A")?;
        self.count(i.b.0.len(), b, "registers of B")?;
        self.count(i.c.0.len(), 4, "registers of C")?;
        let [d, c] = [&i.d.0, &i.c.0].map(|l| self.registers(l));
        let [a, b] = [&i.a.0, &i.b.0].map(|l| self.registers(l));
        let detail = self.details.warp_products.len() as u32;
        self.details.warp_products.push(WarpProduct { ty, k, d: d?, a: a?, b: b?, c: c? });
        self.push(Kind::WarpProduct { detail });
        Ok(())
    }

    pub(super) fn decode_product(
        &mut self,
        (shape, ty, inputs): (WgmmaShape, Type, WgmmaInputs),
        d: &[Reg],
        a: Left,
        b: &Src,
        scale_d: &PredSrc,
        negate: [&Src; 2],
        transpose: &Trailing,
    ) -> Decoded {
        let element = match inputs {
            WgmmaInputs::Bf16 => MatrixType::Bf16,
            WgmmaInputs::F16 => MatrixType::F16,
            WgmmaInputs::Tf32 => MatrixType::Tf32,
        };
        let (n, k) = (usize::from(shape.n), usize::from(shape.k));
        if ty != Type::F32 {
            return Err(self.unsupported(&format!("wgmma with {} accumulators", ty.text())));
        }
        if k as u32 * element.bytes() != 32 {
            return Err(self.operand_error(format!("k = {k}; 16-bit operands have 16, tf32 has 8")));
        }
        self.count(d.len(), n / 2, "accumulators")?;
        let in_registers = matches!(a, Left::Registers(_));
        let needed = match (element, in_registers) {
            (MatrixType::Tf32, _) => 0,
            (_, true) => 1,
            (_, false) => 2,
        };
        self.count(transpose.0.len(), needed, "transpositions")?;
        let mut bits = Vec::new();
        for src in &transpose.0 {
            bits.push(self.small(src, "a transposition", 1)? == 1);
        }
        let transposed = match bits.as_slice() {
            [a, b] => [*a, *b],
            [b] => [false, *b],
            _ => [false, false],
        };
        let d = self.registers(d)?;
        let b = self.src(b, 64)?;
        let scale_d = self.scale(scale_d)?;
        let negate = [self.negation(negate[0])?, self.negation(negate[1])?];
        let detail = self.details.products.len() as u32;
        self.details.product_pcs.push(self.ops.len() as u32);
        self.details.products.push(Product { ty: element, n, k, d, a, b, scale_d, negate, transposed });
        self.push(Kind::Product { detail });
        Ok(())
    }

    pub(super) fn decode_wgmma(&mut self, i: &Wgmma) -> Decoded {
        let a = Left::Descriptor(self.src(&i.a, 64)?);
        let negate = [&i.negate_a, &i.negate_b];
        self.decode_product((i.shape, i.ty, i.inputs), &i.d.0, a, &i.b, &i.scale_d, negate, &i.transpose)
    }

    pub(super) fn decode_wgmma_registers(&mut self, i: &WgmmaRegisters) -> Decoded {
        self.count(i.a.0.len(), 4, "registers of A")?;
        let a = Left::Registers(self.registers(&i.a.0)?);
        let negate = [&i.negate_a, &i.negate_b];
        self.decode_product((i.shape, i.ty, i.inputs), &i.d.0, a, &i.b, &i.scale_d, negate, &i.transpose)
    }

    pub(super) fn decode_tmem_alloc(&mut self, i: &TmemAlloc) -> Decoded {
        self.no_second_group(i.group)?;
        let address = self.address(&i.dst, Some(i.space))?;
        let columns = self.src(&i.columns, 32)?;
        self.push(Kind::TensorAlloc { address, columns });
        Ok(())
    }

    pub(super) fn decode_tmem_dealloc(&mut self, i: &TmemDealloc) -> Decoded {
        self.no_second_group(i.group)?;
        let (address, columns) = (self.src(&i.address, 32)?, self.src(&i.columns, 32)?);
        self.push(Kind::TensorFree { address, columns });
        Ok(())
    }

    pub(super) fn decode_tmem_relinquish(&mut self, i: &TmemRelinquish) -> Decoded {
        self.no_second_group(i.group)?;
        self.push(Kind::TensorRelinquish);
        Ok(())
    }

    fn tensor_address(&self, address: &Address) -> Result<(u16, i32)> {
        let Base::Reg(reg) = &address.base else {
            return Err(self.operand_error("an address of tensor memory is a 32-bit register"));
        };
        Ok((self.dst(*reg, 32)?, address.offset as i32))
    }

    pub(super) fn decode_tcgen05_mma(&mut self, i: &Tcgen05Mma) -> Decoded {
        self.no_second_group(i.group)?;
        let (d, offset) = self.tensor_address(&i.d)?;
        let (a, b) = (self.src(&i.a, 64)?, self.src(&i.b, 64)?);
        let instruction = self.src(&i.instruction, 32)?;
        let accumulate = self.scale(&i.accumulate)?;
        let tf32 = i.kind == Tcgen05Kind::Tf32;
        let detail = self.details.tensor_products.len() as u32;
        self.details.tensor_products.push(TensorProduct { tf32, d, offset, a, b, instruction, accumulate });
        self.push(Kind::TensorProduct { detail });
        Ok(())
    }

    pub(super) fn decode_tcgen05_commit(&mut self, i: &Tcgen05Commit) -> Decoded {
        self.no_second_group(i.group)?;
        let barrier = self.address(&i.barrier, i.space)?;
        self.push(Kind::TensorCommit { barrier });
        Ok(())
    }

    pub(super) fn decode_tmem_access(
        &mut self,
        address: &Address,
        regs: &[Reg],
        shape: TmemShape,
        store: bool,
    ) -> Decoded {
        let count = shape.registers();
        let list = self.register_list(regs, count)?;
        let (address, offset) = self.tensor_address(address)?;
        self.push(Kind::TensorAccess { address, offset, list, count: count as u8, store });
        Ok(())
    }

    pub(super) fn decode_setmaxnreg(&mut self, i: &SetMaxNReg) -> Decoded {
        let Src::Imm(count @ 24..=256) = i.count else {
            return Err(self.operand_error("setmaxnreg takes a constant from 24 to 256"));
        };
        if count % 8 != 0 {
            return Err(self.operand_error(format!("setmaxnreg {count}: a multiple of 8 is needed")));
        }
        self.push(Kind::SetRegisters { count: count as u16, increase: i.change == RegisterChange::Inc });
        Ok(())
    }
}
