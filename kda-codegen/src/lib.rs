//! The kernel compiler, as an ordinary library.
//!
//! | step | module | gives |
//! | --- | --- | --- |
//! | tokens to syntax | [`syntax`] | [`syntax::Family`]: attributes, signatures and bodies of a kernel module |
//! | variants | [`variants`] | one set of constants a variant, with its entry name |
//! | signature | [`signature`] | launch bounds, parameters in ABI order, conditions and facts |
//! | all of them | [`pipeline`] | a kernel module to the items it becomes, or to errors |
//! | constants | [`consteval`] | values known while compiling |
//! | specialisation | [`specialise`] | KIR: one variant with every constant folded and every call inlined |
//! | lowering | [`lower`] | PTX |
//! | expansion | [`expand`] | the Rust items that a kernel module becomes |
//!
//! Errors are [`diag::Diagnostic`]s with a code, a span and what to write instead.

pub mod compiled;
pub mod consteval;
pub mod diag;
pub mod expand;
pub mod kir;
pub mod lower;
pub mod pipeline;
pub mod signature;
pub mod specialise;
pub mod syntax;
pub mod variants;
