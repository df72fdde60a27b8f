//! Names in scope.

use super::value::Value;
use std::collections::HashMap;

/// A local variable.
#[derive(Clone, Debug)]
pub struct Local {
    /// Its value now.
    pub value: Value,
    /// Declared with `mut`.
    pub mutable: bool,
    /// It outlives the block in which it is declared.
    pub lasting: bool,
}

/// Scopes of one function body, innermost last.
#[derive(Clone, Debug, Default)]
pub struct Scopes {
    /// Names of each scope, and the number of locals when it was opened.
    scopes: Vec<(HashMap<String, usize>, usize)>,
    locals: Vec<Local>,
}

impl Scopes {
    /// One empty scope.
    pub fn new() -> Scopes {
        Scopes { scopes: vec![(HashMap::new(), 0)], locals: Vec::new() }
    }

    /// Opens a scope.
    pub fn push(&mut self) {
        self.scopes.push((HashMap::new(), self.locals.len()));
    }

    /// Closes the innermost scope; its locals are gone, but for lasting ones, which the scope around it gets.
    pub fn pop(&mut self) {
        let Some((names, first)) = self.scopes.pop() else { return };
        let gone = self.locals.split_off(first);
        let mut lasting: Vec<(usize, String)> =
            names.into_iter().map(|(name, id)| (id, name)).filter(|(id, _)| gone[id - first].lasting).collect();
        lasting.sort_unstable();
        for (id, name) in lasting {
            self.declare_lasting(name, gone[id - first].value.clone());
        }
    }

    /// Number of open scopes.
    pub fn depth(&self) -> usize {
        self.scopes.len()
    }

    /// Closes scopes until `depth` are left.
    pub fn unwind(&mut self, depth: usize) {
        while self.scopes.len() > depth {
            self.pop();
        }
    }

    /// Declares a local; an earlier one of that name is hidden.
    pub fn declare(&mut self, name: String, value: Value, mutable: bool) {
        self.push_local(name, Local { value, mutable, lasting: false });
    }

    /// Declares a local that stays when its scope is closed.
    pub fn declare_lasting(&mut self, name: String, value: Value) {
        self.push_local(name, Local { value, mutable: true, lasting: true });
    }

    fn push_local(&mut self, name: String, local: Local) {
        self.locals.push(local);
        let id = self.locals.len() - 1;
        if let Some((scope, _)) = self.scopes.last_mut() {
            scope.insert(name, id);
        }
    }

    /// Number of the local of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.scopes.iter().rev().find_map(|(scope, _)| scope.get(name)).copied()
    }

    /// The local.
    pub fn get(&self, id: usize) -> &Local {
        &self.locals[id]
    }

    /// The local, to be changed.
    pub fn get_mut(&mut self, id: usize) -> &mut Local {
        &mut self.locals[id]
    }

    /// Values of all locals.
    pub fn snapshot(&self) -> Vec<Value> {
        self.locals.iter().map(|local| local.value.clone()).collect()
    }

    /// Puts back the values of a snapshot.
    pub fn restore(&mut self, values: &[Value]) {
        for (local, value) in self.locals.iter_mut().zip(values) {
            local.value = value.clone();
        }
    }

    /// Number of locals.
    pub fn len(&self) -> usize {
        self.locals.len()
    }
}
