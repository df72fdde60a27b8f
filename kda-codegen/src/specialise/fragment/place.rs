//! Where a matrix lies in a view: from which row and column on, and whether it fits.

use super::super::Specialiser;
use super::super::site::Site;
use super::super::value::Value;
use super::super::views::Index;
use crate::diag::{Diagnostic, Result};
use kda_core::Elem;
use syn::BinOp;

/// Row and column of a view at which a matrix begins.
pub(super) type Origin = Option<[Value; 2]>;

impl Specialiser<'_> {
    /// The arguments of `load(view)` and `store(view)`, or of `load(view, [row, column])`.
    pub(super) fn placed_view(&mut self, name: &str, args: &[&syn::Expr], site: Site<'_>) -> Result<(Value, Origin)> {
        let [_, _] = args else {
            let [view] = self.arguments(name, args, site)?;
            return Ok((view, None));
        };
        let [view, origin] = self.arguments(name, args, site)?;
        match origin {
            Value::Array(items) if items.len() == 2 => {
                let origin = items.try_into().unwrap_or([Value::u32(0), Value::u32(0)]);
                Ok((view, Some(origin)))
            }
            other => {
                let message = format!("a matrix begins at a row and a column, not at {}", other.describe());
                Err(Diagnostic::new(157, site, message).help(format!("write `{name}(view, [row, column])`")))
            }
        }
    }

    /// The element type of a view that can hold the matrix.
    pub(super) fn matrix_view(
        &self,
        view: &Value,
        (rows, columns): (u32, u32),
        origin: &Origin,
        swapped: bool,
        site: Site<'_>,
    ) -> Result<Elem> {
        let (elem, sizes) = match view {
            Value::Shared(view) => (view.elem, view.axes.iter().map(|(size, _)| *size).collect::<Vec<_>>()),
            Value::Global(view) => (view.elem, view.axes.iter().map(|axis| axis.size).collect()),
            Value::Tile(view) => {
                let (rows, columns) = view.extent();
                (view.elem, vec![Some(rows), Some(columns)])
            }
            other => {
                let message = format!("{} is no matrix in memory", other.describe());
                return Err(Diagnostic::new(906, site, message));
            }
        };
        if sizes.len() != 2 {
            let message = format!("a fragment has two axes, the view {}", sizes.len());
            return Err(Diagnostic::new(455, site, message).help("fix the others: `t.at([i, .., ..])`"));
        }
        let (rows, columns) = if swapped { (columns, rows) } else { (rows, columns) };
        let first = |axis: usize| origin.as_ref().map_or(Some(0), |origin| origin[axis].as_int());
        for (axis, (size, needed)) in sizes.iter().zip([rows, columns]).enumerate() {
            // Where the matrix begins at a runtime place, its end is not known.
            let end = first(axis).unwrap_or(0) + i128::from(needed);
            if let Some(size) = size.filter(|size| i128::from(*size) < end) {
                let message = format!("{needed} elements from {} on of an axis of {size}", end - i128::from(needed));
                return Err(Diagnostic::new(154, site, message));
            }
        }
        Ok(elem)
    }

    /// Coordinates of an element of a view.
    pub(super) fn element<'s>(
        &mut self,
        row: Value,
        column: Value,
        origin: &Origin,
        swapped: bool,
        site: Site<'s>,
    ) -> Result<Vec<(Index, Site<'s>)>> {
        let mut place = if swapped { [column, row] } else { [row, column] };
        if let Some(origin) = origin {
            for (at, first) in place.iter_mut().zip(origin) {
                *at = self.binary(&BinOp::Add(Default::default()), at.clone(), first.clone(), site)?;
            }
        }
        Ok(place.into_iter().map(|at| (Index::At(at), site)).collect())
    }
}
