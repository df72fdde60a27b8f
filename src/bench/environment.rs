//! On what, when and by which command something was measured.

use serde::Serialize;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The facts beside every result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Device, compute capability, multiprocessors, CUDA release of the driver.
    pub device: String,
    /// Driver version and clocks as nvidia-smi gives them; why not, where it does not.
    pub driver: String,
    /// UTC, to the minute.
    pub date: String,
    /// Version of this crate.
    pub version: &'static str,
    /// The command line.
    pub command: String,
}

impl Environment {
    /// Asks the machine.
    pub fn of(device: String) -> Environment {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut words = std::env::args();
        // The folder of the command says nothing.
        let program = words.next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or("kda").to_string();
        Environment {
            device,
            driver: driver(),
            date: date(seconds),
            version: env!("CARGO_PKG_VERSION"),
            command: std::iter::once(name).chain(words.map(|word| without_folder(&word))).collect::<Vec<_>>().join(" "),
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        format!("{}; {}; {} UTC; kda {}; {}", self.device, self.driver, self.date, self.version, self.command)
    }
}

/// An argument without the folder of the file that it names: that says nothing on another machine.
fn without_folder(word: &str) -> String {
    let (option, value) = word.split_once('=').map_or(("", word), |(option, value)| (option, value));
    let file = value.rsplit('/').next().unwrap_or(value);
    if option.is_empty() { file.into() } else { format!("{option}={file}") }
}

/// What nvidia-smi says.
fn driver() -> String {
    let query = ["driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem"].join(",");
    let asked = Command::new("nvidia-smi")
        .args([&format!("--query-gpu={query}"), "--format=csv,noheader,nounits", "--id=0"])
        .output();
    let text = match asked {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(_) | Err(_) => String::new(),
    };
    facts(&text).unwrap_or_else(|| "driver version and clocks unknown: nvidia-smi does not say".into())
}

/// Reads nvidia-smi's line.
fn facts(text: &str) -> Option<String> {
    let fields: Vec<&str> = text.lines().next()?.split(',').map(str::trim).collect();
    let [version, sm, memory, most_sm, most_memory] = fields[..] else { return None };
    Some(format!(
        "driver {version}, SM clock {sm} of {most_sm} MHz and memory clock {memory} of {most_memory} MHz at the start"
    ))
}

/// Date and minute of seconds since 1970, UTC. Years start in March here, so that the leap day is their last.
fn date(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    // Days since 0000-03-01, eras of 400 years of 146 097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{date:02} {:02}:{:02}", era * 400 + year + later, minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (951_868_800, "2000-03-01 00:00"),
            (1_735_689_599, "2024-12-31 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn the_driver_is_read_or_unknown() {
        let line = "580.159.03, 345, 3201, 1980, 3201\n";
        let expected = "driver 580.159.03, SM clock 345 of 1980 MHz and memory clock 3201 of 3201 MHz at the start";
        assert_eq!(facts(line).as_deref(), Some(expected));
        assert_eq!(facts(""), None);
        assert_eq!(facts("No devices were found"), None);
        assert!(!driver().is_empty());
    }
}
