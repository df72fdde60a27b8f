//! What compiled kernels compute: source text to PTX, run on the simulator, compared with the same computation in Rust.
//!
//! Inputs are random; `KDA_SEED` sets the seed, and a failure names it.

mod absent_maps;
mod arithmetic;
mod based;
mod clusters;
mod collectives;
mod control;
mod copies;
mod dependent;
mod fragments;
mod harness;
mod matrix_types;
mod memory;
mod pipelines;
mod products;
mod programs;
mod record;
mod tensor_memory;
mod tickets;
mod types;
mod words;
