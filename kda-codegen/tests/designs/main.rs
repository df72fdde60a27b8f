//! Whole designs in the kernel language: what they are, that they compute what they should, and what they needed.

#[path = "../semantics/harness.rs"]
#[allow(dead_code)]
mod harness;

mod delta_h;
