//! What a result is, as CSV and JSON give it.

use super::bandwidth::Bandwidth;
use super::environment::Environment;
use super::shape::Shape;
use serde::Serialize;

/// Whose kernel was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// A variant of this build.
    Ours,
    /// The same design written by hand in CUDA C++.
    Twin,
    /// Another project's kernel.
    Peer,
    /// What runs once ahead of any number of our calls.
    Ahead,
}

impl Who {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Who::Ours => "ours",
            Who::Twin => "twin",
            Who::Peer => "peer",
            Who::Ahead => "ahead",
        }
    }
}

/// One kernel at one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Operator.
    pub op: &'static str,
    /// Contract.
    pub contract: &'static str,
    /// Tokens, heads and requests.
    #[serde(flatten)]
    pub shape: Shape,
    /// Name of the launch mode.
    pub launch: &'static str,
    /// Whose kernel.
    pub who: Who,
    /// Entry, or the name of the configuration.
    pub kernel: String,
    /// Dispatch chose it.
    pub chosen: bool,
    /// Median, µs a call.
    pub us: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Median with one input set, so that what fits L2 is there.
    pub warm_us: Option<f64>,
    /// Bytes that a call reads and writes at least.
    pub bytes: f64,
    /// These at 4.3 TB/s.
    pub floor_us: f64,
    /// The floor's share of the time, percent; at 4.3 TB/s.
    pub of_floor: f64,
    /// At the copy bandwidth of this run.
    pub of_copy: Option<f64>,
    /// At the fill bandwidth of this run.
    pub of_fill: Option<f64>,
    /// Time relative to that of dispatch's choice with the same launch, shape and contract.
    pub ratio: Option<f64>,
    /// Replays.
    pub samples: usize,
    /// Calls of a replay.
    pub calls: usize,
}

/// Heads of the CSV columns.
pub const CSV_HEAD: &str = "op,contract,T,H,N,NHV,launch,who,kernel,chosen,us,p10,p90,warm_us,bytes,floor_us,of_floor,of_copy,of_fill,ratio,samples,calls";

impl Row {
    /// One line of CSV, without its end.
    pub fn csv(&self) -> String {
        let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.4}"));
        let Shape { t, h, n } = self.shape;
        let kernel = self.kernel.replace([',', '"', '\n'], " ");
        format!(
            "{},{},{t},{h},{n},{},{},{},{kernel},{},{:.4},{:.4},{:.4},{},{},{:.4},{:.2},{},{},{},{},{}",
            self.op,
            self.contract,
            self.shape.pairs(),
            self.launch,
            self.who.name(),
            u8::from(self.chosen),
            self.us,
            self.p10,
            self.p90,
            number(self.warm_us),
            self.bytes,
            self.floor_us,
            self.of_floor,
            number(self.of_copy),
            number(self.of_fill),
            number(self.ratio),
            self.samples,
            self.calls,
        )
    }
}

/// Fills in the ratios of rows of one shape and contract.
pub fn relate(rows: &mut [Row]) {
    let chosen: Vec<(&'static str, f64)> =
        rows.iter().filter(|row| row.chosen).map(|row| (row.launch, row.us)).collect();
    for row in rows {
        let base = chosen.iter().find(|(launch, _)| *launch == row.launch);
        row.ratio = base.map(|(_, us)| row.us / us);
    }
}

/// Everything of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// On what, when and how.
    pub environment: Environment,
    /// The memory's speed.
    pub bandwidth: Option<Bandwidth>,
    /// What was not timed and why, and what was checked beside the times.
    pub notes: Vec<String>,
    /// The results.
    pub rows: Vec<Row>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row for tests.
    pub(crate) fn row(shape: Shape, launch: &'static str, who: Who, kernel: &str, chosen: bool, us: f64) -> Row {
        Row {
            op: "conv_verify",
            contract: "fp32",
            shape,
            launch,
            who,
            kernel: kernel.into(),
            chosen,
            us,
            p10: us,
            p90: us,
            warm_us: None,
            bytes: 4.3e6,
            floor_us: 1.0,
            of_floor: 100.0 / us,
            of_copy: Some(90.0 / us),
            of_fill: None,
            ratio: None,
            samples: 15,
            calls: 20,
        }
    }

    const SHAPE: Shape = Shape { t: 4, h: 8, n: 2 };

    #[test]
    fn every_line_has_a_cell_for_each_head() {
        let heads = CSV_HEAD.split(',').count();
        let line = row(SHAPE, "plain", Who::Ours, "verify__t4", true, 5.0).csv();
        assert_eq!(line.split(',').count(), heads, "{line}");
        assert!(line.starts_with("conv_verify,fp32,4,8,2,16,plain,ours,verify__t4,1,5.0000,"), "{line}");
        let odd = row(SHAPE, "plain", Who::Peer, "a,b\"c", false, 5.0).csv();
        assert_eq!(odd.split(',').count(), heads, "{odd}");
    }

    #[test]
    fn ratios_are_to_the_choice_with_the_same_launch() {
        let mut rows = vec![
            row(SHAPE, "plain", Who::Ours, "a", true, 5.0),
            row(SHAPE, "plain", Who::Twin, "b", false, 10.0),
            row(SHAPE, "pdl", Who::Twin, "b", false, 10.0),
        ];
        relate(&mut rows);
        assert_eq!(rows.iter().map(|row| row.ratio).collect::<Vec<_>>(), [Some(1.0), Some(2.0), None]);
    }

    #[test]
    fn json_names_every_column() {
        let report = Report {
            environment: Environment {
                device: "a device".into(),
                driver: "a driver".into(),
                date: "2026-01-01 00:00".into(),
                version: "0.0.0",
                command: "kda bench".into(),
            },
            bandwidth: Some(Bandwidth { copy: 4.2, fill: 4.6 }),
            notes: vec!["a note".into()],
            rows: vec![row(SHAPE, "plain", Who::Ours, "a", true, 5.0)],
        };
        let value: serde_json::Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        let first = &value["rows"][0];
        for name in ["op", "contract", "t", "h", "n", "launch", "who", "kernel", "us", "p10", "p90", "floor_us"] {
            assert!(!first[name].is_null(), "{name}");
        }
        assert_eq!(first["who"], "ours");
        assert_eq!(value["bandwidth"]["fill"], 4.6);
    }
}
