//! kda-sim
