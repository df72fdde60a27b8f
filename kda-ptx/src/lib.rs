//! PTX as data: one table of instructions, and everything that follows from it.
//!
//! | question | module |
//! | --- | --- |
//! | which instructions exist, with which modifiers and operands | [`table`] |
//! | types, state spaces, rounding modes and the other modifiers | [`modifier`] |
//! | registers, addresses, vectors and the other operands | [`operand`] |
//! | a module, its entries and statements | [`module`] |
//! | AST to text | [`print`](mod@print) |
//! | text to AST | [`parse`](mod@parse) |
//! | which PTX version and which GPU an instruction needs | [`gate`] |
//! | arbitrary instructions, for tests | [`sample`] |
//!
//! The table is the only place that knows an instruction. A row gives the typed struct, the printer, the parser, the
//! gates, and a method of [`table::Semantics`] that the simulator must implement: a row without semantics does not
//! compile there.
//!
//! # Dialect
//! Text in this dialect is ordinary PTX. Registers are named by class and index (`%p3`, `%h0`, `%r12`, `%rd4`, `%rq0` for
//! 1, 16, 32, 64 and 128 bits) and declared untyped (`.pred`, `.b16` …), one statement stands on a line, and there are no
//! nested scopes. The parser takes this dialect, with any spacing; it positions every error.

pub mod gate;
#[macro_use]
mod macros;
pub mod modifier;
pub mod module;
pub mod operand;
pub mod parse;
pub mod print;
pub mod sample;
pub mod table;

pub use gate::Gate;
pub use module::{Entry, Guard, Module, Param, Statement};
pub use operand::{Address, Base, Class, Reg, Role, Src};
pub use parse::{ParseError, parse};
pub use table::Inst;
