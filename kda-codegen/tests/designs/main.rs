//! Whole designs in the kernel language: that they compute what they should, and what they need.

#[path = "../semantics/record.rs"]
mod record;

#[path = "../semantics/harness.rs"]
#[allow(dead_code)]
mod harness;

mod delta_h;
mod delta_h_portable;
mod tc_verify;
