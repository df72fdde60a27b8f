//! Finds the kernel that a command names, or says which names are near.

use super::Stop;
use clap::Args;
use kda::core::{Arch, KernelDesc};

/// A kernel, by its entry.
#[derive(Args, Clone, Debug)]
#[group(id = "kernel")]
pub struct Arguments {
    /// PTX entry of the kernel, as `kda list` shows it.
    pub entry: String,
    /// Target, such as sm_90a; needed where a kernel exists for several.
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
}

/// The one kernel of that entry, and of that target if one is given.
pub fn select(kernels: &[&'static KernelDesc], arguments: &Arguments) -> Result<&'static KernelDesc, Stop> {
    let entry = arguments.entry.as_str();
    let named: Vec<&'static KernelDesc> = kernels.iter().copied().filter(|desc| desc.entry == entry).collect();
    if named.is_empty() {
        let names: Vec<&str> = kernels.iter().map(|desc| desc.entry).collect();
        return Err(Stop::Input(format!("there is no kernel `{entry}`{}", hint(entry, &names, "kda list"))));
    }
    let targets = named.iter().map(|desc| desc.arch.to_string()).collect::<Vec<_>>().join(", ");
    let matching: Vec<&'static KernelDesc> = match &arguments.arch {
        None => named,
        Some(name) => {
            let Some(arch) = Arch::from_name(name) else {
                return Err(Stop::Input(format!("`{name}` is not a target; a name such as sm_90a is needed")));
            };
            named.into_iter().filter(|desc| desc.arch == arch).collect()
        }
    };
    match (matching.as_slice(), &arguments.arch) {
        ([desc], _) => Ok(desc),
        ([], Some(arch)) => Err(Stop::Input(format!("kernel `{entry}` is not built for {arch}, but for {targets}"))),
        _ => Err(Stop::Input(format!("kernel `{entry}` is built for {targets}; choose with --arch"))),
    }
}

/// How an error about an unknown name goes on: near names, or where all of them are shown.
pub fn hint(given: &str, names: &[&str], all: &str) -> String {
    let near = near(given, names);
    if names.is_empty() {
        "; there are none in this build".into()
    } else if near.is_empty() {
        format!("; `{all}` shows all {}", names.len())
    } else {
        let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
        format!("; near it: {}", quoted.join(", "))
    }
}

/// Up to three names near `given`, nearest first: few edits away, or containing it.
fn near<'n>(given: &str, names: &[&'n str]) -> Vec<&'n str> {
    let limit = (given.chars().count() / 3).max(2);
    let mut found: Vec<(usize, &str)> = names
        .iter()
        .map(|&name| (edits(given, name), name))
        .filter(|&(distance, name)| distance <= limit || (given.len() >= 3 && name.contains(given)))
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Insertions, deletions and replacements of characters that turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{SCALE_90, SCALE_100, VERIFY};

    fn find(entry: &str, arch: Option<&str>) -> Result<&'static KernelDesc, String> {
        let arguments = Arguments { entry: entry.into(), arch: arch.map(String::from) };
        select(&[&VERIFY, &SCALE_90, &SCALE_100], &arguments).map_err(|stop| stop.to_string())
    }

    #[test]
    fn edit_distances() {
        for (a, b, distance) in
            [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0), ("ab", "ba", 2)]
        {
            assert_eq!(edits(a, b), distance, "{a} {b}");
            assert_eq!(edits(b, a), distance, "{b} {a}");
        }
    }

    #[test]
    fn a_kernel_is_found_by_entry_and_target() {
        assert_eq!(find("verify__t4", None), Ok(&VERIFY));
        assert_eq!(find("scale", Some("sm_100f")), Ok(&SCALE_100));
        let error = find("scale", None).unwrap_err();
        assert!(error.contains("sm_90a, sm_100f") && error.contains("--arch"), "{error}");
        let error = find("scale", Some("sm_80")).unwrap_err();
        assert!(error.contains("sm_80") && error.contains("sm_90a, sm_100f"), "{error}");
        assert!(find("scale", Some("hopper")).unwrap_err().contains("`hopper` is not a target"));
    }

    #[test]
    fn an_unknown_name_brings_near_ones() {
        assert!(find("verfy__t4", None).unwrap_err().ends_with("near it: `verify__t4`"));
        assert!(find("verify", None).unwrap_err().contains("`verify__t4`"));
        assert!(find("attention", None).unwrap_err().ends_with("`kda list` shows all 3"));
        let arguments = Arguments { entry: "scale".into(), arch: None };
        assert!(select(&[], &arguments).unwrap_err().to_string().contains("none in this build"));
    }
}
