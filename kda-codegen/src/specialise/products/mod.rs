//! Products of warpgroups: accumulators in registers, operands in swizzled shared memory or in registers.
//!
//! | question | file |
//! | --- | --- |
//! | the methods and functions of the source | `methods` |
//! | who takes part | `group` |
//! | accumulators: their registers, and when they are written | `accumulator` |
//! | what each thread holds of an accumulator | `visit` |
//! | assignments that write in place | `place` |
//! | operands in registers | `operand` |
//! | between registers and tiles, as matrices of a warp | `matrices` |
//! | operands in shared memory, as the hardware is told of them | `descriptor` |
//! | the products themselves, commits and waits | `issue` |
//! | what runs meanwhile | `flight` |

mod accumulator;
mod descriptor;
mod flight;
mod group;
mod issue;
mod matrices;
mod methods;
mod operand;
mod place;
mod visit;

use super::Specialiser;
pub use accumulator::Accumulator;
pub use flight::Flight;
pub use operand::{Conversions, Operand};
