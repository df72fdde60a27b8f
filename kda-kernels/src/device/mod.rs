//! Device libraries: functions that several kernel families share.

mod draft;
mod halves;
mod math;
mod solve;
mod states;
mod step;
mod work;

pub use draft::draft;
pub use halves::halves;
pub use math::math;
pub use solve::solve;
pub use states::states;
pub use step::step;
pub use work::work;
