//! What a variant's launch is: block, grid, roles, parameters in ABI order, conditions and the facts they give.
//!
//! | file | what |
//! | --- | --- |
//! | [`params`] | parameters, axes and strides |
//! | [`launch`] | expressions that the launcher evaluates |
//! | [`facts`] | what `#[requires]` lets the compiler assume |
//! | [`bounds`] | block, roles, registers |
//!
//! The parameter block holds the tensors' pointers in source order, then the scalars in source order, then the named
//! axes in the order of their first appearance (`u32` each), then the strides (`u64` each), then whether optional tensor
//! maps are there (`u32` each); each value is aligned to its size.

pub mod bounds;
pub mod facts;
pub mod launch;
pub mod params;
#[cfg(test)]
mod tests;

pub use facts::Fact;

use crate::compiled::{OwnedExpr, Param, Requirement, Role};
use crate::diag::{Diagnostic, Errors, Results};
use crate::syntax::{Family, Kernel, text};
use crate::variants::{Variant, constants};
use launch::{Kind, Launch};

/// Most bytes of a parameter block.
pub const MOST_PARAM_BYTES: u32 = 4352;

/// The launch of one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Threads of a CTA: a multiple of 32, at most 1,024.
    pub block: u32,
    /// CTAs of a cluster; 1 without clusters.
    pub cluster: u32,
    /// CTAs that are to fit a multiprocessor at once.
    pub min_blocks_per_sm: u32,
    /// Registers a thread may have.
    pub max_registers: Option<u32>,
    /// CTAs in x, y and z, over launch parameters.
    pub grid: [OwnedExpr; 3],
    /// Conditions that the launcher checks; those that this variant's constants make true are left out.
    pub requires: Vec<Requirement>,
    /// What the conditions say about single parameters.
    pub facts: Vec<Fact>,
    /// Warp roles in order of declaration.
    pub roles: Vec<Role>,
    /// Parameters in ABI order.
    pub params: Vec<Param>,
    /// Bytes of the parameter block.
    pub param_bytes: u32,
}

impl Resolved {
    /// The parameter of that name, with its position in ABI order.
    pub fn param(&self, name: &str) -> Option<(usize, &Param)> {
        self.params.iter().enumerate().find(|(_, p)| p.name == name)
    }

    /// The greatest known divisor of a launch parameter; 1 if nothing is known. A parameter of known value is divided by
    /// its value, and 0 by everything: then the result is 0.
    pub fn multiple_of(&self, name: &str) -> u64 {
        facts::multiple_of(&self.facts, name)
    }
}

/// Resolves the signature of `kernel` for one variant.
pub fn resolve(family: &Family, kernel: &Kernel, variant: &Variant) -> Results<Resolved> {
    let constants = constants(family, variant.arch).map_err(|error| vec![*error])?;
    let scope = variant.scope(&constants);
    let mut errors = Errors::new();
    let bounds = errors.take_all(bounds::bounds(kernel, &scope));
    // Without the parameters every name of the conditions would be unknown.
    let Some((params, names)) = errors.take_all(params::params(kernel, &scope)) else {
        return errors.finish_some(None);
    };
    let launch = Launch { consts: &scope, names: &names };

    let mut grid = [OwnedExpr::Int(1), OwnedExpr::Int(1), OwnedExpr::Int(1)];
    for (axis, expr) in grid.iter_mut().zip(&kernel.grid) {
        if let Some(size) = errors.take(launch.expr(expr, Kind::Int)) {
            *axis = size;
        }
    }
    let mut requires = Vec::new();
    for condition in &kernel.requires {
        match errors.take(launch.expr(condition, Kind::Bool)) {
            Some(OwnedExpr::Int(0)) => {
                let message = format!("`{}` holds for no launch of this variant", text::expr(condition));
                errors.push(
                    Diagnostic::at(223, condition, message)
                        .help("leave the variant out with `skip_if(…)`")
                        .note(variant.rows[0], "the variant is of this row"),
                );
            }
            Some(OwnedExpr::Int(_)) | None => {}
            Some(expr) => requires.push(Requirement { text: text::expr(condition), expr }),
        }
    }
    if let Some(bounds) = &bounds {
        requires.extend(errors.take(bounds::whole_clusters(kernel, bounds.cluster, &grid[0])).flatten());
    }
    let (params, param_bytes) = params::layout(params);
    if param_bytes > MOST_PARAM_BYTES {
        let message = format!("the parameters take {param_bytes} bytes; {MOST_PARAM_BYTES} are possible");
        errors.push(Diagnostic::at(1001, &kernel.name, message).help("pass fewer scalars, or put them in a tensor"));
    }
    let facts = facts::facts(&requires);
    errors.finish_some(bounds.map(|bounds| Resolved {
        block: bounds.block,
        cluster: bounds.cluster,
        min_blocks_per_sm: bounds.min_blocks_per_sm,
        max_registers: bounds.max_registers,
        roles: bounds.roles,
        grid,
        requires,
        facts,
        params,
        param_bytes,
    }))
}
