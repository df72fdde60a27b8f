//! One method a row of the instruction table: a row without semantics does not compile.

use super::forms::{logic, mem_scope, strength};
use super::op::{Kind, MbarrierOp, MemScope, NONE, Permutation};
use super::{Decoder, LoadError};
use kda_ptx::modifier::*;
use kda_ptx::operand::{Base, Src};
use kda_ptx::table::*;

pub(super) type Decoded = Result<(), LoadError>;

impl Semantics for Decoder<'_> {
    type Output = Decoded;

    fn mov(&mut self, i: &Mov) -> Decoded {
        self.decode_mov(i)
    }
    fn unpack(&mut self, i: &Unpack) -> Decoded {
        self.decode_unpack(i)
    }
    fn pack(&mut self, i: &Pack) -> Decoded {
        self.decode_pack(i)
    }
    fn cvt(&mut self, i: &Cvt) -> Decoded {
        self.decode_cvt(i)
    }
    fn cvta(&mut self, i: &Cvta) -> Decoded {
        self.decode_cvta(i)
    }
    fn selp(&mut self, i: &Selp) -> Decoded {
        let bits = i.ty.bytes() * 8;
        let (pred, negated) = (self.pred(i.pred.reg)?, i.pred.negated);
        let (d, a, b) = (self.dst(i.dst, bits)?, self.src(&i.a, bits)?, self.src(&i.b, bits)?);
        self.push(if bits == 64 {
            Kind::Select64 { d, a, b, pred, negated }
        } else {
            Kind::Select32 { d, a, b, pred, negated }
        });
        Ok(())
    }
    fn prmt(&mut self, i: &Prmt) -> Decoded {
        self.decode_prmt(i)
    }
    fn add(&mut self, i: &Add) -> Decoded {
        self.decode_add(i)
    }
    fn sub(&mut self, i: &Sub) -> Decoded {
        self.decode_sub(i)
    }
    fn mul(&mut self, i: &Mul) -> Decoded {
        self.decode_mul(i)
    }
    fn mad(&mut self, i: &Mad) -> Decoded {
        self.decode_mad(i)
    }
    fn fma(&mut self, i: &Fma) -> Decoded {
        self.decode_fma(i)
    }
    fn div(&mut self, i: &Div) -> Decoded {
        self.decode_div(i)
    }
    fn rem(&mut self, i: &Rem) -> Decoded {
        self.decode_rem(i)
    }
    fn neg(&mut self, i: &Neg) -> Decoded {
        self.decode_neg(i)
    }
    fn abs(&mut self, i: &Abs) -> Decoded {
        self.decode_abs(i)
    }
    fn min(&mut self, i: &Min) -> Decoded {
        self.decode_min(i)
    }
    fn max(&mut self, i: &Max) -> Decoded {
        self.decode_max(i)
    }
    fn rcp(&mut self, i: &Rcp) -> Decoded {
        self.decode_rcp(i)
    }
    fn sqrt(&mut self, i: &Sqrt) -> Decoded {
        self.decode_sqrt(i)
    }
    fn rsqrt(&mut self, i: &Rsqrt) -> Decoded {
        self.decode_rsqrt(i)
    }
    fn ex2(&mut self, i: &Ex2) -> Decoded {
        self.decode_ex2(i)
    }
    fn lg2(&mut self, i: &Lg2) -> Decoded {
        self.decode_lg2(i)
    }
    fn tanh(&mut self, i: &Tanh) -> Decoded {
        self.decode_tanh(i)
    }
    fn and(&mut self, i: &And) -> Decoded {
        self.decode_and(i)
    }
    fn or(&mut self, i: &Or) -> Decoded {
        self.decode_or(i)
    }
    fn xor(&mut self, i: &Xor) -> Decoded {
        self.decode_xor(i)
    }
    fn not(&mut self, i: &Not) -> Decoded {
        self.decode_not(i)
    }
    fn shl(&mut self, i: &Shl) -> Decoded {
        self.decode_shl(i)
    }
    fn shr(&mut self, i: &Shr) -> Decoded {
        self.decode_shr(i)
    }
    fn shf(&mut self, i: &Shf) -> Decoded {
        self.decode_shf(i)
    }
    fn lop3(&mut self, i: &Lop3) -> Decoded {
        self.decode_lop3(i)
    }
    fn bfe(&mut self, i: &Bfe) -> Decoded {
        self.decode_bfe(i)
    }
    fn bfi(&mut self, i: &Bfi) -> Decoded {
        self.decode_bfi(i)
    }
    fn popc(&mut self, i: &Popc) -> Decoded {
        self.decode_popc(i)
    }
    fn clz(&mut self, i: &Clz) -> Decoded {
        self.decode_clz(i)
    }
    fn brev(&mut self, i: &Brev) -> Decoded {
        self.decode_brev(i)
    }

    fn setp(&mut self, i: &Setp) -> Decoded {
        let f = self.comparison(i.compare, i.ftz.0, i.ty)?;
        self.compare(f, i.ty.bytes() * 8, &i.dst, [&i.a, &i.b], u32::from(i.ftz.0), None)
    }
    fn setp_combine(&mut self, i: &SetpCombine) -> Decoded {
        let f = self.comparison(i.compare, i.ftz.0, i.ty)?;
        let combine = Some((logic(i.combine), i.c));
        self.compare(f, i.ty.bytes() * 8, &i.dst, [&i.a, &i.b], u32::from(i.ftz.0), combine)
    }
    fn bra(&mut self, i: &Bra) -> Decoded {
        self.branches.push((self.ops.len(), i.target.0.clone(), self.line));
        self.push(Kind::Bra { target: u32::MAX, uniform: i.uni.0 });
        Ok(())
    }
    fn exit(&mut self, _: &Exit) -> Decoded {
        self.push(Kind::Exit);
        Ok(())
    }
    fn ret(&mut self, _: &Ret) -> Decoded {
        self.push(Kind::Exit);
        Ok(())
    }
    fn trap(&mut self, _: &Trap) -> Decoded {
        self.push(Kind::Trap);
        Ok(())
    }
    fn nanosleep(&mut self, i: &Nanosleep) -> Decoded {
        self.src(&i.duration, 32)?;
        self.push(Kind::Yield);
        Ok(())
    }

    fn ld(&mut self, i: &Ld) -> Decoded {
        let (elements, list) = self.load_list(i.ty, i.vector, &i.dst)?;
        if i.space == Some(Space::Param) {
            let Base::Symbol(name) = &i.address.base else {
                return Err(self.unsupported("ld.param through a register"));
            };
            // What is past 64 bits is past any parameter block.
            let offset = i64::from(self.param(name)?).saturating_add(i.address.offset);
            let end = offset.saturating_add(i64::from(elements.bytes) * i64::from(elements.count));
            let size = self.entry.param_offsets().1;
            if offset < 0 || end > i64::from(size) {
                return Err(
                    self.operand_error(format!("bytes {offset} to {end} are not in the {size} parameter bytes"))
                );
            }
            self.push(Kind::LoadParam { elements, list, offset: offset as u32 });
            return Ok(());
        }
        let address = self.address(&i.address, i.space)?;
        let (order, scope) = (strength(i.strength), mem_scope(i.scope, MemScope::Gpu));
        self.push(Kind::Load { address, elements, list, order, scope, constant: i.nc.0 });
        Ok(())
    }
    fn st(&mut self, i: &St) -> Decoded {
        let (elements, list) = self.store_list(i.ty, i.vector, &i.src)?;
        let address = self.address(&i.address, i.space)?;
        let (order, scope) = (strength(i.strength), mem_scope(i.scope, MemScope::Gpu));
        self.push(Kind::Store { address, elements, list, order, scope });
        Ok(())
    }
    fn atom(&mut self, i: &Atom) -> Decoded {
        self.decode_atomic(Some(i.dst), &i.address, i.space, i.op, i.ty, &i.b, i.c.as_ref(), i.order, i.scope)
    }
    fn red(&mut self, i: &Red) -> Decoded {
        self.decode_atomic(None, &i.address, i.space, i.op, i.ty, &i.b, None, i.order, i.scope)
    }
    fn prefetch(&mut self, i: &Prefetch) -> Decoded {
        self.address(&i.address, i.space)?;
        self.push(Kind::Nop);
        Ok(())
    }
    fn createpolicy(&mut self, i: &CreatePolicy) -> Decoded {
        // A policy is a hint: any defined value will do.
        let f = crate::alu::lanes::lane_fn!(|a: u32| u64::from(a));
        self.unary(f, 64, 32, i.dst, &Src::Imm(1), 0)
    }

    fn shfl(&mut self, i: &Shfl) -> Decoded {
        let (d, pred) = (self.optional(i.dst.dst, 32)?, self.optional_pred(i.dst.pred)?);
        let (a, lane) = (self.src(&i.a, 32)?, self.src(&i.lane, 32)?);
        let (clamp, members) = (self.src(&i.clamp, 32)?, self.src(&i.members, 32)?);
        if let (Src::Imm(lane), Src::Imm(clamp)) = (&i.lane, &i.clamp) {
            let permutation = self.permutations.len() as u32;
            self.permutations.push(Permutation::of(i.mode, &[*lane as u32; 32], &[*clamp as u32; 32]));
            self.push(Kind::Permute { permutation, d, pred, a, members });
            return Ok(());
        }
        self.push(Kind::Shuffle { mode: i.mode, d, pred, a, lane, clamp, members });
        Ok(())
    }
    fn vote(&mut self, i: &Vote) -> Decoded {
        let d = if i.mode == VoteMode::Ballot { self.dst(i.dst, 32)? } else { self.pred(i.dst)? };
        let (pred, negated) = (self.pred(i.pred.reg)?, i.pred.negated);
        let members = self.src(&i.members, 32)?;
        self.push(Kind::Vote { mode: i.mode, d, pred, negated, members });
        Ok(())
    }
    fn redux(&mut self, i: &Redux) -> Decoded {
        let (d, a, members) = (self.dst(i.dst, 32)?, self.src(&i.a, 32)?, self.src(&i.members, 32)?);
        self.push(Kind::Redux { op: i.op, signed: i.ty.is_signed(), d, a, members });
        Ok(())
    }
    fn elect(&mut self, i: &Elect) -> Decoded {
        let (d, pred) = (self.optional(i.dst.dst, 32)?, self.optional_pred(i.dst.pred)?);
        let members = self.src(&i.members, 32)?;
        self.push(Kind::Elect { d, pred, members });
        Ok(())
    }
    fn activemask(&mut self, i: &ActiveMask) -> Decoded {
        let d = self.dst(i.dst, 32)?;
        self.push(Kind::ActiveMask { d });
        Ok(())
    }
    fn bar_warp(&mut self, i: &BarWarp) -> Decoded {
        let members = self.src(&i.members, 32)?;
        self.push(Kind::BarWarp { members });
        Ok(())
    }
    fn bar_sync(&mut self, i: &BarSync) -> Decoded {
        let barrier = self.src(&i.barrier, 32)?;
        let threads = i.threads.as_ref().map_or(Ok(NONE), |t| self.src(t, 32))?;
        self.push(Kind::BarSync { barrier, threads });
        Ok(())
    }
    fn bar_arrive(&mut self, i: &BarArrive) -> Decoded {
        let (barrier, threads) = (self.src(&i.barrier, 32)?, self.src(&i.threads, 32)?);
        self.push(Kind::BarArrive { barrier, threads });
        Ok(())
    }
    fn cluster_arrive(&mut self, i: &ClusterArrive) -> Decoded {
        self.push(Kind::ClusterArrive { release: i.order != Some(Order::Relaxed) });
        Ok(())
    }
    fn cluster_wait(&mut self, _: &ClusterWait) -> Decoded {
        self.push(Kind::ClusterWait);
        Ok(())
    }
    fn fence(&mut self, i: &Fence) -> Decoded {
        self.push(Kind::Fence { scope: mem_scope(Some(i.scope), MemScope::Gpu) });
        Ok(())
    }
    fn fence_proxy(&mut self, i: &FenceProxy) -> Decoded {
        let (shared, global) = match i.proxy {
            Proxy::Async => (true, true),
            Proxy::AsyncGlobal => (false, true),
            Proxy::AsyncSharedCta | Proxy::AsyncSharedCluster => (true, false),
            Proxy::Alias => (false, false),
        };
        self.push(Kind::ProxyFence { shared, global });
        Ok(())
    }
    fn fence_mbarrier_init(&mut self, _: &FenceMbarrierInit) -> Decoded {
        self.push(Kind::InitFence);
        Ok(())
    }

    fn mbarrier_init(&mut self, i: &MbarrierInit) -> Decoded {
        self.mbarrier(MbarrierOp::Init, &i.address, i.space, Some(&i.count), None, None)
    }
    fn mbarrier_inval(&mut self, i: &MbarrierInval) -> Decoded {
        self.mbarrier(MbarrierOp::Inval, &i.address, i.space, None, None, None)
    }
    fn mbarrier_arrive(&mut self, i: &MbarrierArrive) -> Decoded {
        self.mbarrier(MbarrierOp::Arrive, &i.address, i.space, i.count.as_ref(), None, i.order)
    }
    fn mbarrier_arrive_expect_tx(&mut self, i: &MbarrierArriveExpectTx) -> Decoded {
        self.mbarrier(MbarrierOp::ArriveExpectTx, &i.address, i.space, Some(&i.bytes), None, i.order)
    }
    fn mbarrier_expect_tx(&mut self, i: &MbarrierExpectTx) -> Decoded {
        self.mbarrier(MbarrierOp::ExpectTx, &i.address, i.space, Some(&i.bytes), None, Some(i.order))
    }
    fn mbarrier_try_wait(&mut self, i: &MbarrierTryWait) -> Decoded {
        self.mbarrier(MbarrierOp::TryWait, &i.address, i.space, Some(&i.parity), Some(i.done), i.order)
    }
    fn mbarrier_test_wait(&mut self, i: &MbarrierTestWait) -> Decoded {
        self.mbarrier(MbarrierOp::TestWait, &i.address, i.space, Some(&i.parity), Some(i.done), i.order)
    }

    fn bulk_store(&mut self, i: &BulkStore) -> Decoded {
        let dst = self.address(&i.dst, Some(Space::Global))?;
        let src = self.address(&i.src, Some(Space::SharedCta))?;
        let bytes = self.src(&i.bytes, 32)?;
        self.push(Kind::BulkStore { dst, src, bytes });
        Ok(())
    }
    fn bulk_load(&mut self, i: &BulkLoad) -> Decoded {
        let dst = self.address(&i.dst, Some(Space::SharedCluster))?;
        let src = self.address(&i.src, Some(Space::Global))?;
        let bytes = self.src(&i.bytes, 32)?;
        let barrier = self.address(&i.barrier, Some(Space::SharedCluster))?;
        self.push(Kind::BulkLoad { dst, src, bytes, barrier });
        Ok(())
    }
    fn bulk_commit(&mut self, _: &BulkCommit) -> Decoded {
        self.push(Kind::BulkCommit);
        Ok(())
    }
    fn bulk_wait(&mut self, i: &BulkWait) -> Decoded {
        let Src::Imm(pending) = i.pending else {
            return Err(self.operand_error("the number of pending groups must be a constant"));
        };
        let pending = u32::try_from(pending).map_err(|_| self.operand_error(format!("{pending} pending groups")))?;
        self.push(Kind::BulkWait { pending, read: i.read.0 });
        Ok(())
    }
    fn launch_dependents(&mut self, _: &LaunchDependents) -> Decoded {
        self.push(Kind::LaunchDependents);
        Ok(())
    }
    fn dependency_wait(&mut self, _: &DependencyWait) -> Decoded {
        self.push(Kind::DependencyWait);
        Ok(())
    }
    fn setmaxnreg(&mut self, i: &SetMaxNReg) -> Decoded {
        self.decode_setmaxnreg(i)
    }

    fn bulk_reduce(&mut self, i: &BulkReduce) -> Decoded {
        self.decode_bulk_reduce(i)
    }
    fn tensor_load(&mut self, i: &TensorLoad) -> Decoded {
        self.decode_tensor_load(i)
    }
    fn tensor_store(&mut self, i: &TensorStore) -> Decoded {
        self.decode_tensor_store(i)
    }
    fn tensor_reduce(&mut self, i: &TensorReduce) -> Decoded {
        self.decode_tensor_reduce(i)
    }
    fn prefetch_tensormap(&mut self, i: &PrefetchTensorMap) -> Decoded {
        self.decode_prefetch_map(i)
    }
    fn cp_async(&mut self, i: &CpAsync) -> Decoded {
        self.decode_cp_async(i)
    }
    fn cp_async_commit(&mut self, _: &CpAsyncCommit) -> Decoded {
        self.push(Kind::ThreadCommit);
        Ok(())
    }
    fn cp_async_wait(&mut self, i: &CpAsyncWait) -> Decoded {
        let pending = self.small(&i.pending, "the number of pending groups", i64::from(u32::MAX))?;
        self.push(Kind::ThreadWait { pending });
        Ok(())
    }
    fn cp_async_arrive(&mut self, i: &CpAsyncArrive) -> Decoded {
        let address = self.address(&i.address, Some(Space::SharedCta))?;
        self.push(Kind::ThreadArrive { address });
        Ok(())
    }
    fn mapa(&mut self, i: &Mapa) -> Decoded {
        self.decode_mapa(i)
    }
    fn ldmatrix(&mut self, i: &LdMatrix) -> Decoded {
        self.decode_ldmatrix(i)
    }
    fn stmatrix(&mut self, i: &StMatrix) -> Decoded {
        self.decode_stmatrix(i)
    }
    fn movmatrix(&mut self, i: &MovMatrix) -> Decoded {
        self.decode_movmatrix(i)
    }
    fn mma(&mut self, i: &Mma) -> Decoded {
        self.decode_mma(i)
    }
    fn wgmma_fence(&mut self, _: &WgmmaFence) -> Decoded {
        self.push(Kind::ProductFence);
        Ok(())
    }
    fn wgmma_commit(&mut self, _: &WgmmaCommit) -> Decoded {
        self.push(Kind::ProductCommit);
        Ok(())
    }
    fn wgmma_wait(&mut self, i: &WgmmaWait) -> Decoded {
        let pending = self.small(&i.pending, "the number of pending groups", 7)?;
        self.push(Kind::ProductWait { pending });
        Ok(())
    }
    fn wgmma(&mut self, i: &Wgmma) -> Decoded {
        self.decode_wgmma(i)
    }
    fn wgmma_registers(&mut self, i: &WgmmaRegisters) -> Decoded {
        self.decode_wgmma_registers(i)
    }
    fn tmem_alloc(&mut self, i: &TmemAlloc) -> Decoded {
        self.decode_tmem_alloc(i)
    }
    fn tmem_dealloc(&mut self, i: &TmemDealloc) -> Decoded {
        self.decode_tmem_dealloc(i)
    }
    fn tmem_relinquish(&mut self, i: &TmemRelinquish) -> Decoded {
        self.decode_tmem_relinquish(i)
    }
    fn tcgen05_mma(&mut self, i: &Tcgen05Mma) -> Decoded {
        self.decode_tcgen05_mma(i)
    }
    fn tcgen05_commit(&mut self, i: &Tcgen05Commit) -> Decoded {
        self.decode_tcgen05_commit(i)
    }
    fn tmem_load(&mut self, i: &TmemLoad) -> Decoded {
        self.decode_tmem_access(&i.address, &i.dst.0, i.shape, false)
    }
    fn tmem_store(&mut self, i: &TmemStore) -> Decoded {
        self.decode_tmem_access(&i.address, &i.src.0, i.shape, true)
    }
    fn tmem_wait(&mut self, i: &TmemWait) -> Decoded {
        self.push(Kind::TensorWait { store: i.access == TmemAccess::Store });
        Ok(())
    }
    fn tcgen05_fence(&mut self, i: &Tcgen05Fence) -> Decoded {
        self.push(Kind::TensorFence { after: i.side == TmemFence::After });
        Ok(())
    }
}
