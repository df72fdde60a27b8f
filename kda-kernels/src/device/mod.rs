//! Device libraries: functions that several kernel families share.

pub mod math;
