//! A compiled variant as a constant [`kda_core::KernelDesc`].

use crate::check::protocol::Verdict;
use crate::compiled::{Compiled, OwnedExpr, Param, ParamKind, Stride};
use kda_core::arch::Reach;
use kda_core::{Arch, Elem};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

/// The description as an expression.
pub(super) fn tokens(compiled: &Compiled) -> TokenStream {
    let Compiled { entry, family, kernel, ptx, block, cluster, min_blocks_per_sm, shared_bytes, .. } = compiled;
    let Compiled { param_bytes, pdl, file, line, .. } = compiled;
    let hash = kda_core::desc::content_hash(ptx);
    let arch = arch(compiled.arch);
    let (major, minor) = (compiled.isa.major, compiled.isa.minor);
    let grid = compiled.grid.iter().map(expr);
    let shared = compiled.shared.iter().map(|buffer| {
        let (name, offset, bytes, align, shape) =
            (&buffer.name, buffer.offset, buffer.bytes, buffer.align, &buffer.shape);
        let elem = elem(buffer.elem);
        quote!(::kda_core::desc::SharedBuffer {
            name: #name, offset: #offset, bytes: #bytes, align: #align, elem: #elem, shape: &[#(#shape),*],
        })
    });
    let roles = compiled.roles.iter().map(|role| {
        let (name, first_warp, warps) = (&role.name, role.first_warp, role.warps);
        let registers = match role.registers {
            Some(registers) => quote!(::core::option::Option::Some(#registers)),
            None => quote!(::core::option::Option::None),
        };
        quote!(::kda_core::desc::RoleDesc {
            name: #name, first_warp: #first_warp, warps: #warps, registers: #registers,
        })
    });
    let barriers = compiled.barriers.iter().map(|barrier| {
        let (name, id, threads) = (&barrier.name, barrier.id, barrier.threads);
        quote!(::kda_core::desc::BarrierDesc { name: #name, id: #id, threads: #threads })
    });
    let protocol = match &compiled.protocol {
        Verdict::Nothing => quote!(Nothing),
        Verdict::Proved => quote!(Proved),
        Verdict::NotProved { why } => quote!(NotProved { why: #why }),
    };
    let params = compiled.params.iter().map(param);
    let consts =
        compiled.consts.iter().map(|(name, value)| quote!(::kda_core::desc::ConstDesc { name: #name, value: #value }));
    let requires = compiled.requires.iter().map(|requirement| {
        let (text, expr) = (&requirement.text, expr(&requirement.expr));
        quote!(::kda_core::desc::Requirement { text: #text, expr: #expr })
    });
    quote! {
        ::kda_core::KernelDesc {
            entry: #entry,
            family: #family,
            kernel: #kernel,
            arch: #arch,
            isa: ::kda_core::IsaVersion::new(#major, #minor),
            ptx: #ptx,
            block: #block,
            cluster: #cluster,
            grid: [#(#grid),*],
            min_blocks_per_sm: #min_blocks_per_sm,
            shared_bytes: #shared_bytes,
            shared: &[#(#shared),*],
            roles: &[#(#roles),*],
            barriers: &[#(#barriers),*],
            protocol: ::kda_core::desc::Protocol::#protocol,
            params: &[#(#params),*],
            param_bytes: #param_bytes,
            consts: &[#(#consts),*],
            requires: &[#(#requires),*],
            pdl: #pdl,
            source: ::kda_core::desc::SourceLocation { file: #file, line: #line },
            hash: #hash,
        }
    }
}

fn arch(arch: Arch) -> TokenStream {
    let Arch { major, minor, reach } = arch;
    let reach = match reach {
        Reach::Forward => quote!(Forward),
        Reach::Family => quote!(Family),
        Reach::Exact => quote!(Exact),
    };
    quote!(::kda_core::Arch { major: #major, minor: #minor, reach: ::kda_core::arch::Reach::#reach })
}

/// `::kda_core::Elem::F32`.
pub(super) fn elem(elem: Elem) -> TokenStream {
    let name = plain(&format!("{elem:?}"));
    quote!(::kda_core::Elem::#name)
}

fn plain(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

fn expr(expr: &OwnedExpr) -> TokenStream {
    match expr {
        OwnedExpr::Int(value) => quote!(::kda_core::Expr::Int(#value)),
        OwnedExpr::Name(name) => quote!(::kda_core::Expr::Name(#name)),
        OwnedExpr::Not(inner) => {
            let inner = self::expr(inner);
            quote!(::kda_core::Expr::Not(&#inner))
        }
        OwnedExpr::Binary(op, a, b) => {
            let (op, a, b) = (format_ident!("{op:?}"), self::expr(a), self::expr(b));
            quote!(::kda_core::Expr::Binary(::kda_core::expr::BinaryOp::#op, &#a, &#b))
        }
    }
}

fn param(param: &Param) -> TokenStream {
    let Param { name, kind, offset, bytes } = param;
    let kind = match kind {
        ParamKind::Scalar(elem) => {
            let elem = self::elem(*elem);
            quote!(Scalar(#elem))
        }
        ParamKind::Dim => quote!(Dim),
        ParamKind::Stride { tensor, axis } => quote!(Stride { tensor: #tensor, axis: #axis }),
        ParamKind::Present { tensor } => quote!(Present { tensor: #tensor }),
        ParamKind::Tensor { elem, writes, optional, stable, align, dims, map } => {
            let elem = self::elem(*elem);
            let dims = dims.iter().map(|dim| {
                let size = expr(&dim.size);
                let stride = match &dim.stride {
                    Stride::Const(stride) => quote!(Const(#stride)),
                    Stride::Param(name) => quote!(Param(#name)),
                    Stride::Any => quote!(Any),
                };
                quote!(::kda_core::desc::DimDesc { size: #size, stride: ::kda_core::desc::StrideDesc::#stride })
            });
            match map {
                None => quote!(Tensor(::kda_core::desc::TensorParam {
                    elem: #elem, writes: #writes, optional: #optional, stable: #stable, align: #align, dims: &[#(#dims),*],
                })),
                Some(map) => {
                    let (copy, swizzle) = (&map.copy, plain(&format!("{:?}", map.swizzle)));
                    quote!(TensorMap(::kda_core::TensorMapParam {
                        elem: #elem, writes: #writes, optional: #optional, stable: #stable, dims: &[#(#dims),*],
                        tile: &[#(#copy),*], swizzle: ::kda_core::Swizzle::#swizzle,
                    }))
                }
            }
        }
    };
    quote!(::kda_core::ParamDesc {
        name: #name, kind: ::kda_core::ParamKind::#kind, offset: #offset, bytes: #bytes,
    })
}
