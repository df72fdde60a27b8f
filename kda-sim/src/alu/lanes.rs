//! From a scalar function to an instruction over 32 lanes.
//!
//! A scalar function is a closure without captures. It is compiled twice: for AVX2 + FMA and for any CPU; both give the
//! same bits. The loops go over chunks of eight lanes, which the compiler turns into vector code.

/// Number of lanes of a warp.
pub const LANES: usize = 32;
/// Mask of all lanes.
pub const FULL: u32 = u32::MAX;
const CHUNK: usize = 8;

/// Registers of one warp: values and undefined lanes.
///
/// 16-bit registers stand before the 32-bit ones in `b32`, in the low half of a word whose upper half is zero.
#[derive(Clone, Debug)]
pub struct Registers {
    /// 16- and 32-bit registers, then the special registers and constants in use.
    pub b32: Vec<[u32; LANES]>,
    /// 64-bit registers, then constants.
    pub b64: Vec<[u64; LANES]>,
    /// Predicates: one bit a lane.
    pub pred: Vec<u32>,
    /// Lanes of a `b32` register that hold no defined value.
    pub undef32: Vec<u32>,
    /// Lanes of a `b64` register that hold no defined value.
    pub undef64: Vec<u32>,
    /// Lanes of a predicate that hold no defined value.
    pub undef_pred: Vec<u32>,
}

/// Register numbers of an instruction, and a constant that its function reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Args {
    /// Destination.
    pub d: u16,
    /// First source.
    pub a: u16,
    /// Second source; the first again where there is none.
    pub b: u16,
    /// Third source; the first again where there is none.
    pub c: u16,
    /// Constant: a truth table, modes.
    pub aux: u32,
}

/// A register type: `u32` or `u64`.
pub trait Word: Copy + Default {
    /// The values of the file, and the undefined lanes.
    fn file(regs: &Registers) -> (&[[Self; LANES]], &[u32]);
    /// The same, to write.
    fn file_mut(regs: &mut Registers) -> (&mut [[Self; LANES]], &mut [u32]);
}

impl Word for u32 {
    #[inline(always)]
    fn file(regs: &Registers) -> (&[[u32; LANES]], &[u32]) {
        (&regs.b32, &regs.undef32)
    }
    #[inline(always)]
    fn file_mut(regs: &mut Registers) -> (&mut [[u32; LANES]], &mut [u32]) {
        (&mut regs.b32, &mut regs.undef32)
    }
}

impl Word for u64 {
    #[inline(always)]
    fn file(regs: &Registers) -> (&[[u64; LANES]], &[u32]) {
        (&regs.b64, &regs.undef64)
    }
    #[inline(always)]
    fn file_mut(regs: &mut Registers) -> (&mut [[u64; LANES]], &mut [u32]) {
        (&mut regs.b64, &mut regs.undef64)
    }
}

/// An instruction over the active lanes: `f(registers, arguments, active)`.
pub type LaneFn = fn(&mut Registers, &Args, u32);
/// A comparison over all lanes: the lanes where it holds.
pub type CompareFn = fn(&Registers, &Args) -> u32;

/// The two builds of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Build<F> {
    /// For AVX2 + FMA.
    pub vector: F,
    /// For any CPU.
    pub portable: F,
}

impl<F: Copy> Build<F> {
    /// The build for this CPU, or the portable one.
    pub fn choose(self, vector: bool) -> F {
        if vector { self.vector } else { self.portable }
    }
}

/// True if this CPU has what the vector build needs.
pub fn has_vector() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

#[inline(always)]
fn map<A: Word, B: Word, C: Word, D: Word>(
    regs: &mut Registers,
    args: &Args,
    active: u32,
    f: impl Fn(A, B, C, u32) -> D,
) {
    let (d, a, b, c) = (args.d as usize, args.a as usize, args.b as usize, args.c as usize);
    let undef = A::file(regs).1[a] | B::file(regs).1[b] | C::file(regs).1[c];
    let undef_d = &mut D::file_mut(regs).1[d];
    *undef_d = (*undef_d & !active) | (undef & active);
    // Bounds are checked here once; the chunks below then go through pointers, since source and destination may be the
    // same register.
    let pa: *const A = A::file(regs).0[a].as_ptr();
    let pb: *const B = B::file(regs).0[b].as_ptr();
    let pc: *const C = C::file(regs).0[c].as_ptr();
    let pd: *mut D = D::file_mut(regs).0[d].as_mut_ptr();
    for chunk in 0..LANES / CHUNK {
        let at = chunk * CHUNK;
        // SAFETY: each pointer is the start of a register of 32 lanes, and `at + 8 <= 32`; `regs` is borrowed for the
        // whole call, and each chunk is read before it is written.
        unsafe {
            let va = pa.add(at).cast::<[A; CHUNK]>().read();
            let vb = pb.add(at).cast::<[B; CHUNK]>().read();
            let vc = pc.add(at).cast::<[C; CHUNK]>().read();
            let mut vd: [D; CHUNK] = std::array::from_fn(|i| f(va[i], vb[i], vc[i], args.aux));
            let out = pd.add(at).cast::<[D; CHUNK]>();
            if active != FULL {
                let old = out.read();
                let bits = active >> at;
                vd = std::array::from_fn(|i| if bits & (1 << i) != 0 { vd[i] } else { old[i] });
            }
            out.write(vd);
        }
    }
}

#[inline(always)]
fn compare<A: Word, B: Word>(regs: &Registers, args: &Args, f: impl Fn(A, B, u32) -> bool) -> u32 {
    let (va, vb) = (&A::file(regs).0[args.a as usize], &B::file(regs).0[args.b as usize]);
    let mut mask = 0u32;
    for lane in 0..LANES {
        mask |= u32::from(f(va[lane], vb[lane], args.aux)) << lane;
    }
    mask
}

/// Gives back the value of a closure type without captures.
#[inline(always)]
fn conjure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "a lane function must not capture anything") };
    // SAFETY: F has no bytes, so reading one through a dangling aligned pointer reads nothing; it is Copy, and whoever
    // made the instruction had a value of it, so the type is inhabited.
    unsafe { std::ptr::dangling::<F>().read() }
}

macro_rules! builds {
    ($vector:ident, $portable:ident, [$($g:ident),*], $F:ident: $Bound:path, ($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $body:expr) => {
        #[cfg(target_arch = "x86_64")]
        fn $vector<$($g: Word,)* $F: $Bound + Copy>($($arg: $ty),*) $(-> $ret)? {
            #[target_feature(enable = "avx2,fma")]
            fn with_features<$($g: Word,)* $F: $Bound + Copy>($($arg: $ty),*) $(-> $ret)? {
                $body
            }
            // SAFETY: this build is chosen only where `has_vector` found AVX2 and FMA.
            unsafe { with_features::<$($g,)* $F>($($arg),*) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        fn $vector<$($g: Word,)* $F: $Bound + Copy>($($arg: $ty),*) $(-> $ret)? {
            $portable::<$($g,)* $F>($($arg),*)
        }
        fn $portable<$($g: Word,)* $F: $Bound + Copy>($($arg: $ty),*) $(-> $ret)? {
            $body
        }
    };
}

builds!(map_vector, map_portable, [A, B, C, D], F: Fn(A, B, C, u32) -> D, (regs: &mut Registers, args: &Args, active: u32),
    map::<A, B, C, D>(regs, args, active, conjure::<F>()));
builds!(compare_vector, compare_portable, [A, B], F: Fn(A, B, u32) -> bool, (regs: &Registers, args: &Args) -> u32,
    compare::<A, B>(regs, args, conjure::<F>()));

/// An instruction of three sources and a constant.
pub fn lanes<A: Word, B: Word, C: Word, D: Word, F: Fn(A, B, C, u32) -> D + Copy>(_: F) -> Build<LaneFn> {
    Build { vector: map_vector::<A, B, C, D, F>, portable: map_portable::<A, B, C, D, F> }
}

/// A comparison of two sources.
pub fn compares<A: Word, B: Word, F: Fn(A, B, u32) -> bool + Copy>(_: F) -> Build<CompareFn> {
    Build { vector: compare_vector::<A, B, F>, portable: compare_portable::<A, B, F> }
}

/// Makes a [`LaneFn`] from a closure over one, two or three typed sources.
macro_rules! lane_fn {
    (|$a:ident: $A:ty| $body:expr) => {
        $crate::alu::lanes::lanes(|$a: $A, _: $A, _: $A, _: u32| $body)
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty| $body:expr) => {
        $crate::alu::lanes::lanes(|$a: $A, $b: $B, _: $A, _: u32| $body)
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| $body:expr) => {
        $crate::alu::lanes::lanes(|$a: $A, $b: $B, $c: $C, _: u32| $body)
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty; $aux:ident| $body:expr) => {
        $crate::alu::lanes::lanes(|$a: $A, $b: $B, $c: $C, $aux: u32| $body)
    };
}
pub(crate) use lane_fn;
