//! Happens-before and the memory of past accesses.
//!
//! | question | module |
//! | --- | --- |
//! | what an observer knows of everybody's past | [`clock`]; of other clusters [`foreign`] |
//! | numbering of pasts: segments, and sets of readers | [`history`] |
//! | bits of a shadow cell | [`cell`] |
//! | is an access ordered after those before it? | [`check`] |
//! | the same for a warp's consecutive words | [`span`] |
//!
//! # Model
//! An *agent* performs accesses in an order of its own: a warp through the generic proxy, its `cp.async` copies, the bulk
//! reads and the bulk writes of a warp, the products of a warpgroup or of a thread, the tensor-memory loads and stores of a
//! warp, or an mbarrier, for the copies that complete on it. Each agent counts a clock. A *segment* is an agent and
//! a value of its clock; a shadow cell of four bytes names the segment of the last write and the set of segments that
//! have read since. An access is a race unless every conflicting segment is covered by the clocks of its observer.
//!
//! Lanes of one warp share a clock, and a clock entry tells which of its lanes are covered, so a lane that releases
//! without `bar.warp.sync` releases its own accesses only.

pub mod cell;
pub mod check;
pub mod clock;
pub mod foreign;
pub mod history;
pub mod span;
