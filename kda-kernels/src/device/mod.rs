//! Device libraries: functions that several kernel families share.

mod math;

pub use math::math;
