//! Block, cluster, registers and roles of a variant.

use crate::compiled::{OwnedExpr, Requirement, Role};
use crate::consteval::{self, Scope};
use crate::diag::{Diagnostic, Errors, Result, Results};
use crate::syntax::{Kernel, RoleDecl, text};
use kda_core::expr::BinaryOp;
use syn::Expr;

/// Registers of a multiprocessor.
const REGISTERS: i128 = 65_536;
/// Threads of a multiprocessor.
const THREADS: i128 = 2048;

/// Most CTAs of a cluster that every device with clusters runs.
const CLUSTER: i128 = 8;

/// Block, cluster, registers and roles.
pub(super) struct Bounds {
    pub block: u32,
    pub cluster: u32,
    pub min_blocks_per_sm: u32,
    pub max_registers: Option<u32>,
    pub roles: Vec<Role>,
}

pub(super) fn bounds(kernel: &Kernel, consts: &Scope<'_>) -> Results<Bounds> {
    let mut errors = Errors::new();
    let block = errors.take(block(&kernel.block, consts));
    let cluster = errors.take(cluster(kernel.cluster.as_ref(), consts));
    let min_blocks = errors.take(min_blocks(kernel.min_blocks_per_sm.as_ref(), block, consts));
    let max_registers = errors.take(max_registers(kernel.max_registers.as_ref(), consts)).flatten();
    let mut roles: Vec<(Role, &RoleDecl)> = Vec::new();
    for decl in &kernel.roles {
        let Some(role) = errors.take(role(decl, block, consts)) else { continue };
        let end = role.first_warp + role.warps;
        if let Some((other, first)) =
            roles.iter().find(|(o, _)| role.first_warp < o.first_warp + o.warps && o.first_warp < end)
        {
            let message = format!("the roles `{}` and `{}` share warps", other.name, role.name);
            errors.push(Diagnostic::at(302, &decl.name, message).note(first.name.span(), "the other role"));
        }
        roles.push((role, decl));
    }
    if let (Some(block), Some(min_blocks)) = (block, min_blocks) {
        errors.take(budget(kernel, block, min_blocks, max_registers, &roles));
    }
    let roles = roles.into_iter().map(|(role, _)| role).collect();
    let bounds = block.zip(cluster).zip(min_blocks).map(|((block, cluster), min_blocks_per_sm)| Bounds {
        block,
        cluster,
        min_blocks_per_sm,
        max_registers,
        roles,
    });
    errors.finish_some(bounds)
}

fn block(expr: &Expr, consts: &Scope<'_>) -> Result<u32> {
    let block = consteval::integer(expr, consts)?;
    if !(1..=1024).contains(&block) || block % 32 != 0 {
        return Err(Diagnostic::at(
            501,
            expr,
            format!("a block of {block} threads; a multiple of 32, 32 to 1024, is needed"),
        ));
    }
    Ok(block as u32)
}

fn cluster(expr: Option<&Expr>, consts: &Scope<'_>) -> Result<u32> {
    let Some(expr) = expr else { return Ok(1) };
    let ctas = consteval::integer(expr, consts)?;
    if !(1..=CLUSTER).contains(&ctas) {
        return Err(Diagnostic::at(520, expr, format!("a cluster of {ctas} CTAs; 1 to {CLUSTER} are possible")));
    }
    Ok(ctas as u32)
}

/// Clusters lie along x and must divide the grid: the condition, unless it is known to hold.
pub(super) fn whole_clusters(kernel: &Kernel, cluster: u32, grid: &OwnedExpr) -> Result<Option<Requirement>> {
    let (Some(expr), Some(along)) = (&kernel.cluster, kernel.grid.first()) else { return Ok(None) };
    let ctas = i128::from(cluster);
    if let OwnedExpr::Int(count) = grid {
        if count % ctas == 0 {
            return Ok(None);
        }
        let message = format!("clusters of {cluster} CTAs do not divide a grid of {count} CTAs along x");
        return Err(Diagnostic::at(520, expr, message).help("round the grid up, and let the last CTAs do nothing"));
    }
    if cluster == 1 {
        return Ok(None);
    }
    let rest = OwnedExpr::Binary(BinaryOp::Rem, Box::new(grid.clone()), Box::new(OwnedExpr::Int(ctas)));
    let expr = OwnedExpr::Binary(BinaryOp::Eq, Box::new(rest), Box::new(OwnedExpr::Int(0)));
    Ok(Some(Requirement { text: format!("({}) % {cluster} == 0", text::expr(along)), expr }))
}

fn min_blocks(expr: Option<&Expr>, block: Option<u32>, consts: &Scope<'_>) -> Result<u32> {
    let Some(expr) = expr else { return Ok(1) };
    let blocks = consteval::integer(expr, consts)?;
    if !(1..=32).contains(&blocks) {
        return Err(Diagnostic::at(227, expr, format!("{blocks} blocks a multiprocessor; 1 to 32 are possible")));
    }
    match block {
        Some(block) if blocks * i128::from(block) > THREADS => {
            let message = format!(
                "{blocks} blocks of {block} threads are {}; a multiprocessor has {THREADS}",
                blocks * i128::from(block)
            );
            Err(Diagnostic::at(504, expr, message))
        }
        _ => Ok(blocks as u32),
    }
}

fn max_registers(expr: Option<&Expr>, consts: &Scope<'_>) -> Result<Option<u32>> {
    let Some(expr) = expr else { return Ok(None) };
    let registers = consteval::integer(expr, consts)?;
    if !(16..=255).contains(&registers) {
        return Err(Diagnostic::at(503, expr, format!("`max_registers` is {registers}; 16 to 255 are possible")));
    }
    Ok(Some(registers as u32))
}

fn role(decl: &RoleDecl, block: Option<u32>, consts: &Scope<'_>) -> Result<Role> {
    let name = &decl.name;
    let (first, end) = (consteval::integer(&decl.first, consts)?, consteval::integer(&decl.end, consts)?);
    if first < 0 || end <= first {
        return Err(Diagnostic::at(301, &decl.first, format!("the role `{name}` has no warps: {first}..{end}"))
            .help("the end is one past the last warp"));
    }
    let warps = block.map_or(32, |block| block / 32);
    if end > i128::from(warps) {
        let message = format!("the role `{name}` ends at warp {end}; the block has {warps} warps");
        return Err(Diagnostic::at(303, &decl.end, message).help("enlarge `block` or move the role"));
    }
    let registers = match &decl.registers {
        None => None,
        Some(expr) => {
            let registers = consteval::integer(expr, consts)?;
            if !(24..=256).contains(&registers) || registers % 8 != 0 {
                let message = format!("`regs` is {registers}; a multiple of 8, 24 to 256, is needed");
                return Err(Diagnostic::at(502, expr, message));
            }
            if first % 4 != 0 || end % 4 != 0 {
                let message = format!("`regs` needs whole warpgroups; the role `{name}` is warps {first}..{end}");
                return Err(Diagnostic::at(304, expr, message)
                    .help("begin and end the role at multiples of four warps, or leave `regs` out"));
            }
            Some(registers as u32)
        }
    };
    Ok(Role { name: name.to_string(), first_warp: first as u32, warps: (end - first) as u32, registers })
}

/// The registers that a block holds fit a multiprocessor as often as is asked for.
fn budget(
    kernel: &Kernel,
    block: u32,
    min_blocks: u32,
    max_registers: Option<u32>,
    roles: &[(Role, &RoleDecl)],
) -> Result<()> {
    let blocks = i128::from(min_blocks);
    let of_roles: i128 =
        roles.iter().map(|(role, _)| 32 * i128::from(role.warps) * i128::from(role.registers.unwrap_or(0))).sum();
    if of_roles * blocks > REGISTERS
        && let Some((_, decl)) = roles.iter().max_by_key(|(role, _)| role.registers)
    {
        let list: Vec<String> = roles
            .iter()
            .filter_map(|(role, _)| role.registers.map(|r| format!("{} {r} x {} threads", role.name, 32 * role.warps)))
            .collect();
        let message = format!(
            "the roles hold {of_roles} registers ({}){}; a multiprocessor has {REGISTERS}",
            list.join(", "),
            times(min_blocks)
        );
        return Err(Diagnostic::at(505, &decl.name, message));
    }
    if let (Some(registers), Some(expr)) = (max_registers, &kernel.max_registers) {
        // Registers are handed out in eights.
        let all = i128::from(registers.next_multiple_of(8)) * i128::from(block);
        if all * blocks > REGISTERS {
            let message = format!(
                "{registers} registers for {block} threads are {all}{}; a multiprocessor has {REGISTERS}",
                times(min_blocks)
            );
            return Err(Diagnostic::at(505, expr, message));
        }
    }
    Ok(())
}

/// How often a multiprocessor is to hold the block, where that is more than once.
fn times(min_blocks: u32) -> String {
    if min_blocks > 1 { format!(", {min_blocks} times") } else { String::new() }
}
