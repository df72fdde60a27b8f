//! Verify of draft tokens on tensor cores, with compact records instead of states.

mod hopper;

pub use hopper::tc_verify;
