//! Other projects' kernels, timed by a script in the same run.
//!
//! The script is a process of its own that is asked for one shape after the other, so that ours and theirs are timed in
//! turn. Its lines, fields apart by commas:
//!
//! ```text
//! ask     shape CONTRACT T H N
//! answer  time,KERNEL,LAUNCH,MEDIAN_US,P10_US,P90_US
//!         skip,KERNEL,REASON          it cannot be imported or run: named, not timed
//!         note,TEXT
//!         done                        nothing more of this shape, or at the start: ready
//! ```

use super::measure::Time;
use super::shape::Shape;
use super::twin::locate;
use super::{Contract, Failure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The script compiles ahead of its first answer; nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(540);

/// One line of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A time.
    Time {
        /// Name of the kernel.
        kernel: String,
        /// Name of the launch mode.
        launch: String,
        /// µs a call.
        time: Time,
    },
    /// A kernel that is not timed.
    Skip {
        /// Name of the kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
    /// Something to be shown.
    Note(String),
    /// The answer is complete.
    Done,
}

/// Reads a line.
fn answer(line: &str) -> Result<Answer, String> {
    let wrong = || format!("the script said `{line}`, which is no answer");
    let (word, rest) = line.split_once(',').unwrap_or((line, ""));
    match word {
        "done" => Ok(Answer::Done),
        "note" => Ok(Answer::Note(rest.into())),
        "skip" => {
            let (kernel, reason) = rest.split_once(',').ok_or_else(wrong)?;
            Ok(Answer::Skip { kernel: kernel.into(), reason: reason.into() })
        }
        "time" => {
            let fields: Vec<&str> = rest.split(',').collect();
            let [kernel, launch, us, p10, p90] = fields[..] else { return Err(wrong()) };
            let number =
                |text: &str| text.parse().ok().filter(|us: &f64| us.is_finite() && *us > 0.0).ok_or_else(wrong);
            let time = Time { us: number(us)?, p10: number(p10)?, p90: number(p90)? };
            Ok(Answer::Time { kernel: kernel.into(), launch: launch.into(), time })
        }
        _ => Err(wrong()),
    }
}

/// A running script.
pub struct Peers {
    child: Child,
    ask: ChildStdin,
    lines: Receiver<String>,
}

impl Peers {
    /// Starts a script with `$PYTHON` or python3, names the shapes that it will be asked for, so that it compiles for all of
    /// them at once, and gives what it says of itself.
    ///
    /// # Errors
    /// It cannot be started, or ends at once: in words.
    pub fn start(
        script: &str,
        samples: usize,
        contracts: &[Contract],
        shapes: &[Shape],
    ) -> Result<(Peers, Vec<Answer>), Failure> {
        let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let script = locate(script);
        let mut command = Command::new(&python);
        command.arg("-u").arg(&script).args(["--serve", "--samples", &samples.to_string()]);
        for contract in contracts {
            command.args(shapes.iter().map(|shape| format!("{}:{shape}", contract.name)));
        }
        Peers::spawn(command).map_err(|cause| format!("{} {}: {cause}", python.display(), script.display()).into())
    }

    fn spawn(mut command: Command) -> Result<(Peers, Vec<Answer>), Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let (ask, out) = (child.stdin.take(), child.stdout.take());
        let (Some(ask), Some(out)) = (ask, out) else { return Err("its streams cannot be opened".into()) };
        let (send, lines) = channel();
        std::thread::spawn(move || {
            // The thread ends with the script's output, or when nobody listens any more.
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let peers = Peers { child, ask, lines };
        let ready = peers.answers()?;
        Ok((peers, ready))
    }

    /// Asks for one shape.
    ///
    /// # Errors
    /// The script ended, answers nonsense or not at all: in words.
    pub fn ask(&mut self, contract: &str, shape: Shape) -> Result<Vec<Answer>, Failure> {
        let Shape { t, h, n } = shape;
        writeln!(self.ask, "shape {contract} {t} {h} {n}").map_err(|cause| format!("it has ended: {cause}"))?;
        self.answers()
    }

    fn answers(&self) -> Result<Vec<Answer>, Failure> {
        let mut answers = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).map_err(|cause| match cause {
                RecvTimeoutError::Timeout => format!("no answer within {} s", PATIENCE.as_secs()),
                RecvTimeoutError::Disconnected => "it has ended".to_string(),
            })?;
            match answer(&line)? {
                Answer::Done => return Ok(answers),
                other => answers.push(other),
            }
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_or_refused() {
        let time = Time { us: 7.5, p10: 7.0, p90: 8.25 };
        let expected = Answer::Time { kernel: "fla".into(), launch: "plain".into(), time };
        assert_eq!(answer("time,fla,plain,7.5,7.0,8.25"), Ok(expected));
        let expected = Answer::Skip { kernel: "fused".into(), reason: "no module a, b".into() };
        assert_eq!(answer("skip,fused,no module a, b"), Ok(expected));
        assert_eq!(answer("done"), Ok(Answer::Done));
        for wrong in ["", "hello", "time,fla,plain,7.5", "time,fla,plain,nan,1,1", "time,fla,plain,-1,1,1", "skip,x"] {
            assert!(answer(wrong).unwrap_err().contains("no answer"), "{wrong}");
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_script_is_asked_one_shape_after_the_other() {
        let script =
            "echo skip,a,why; echo done; while read w c t h n; do echo time,$c,plain,$t,$h,$n; echo done; done";
        let (mut peers, ready) = Peers::spawn(shell(script)).unwrap();
        assert_eq!(ready, [Answer::Skip { kernel: "a".into(), reason: "why".into() }]);
        for t in [4, 6] {
            let answers = peers.ask("fp32", Shape { t, h: 8, n: 2 }).unwrap();
            let time = Time { us: t as f64, p10: 8.0, p90: 2.0 };
            assert_eq!(answers, [Answer::Time { kernel: "fp32".into(), launch: "plain".into(), time }]);
        }
    }

    #[test]
    fn a_script_that_ends_is_an_error() {
        let error = Peers::spawn(shell("exit 3")).err().expect("an error").to_string();
        assert!(error.contains("it has ended"), "{error}");
        let (mut peers, _) = Peers::spawn(shell("echo done; read line; exit 0")).unwrap();
        assert!(peers.ask("fp32", Shape { t: 4, h: 8, n: 1 }).unwrap_err().to_string().contains("ended"));
    }
}
