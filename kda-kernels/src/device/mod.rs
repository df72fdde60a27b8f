//! Device libraries: functions that several kernel families share.

mod math;
mod step;

pub use math::math;
pub use step::step;
