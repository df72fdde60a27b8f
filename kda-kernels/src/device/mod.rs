//! Device libraries: functions that several kernel families share.

mod math;
mod step;
mod work;

pub use math::math;
pub use step::step;
pub use work::work;
