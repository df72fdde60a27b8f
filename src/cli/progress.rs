//! A progress bar for long runs, on standard error and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// A bar over `steps` steps; draws nothing where standard error is not a terminal.
pub fn bar(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent}% {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}
