//! The inter-chunk recurrence: what there is to do, and who does it.

mod narrow;
mod portable;
mod recurrence;
mod schedule;

pub use narrow::delta_h_narrow;
pub use portable::delta_h_portable;
pub use recurrence::delta_h;
pub use schedule::delta_h_schedule;
