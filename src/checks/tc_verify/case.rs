//! One problem of the checks: what is drawn, and how CTAs come by their requests.

use kda_core::Elem;
use kda_ref::conv::TapType;
use kda_ref::rng::Rng;
use kda_ref::tc_verify::ConvOrder;
use kda_ref::tc_verify::sample::{Sample, Switches};
use kda_runtime::operators::tc_verify::{Options, Variant};

/// How a problem is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Sizes and switches.
    pub switches: Switches,
    /// CTAs draw tickets.
    pub counters: bool,
}

impl Plan {
    /// The problem as drawn, in a fixed order.
    pub fn of(switches: Switches) -> Plan {
        Plan { switches, counters: false }
    }

    /// Draws the problem.
    pub fn draw(&self, seed: u64) -> Case {
        Case { sample: Sample::random(&mut Rng::new(seed), self.switches), counters: self.counters }
    }
}

/// A problem that was drawn.
#[derive(Clone, Debug)]
pub struct Case {
    /// The inputs.
    pub sample: Sample,
    /// CTAs draw tickets.
    pub counters: bool,
}

/// Whether a variant is written for problems like this one.
pub fn fits(variant: Variant, switches: &Switches) -> bool {
    let taps = match switches.taps {
        None => None,
        Some(TapType::Bf16) => Some(Elem::BF16),
        Some(TapType::F32) => Some(Elem::F32),
    };
    let channel_major = taps.is_some() && switches.order == ConvOrder::ChannelMajor;
    let known = variant.heads() as usize;
    variant.taps() == taps
        && variant.channel_major() == channel_major
        && variant.softplus() == switches.lower_bound.is_none()
        && variant.state() == if switches.bf16_state { Elem::BF16 } else { Elem::F32 }
        && variant.most_tokens() as usize >= switches.window
        && (known == 0 || known == switches.heads && switches.padding == 0)
}

/// The launch of a variant: one that reads the state early is launched so.
pub fn options(variant: Variant) -> Options {
    Options { variant: Some(variant), pdl: variant.early(), stable_pools: variant.early() }
}

/// Switches of the problem on which a variant is shown: a null slot, ragged lengths, offsets of every kind.
pub fn shown(variant: Variant) -> Switches {
    // Rows of known heads lie at known distances, where there are several.
    let heads = variant.heads().max(1) as usize;
    Switches {
        ragged: heads == 1,
        nulls: true,
        misfits: true,
        taps: variant.taps().map(|taps| if taps == Elem::BF16 { TapType::Bf16 } else { TapType::F32 }),
        order: if variant.channel_major() { ConvOrder::ChannelMajor } else { ConvOrder::TokenMajor },
        lower_bound: (!variant.softplus()).then_some(-5.0),
        bf16_state: variant.state() == Elem::BF16,
        ..Switches::plain(if heads > 1 { 2 } else { 5 }, heads, variant.most_tokens() as usize)
    }
}
