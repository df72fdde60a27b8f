//! The files of results.

use crate::cli::Stop;
use kda::bench::Failure;
use kda::bench::environment::Environment;
use kda::bench::report::{CSV_HEAD, Report, Row};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The CSV file, written as results come, and the JSON file, written at the end.
pub struct Files {
    csv: Option<File>,
    json: Option<PathBuf>,
}

impl Files {
    /// Opens what is asked for; the environment is the CSV's first line, a comment.
    pub fn create(csv: Option<&Path>, json: Option<&Path>, environment: &Environment) -> Result<Files, Stop> {
        let csv = csv
            .map(|path| {
                let open = || {
                    let mut file = File::create(path)?;
                    writeln!(file, "# {}\n{CSV_HEAD}", environment.line()).map(|()| file)
                };
                open().map_err(|cause| cannot(path, cause))
            })
            .transpose()?;
        if let Some(path) = json {
            // A run is long: a folder that is not there is said ahead of it.
            File::create(path).map_err(|cause| cannot(path, cause))?;
        }
        Ok(Files { csv, json: json.map(Path::to_path_buf) })
    }

    /// Adds results.
    pub fn rows(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let Some(file) = &mut self.csv else { return Ok(()) };
        let text: String = rows.iter().map(|row| row.csv() + "\n").collect();
        Ok(file.write_all(text.as_bytes())?)
    }

    /// Adds a comment.
    pub fn note(&mut self, note: &str) -> Result<(), Failure> {
        let Some(file) = &mut self.csv else { return Ok(()) };
        Ok(writeln!(file, "# {}", note.replace('\n', " "))?)
    }

    /// Writes all of it.
    pub fn report(&self, report: &Report) -> Result<(), Stop> {
        let Some(path) = &self.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from)?;
        write_whole(path, &(text + "\n"))
    }
}

/// Writes a file beside its place, then puts it there.
pub fn write_whole(path: &Path, text: &str) -> Result<(), Stop> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|cause| cannot(path, cause))
}

fn cannot(path: &Path, cause: std::io::Error) -> Stop {
    Stop::Input(format!("{} cannot be written: {cause}", path.display()))
}
