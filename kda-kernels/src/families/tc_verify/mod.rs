//! Verify of draft tokens on tensor cores, with compact records instead of states.

mod hopper;
mod portable;

pub use hopper::tc_verify;
pub use portable::tc_verify_portable;
