//! Numbers in shared memory on which the trips of roles depend: work lists that the CTA makes ahead of its roles.
//!
//! An element of a buffer that nobody writes once roles have begun is the same in all roles. Whether that is so is known when
//! the whole kernel has been compiled. Until then the text of such an element names the register that it was loaded into, so
//! that no two loads are the same; at the end that name is dropped from the trips of buffers that keep still.

use super::Specialiser;
use super::value::SharedView;
use crate::kir::{Branch, Node, Region, Sync, Trips};
use kda_ptx::Reg;
use kda_ptx::modifier::{Space, Type};
use kda_ptx::operand::Address;
use std::collections::BTreeSet;

/// Ahead of the number of the buffer, behind it, and behind the register.
const TAG: char = '#';

impl Specialiser<'_> {
    /// An unconditional load of one element from shared memory.
    pub(super) fn note_list_load(&mut self, view: &SharedView, reg: Reg, ty: Type, address: &Address) {
        if self.roles.is_some() && view.slot.is_none() && view.remote.is_none() {
            self.builder.note_load(reg, Space::Shared, ty, address.clone());
            self.lists.insert(reg, view.buffer);
        }
    }

    /// What the text of a register begins with if it holds such an element.
    pub(super) fn list_text(&self, reg: Reg) -> String {
        let name = reg.class.prefix().trim_start_matches('%');
        let tagged = |buffer| format!("list {TAG}{buffer}{TAG}{name}{}{TAG}", reg.index);
        self.lists.get(&reg).map_or_else(String::new, tagged)
    }
}

/// Drops the registers from the trips that depend on buffers which nobody writes once roles have begun.
pub(super) fn settle(region: &mut Region) {
    let mut written = Written::default();
    written.walk(region, false);
    each_trips(region, &mut |trips| {
        if let Trips::Expression { key, .. } | Trips::Guard { key, .. } = trips {
            *key = settled(key, &written.buffers);
        }
    });
}

/// The text without the registers of buffers that keep still.
fn settled(key: &str, written: &BTreeSet<usize>) -> String {
    let mut parts = key.split(TAG);
    let mut out = parts.next().unwrap_or_default().to_string();
    // Tags come in threes: the buffer, the register, what follows.
    while let (Some(buffer), Some(register), Some(rest)) = (parts.next(), parts.next(), parts.next()) {
        let still = buffer.parse().is_ok_and(|buffer: usize| !written.contains(&buffer));
        out.push_str(buffer);
        if !still {
            out.push_str(&format!(" %{register}"));
        }
        out.push(' ');
        out.push_str(rest);
    }
    out
}

/// Buffers that are written in roles, behind them, or in a loop around them.
#[derive(Default)]
struct Written {
    buffers: BTreeSet<usize>,
    roles_begun: bool,
}

impl Written {
    fn walk(&mut self, region: &Region, counts: bool) {
        for node in region {
            match node {
                Node::Sync { sync: Sync::SharedWrite { buffer }, .. } if counts || self.roles_begun => {
                    self.buffers.insert(*buffer);
                }
                Node::If { branch, then, other, .. } => {
                    let role = matches!(branch, Branch::Roles(_));
                    self.walk(then, counts || role);
                    self.walk(other, counts || role);
                    self.roles_begun |= role;
                }
                Node::Loop { head, body, .. } => {
                    let counts = counts || has_roles(body);
                    self.walk(head, counts);
                    self.walk(body, counts);
                }
                _ => {}
            }
        }
    }
}

fn has_roles(region: &Region) -> bool {
    region.iter().any(|node| match node {
        Node::If { branch: Branch::Roles(_), .. } => true,
        Node::If { then, other, .. } => has_roles(then) || has_roles(other),
        Node::Loop { head, body, .. } => has_roles(head) || has_roles(body),
        _ => false,
    })
}

fn each_trips(region: &mut Region, visit: &mut impl FnMut(&mut Trips)) {
    for node in region {
        match node {
            Node::If { branch, then, other, .. } => {
                if let Branch::Guard(trips) = branch {
                    visit(trips);
                }
                each_trips(then, visit);
                each_trips(other, visit);
            }
            Node::Loop { head, body, trips, .. } => {
                trips.iter_mut().for_each(&mut *visit);
                each_trips(head, visit);
                each_trips(body, visit);
            }
            _ => {}
        }
    }
}
