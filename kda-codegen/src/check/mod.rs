//! Checks over the program as a whole, on KIR.

pub mod protocol;
