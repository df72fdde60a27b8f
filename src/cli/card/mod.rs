//! `kda card`: one kernel on a page. The facts are the kernel's description; the page is the template beside this file.

mod shared;

use super::select::{Arguments, select};
use super::table::{Align, Table};
use super::{Stop, Streams, Verdict};
use kda::core::desc::{DimDesc, StrideDesc};
use kda::core::{Expr, KernelDesc, ParamDesc, ParamKind};
use serde::Serialize;
use tera::{Context, Tera};

const TEMPLATE: &str = include_str!("card.txt.tera");
/// Registers of a multiprocessor.
const REGISTERS: u32 = 65_536;
/// Most registers that a thread can name.
const MOST_REGISTERS: u32 = 255;

/// What the template shows.
#[derive(Serialize)]
struct Card {
    entry: &'static str,
    family: &'static str,
    kernel: &'static str,
    arch: String,
    isa: String,
    source: String,
    consts: Vec<String>,
    grid: Vec<String>,
    threads: u32,
    warps: u32,
    blocks_per_sm: u32,
    cluster: u32,
    pdl: bool,
    shared_bytes: u32,
    shared: Vec<String>,
    launch_registers: u32,
    roles: Vec<String>,
    role_registers: u32,
    barriers: Vec<String>,
    protocol: String,
    param_bytes: u32,
    params: Vec<String>,
    requires: Vec<&'static str>,
}

/// Prints the card of a kernel.
pub fn run(arguments: &Arguments, kernels: &[&'static KernelDesc], streams: &mut Streams) -> Result<Verdict, Stop> {
    let text = render(select(kernels, arguments)?)?;
    streams.out.write_all(text.as_bytes())?;
    Ok(Verdict::Passed)
}

fn render(desc: &'static KernelDesc) -> Result<String, Stop> {
    let failed = |cause: tera::Error| Stop::Input(format!("the card of {} cannot be drawn: {cause}", desc.entry));
    let context = Context::from_serialize(Card::of(desc)).map_err(failed)?;
    Tera::one_off(TEMPLATE, &context, false).map_err(failed)
}

impl Card {
    fn of(desc: &'static KernelDesc) -> Card {
        let launch = launch_registers(desc);
        Card {
            entry: desc.entry,
            family: desc.family,
            kernel: desc.kernel,
            arch: desc.arch.to_string(),
            isa: desc.isa.to_string(),
            source: format!("{}:{}", desc.source.file, desc.source.line),
            consts: desc.consts.iter().map(|c| format!("{} = {}", c.name, c.value)).collect(),
            grid: desc.grid.iter().map(grid_axis).collect(),
            threads: desc.block,
            warps: desc.block.div_ceil(32),
            blocks_per_sm: desc.min_blocks_per_sm,
            cluster: desc.cluster,
            pdl: desc.pdl,
            shared_bytes: desc.shared_bytes,
            shared: shared::map(desc.shared, desc.shared_bytes),
            launch_registers: launch,
            roles: roles(desc, launch),
            role_registers: desc.roles.iter().map(|r| r.warps * 32 * r.registers.unwrap_or(launch)).sum(),
            barriers: barriers(desc),
            protocol: desc.protocol.to_string(),
            param_bytes: desc.param_bytes,
            params: params(desc),
            requires: desc.requires.iter().map(|r| r.text).collect(),
        }
    }
}

/// A grid size, in parentheses where it is more than a name or a number.
fn grid_axis(size: &Expr) -> String {
    match size {
        Expr::Int(_) | Expr::Name(_) => size.to_string(),
        _ => format!("({size})"),
    }
}

/// Most registers a thread that leave room for the CTAs an SM is to hold; the hardware allots them in eights.
fn launch_registers(desc: &KernelDesc) -> u32 {
    let threads = desc.block.max(1).saturating_mul(desc.min_blocks_per_sm.max(1));
    (REGISTERS / threads / 8 * 8).min(MOST_REGISTERS)
}

fn roles(desc: &KernelDesc, launch: u32) -> Vec<String> {
    if desc.roles.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&[
        ("role", Align::Left),
        ("warps", Align::Left),
        ("threads", Align::Right),
        ("registers a thread", Align::Right),
    ]);
    for role in desc.roles {
        let last = (role.first_warp + role.warps).saturating_sub(1);
        table.row([
            role.name.into(),
            if role.warps > 1 { format!("{} to {last}", role.first_warp) } else { role.first_warp.to_string() },
            (role.warps * 32).to_string(),
            role.registers.map_or_else(|| format!("{launch} (as launched)"), |count| count.to_string()),
        ]);
    }
    table.lines()
}

fn barriers(desc: &KernelDesc) -> Vec<String> {
    if desc.barriers.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&[("id", Align::Right), ("name", Align::Left), ("threads", Align::Right)]);
    for barrier in desc.barriers {
        table.row([barrier.id.to_string(), barrier.name.into(), barrier.threads.to_string()]);
    }
    table.lines()
}

fn params(desc: &KernelDesc) -> Vec<String> {
    if desc.params.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&[
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("name", Align::Left),
        ("is", Align::Left),
        ("notes", Align::Left),
    ]);
    for param in desc.params {
        let (is, notes) = describe(desc, param);
        table.row([param.offset.to_string(), param.bytes.to_string(), param.name.into(), is, notes]);
    }
    table.lines()
}

fn describe(desc: &KernelDesc, param: &ParamDesc) -> (String, String) {
    match param.kind {
        ParamKind::Tensor(tensor) => {
            let list = |of: &dyn Fn(&DimDesc) -> String| tensor.dims.iter().map(of).collect::<Vec<_>>().join(", ");
            let sizes = list(&|dim| dim.size.to_string());
            let strides = list(&|dim| match dim.stride {
                StrideDesc::Const(stride) => stride.to_string(),
                StrideDesc::Param(name) => name.to_string(),
                StrideDesc::Any => "any".to_string(),
            });
            let mut notes = vec![
                if tensor.writes { "written" } else { "read" }.to_string(),
                format!("strides [{strides}]"),
                format!("aligned to {}", tensor.align),
            ];
            if tensor.optional {
                notes.push("may be absent".into());
            }
            if tensor.stable {
                notes.push("not written by the predecessor".into());
            }
            (format!("{} [{sizes}]", tensor.elem), notes.join(", "))
        }
        ParamKind::TensorMap(map) => {
            let sizes: Vec<_> = map.dims.iter().map(|dim| dim.size.to_string()).collect();
            let tile: Vec<_> = map.tile.iter().map(ToString::to_string).collect();
            let access = if map.writes { "written" } else { "read" };
            let absent = if map.optional { ", may be absent" } else { "" };
            let notes = format!("{access} by copies of [{}], swizzle {:?}{absent}", tile.join(", "), map.swizzle);
            (format!("map of {} [{}]", map.elem, sizes.join(", ")), notes)
        }
        ParamKind::Scalar(elem) => (format!("scalar {elem}"), String::new()),
        ParamKind::Dim => ("size u32".into(), "from the tensors that name it".into()),
        ParamKind::Stride { tensor, axis } => {
            let of = desc.params.get(tensor as usize).map_or("?", |param| param.name);
            ("stride u64, elements".into(), format!("of `{of}` along axis {axis}"))
        }
        ParamKind::Present { tensor } => {
            let of = desc.params.get(tensor as usize).map_or("?", |param| param.name);
            ("flag u32".into(), format!("1 if `{of}` is there, else 0"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{SCALE_90, VERIFY};

    #[test]
    fn the_card_shows_everything_the_description_holds() {
        let card = render(&VERIFY).unwrap();
        for part in [
            "verify__t4    sm_90a, PTX 8.0\nfamily conv_verify, kernel verify, kda-kernels/src/conv_verify.rs:42\nconstants: T = 4\n\nLAUNCH\n",
            "(n * 2) x 1 x 1 CTAs",
            "384 threads in 12 warps",
            "cluster     2 CTAs",
            "73784 bytes, dynamic",
            "bf16 [2, 128, 128]",
            "168 registers a thread at most, at launch",
            "producer  0 to 3       128                  40",
            "together 64512 of 65536 registers",
            " 1  consumers      256",
            "f32 [n, 128]",
            "written, strides [state_stride_0, 1], aligned to 16, not written by the predecessor",
            "of `state` along axis 0",
            "scalar f32",
            "REQUIRES\n  n > 0\n",
        ] {
            assert!(card.contains(part), "no `{part}` in\n{card}");
        }
        assert!(card.lines().all(|line| line == line.trim_end()), "{card}");
    }

    #[test]
    fn a_kernel_with_none_of_anything_says_so() {
        let card = render(&SCALE_90).unwrap();
        for part in [
            "0 bytes, dynamic\n  none\n",
            "every warp does the same",
            "NAMED BARRIERS\n  none\n",
            "PARAMETERS  0 bytes\n  none\n",
            "REQUIRES\n  nothing beyond the shapes above\n",
            "dependent   no",
        ] {
            assert!(card.contains(part), "no `{part}` in\n{card}");
        }
        assert!(!card.contains("cluster") && !card.contains("constants"), "{card}");
    }
}
