//! One run over shapes, contracts and launches.

use super::arena::{Arena, Need};
use super::bandwidth::{Bandwidth, YARDSTICK};
use super::measure::{Contender, Time, in_turn, rounds, sets};
use super::peers::{Answer, Peers};
use super::report::{Row, Who, relate};
use super::shape::Shape;
use super::twin::{self, Kernel};
use super::{Call, Contract, Failure, Launch, Subject, twin_check};
use kda_core::{KernelDesc, PreparedLaunch};
use kda_runtime::executor::cuda::CudaExecutor;
use kda_runtime::operators::preference::{is_named, variant_name};

/// Which of our kernels are timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variants {
    /// What dispatch chooses.
    Auto,
    /// Every one that can run the shape.
    All,
    /// Of those with one name the one that dispatch prefers: for a preference table.
    EachName,
    /// Dispatch's choice and those of this entry or variant name.
    Named(String),
}

impl Variants {
    fn holds(&self, desc: &KernelDesc) -> bool {
        match self {
            Variants::Auto => false,
            Variants::All | Variants::EachName => true,
            Variants::Named(name) => desc.entry == name || is_named(desc.entry, name),
        }
    }
}

/// What is to be timed.
#[derive(Clone, Debug)]
pub struct Request {
    /// At which sizes.
    pub shapes: Vec<Shape>,
    /// With which contracts.
    pub contracts: Vec<Contract>,
    /// Launched in which ways.
    pub launches: Vec<Launch>,
    /// Which of our kernels.
    pub variants: Variants,
    /// With one input set, too; with two where a call must not write what the next reads ahead of its wait.
    pub warm: bool,
    /// The hand-written twin, too.
    pub twin: bool,
    /// Other projects' kernels, too.
    pub peers: bool,
    /// Replays of each graph.
    pub samples: usize,
}

/// What happens in a run.
pub enum Event<'r> {
    /// Results of one shape and contract.
    Rows(&'r [Row]),
    /// Something was not timed, or was checked beside the times.
    Note(String),
    /// One of `shapes * contracts` steps begins.
    Step(String),
}

/// Whoever follows a run.
pub type Watch<'w> = &'w mut dyn FnMut(Event) -> Result<(), Failure>;

/// Runs it.
///
/// # Errors
/// The device refuses memory or a launch; a twin's or peer's failure is a note.
pub fn run(
    executor: &CudaExecutor,
    subject: &dyn Subject,
    bandwidth: Option<Bandwidth>,
    request: &Request,
    watch: Watch,
) -> Result<(), Failure> {
    let mut twins = if request.twin { twins(subject, request, watch)? } else { Vec::new() };
    let mut peers = if request.peers { peers(subject, request, watch)? } else { None };
    let mut arena = Arena::new(executor, need(subject, request)?, 1)?;
    for contract in &request.contracts {
        let own_twin = subject.twin().is_some_and(|twin| twin.contracts().contains(&contract.name));
        let mut checked: Vec<[u64; 3]> = Vec::new();
        for shape in &request.shapes {
            watch(Event::Step(format!("{} {shape}", contract.name)))?;
            let site = Site { executor, subject, contract, shape: *shape, bandwidth, request };
            let calls = site.calls(&mut arena)?;
            site.ahead(&calls)?;
            let key = subject.twin().map_or([0; 3], |twin| twin.check_key(*shape));
            if own_twin && !checked.contains(&key) {
                checked.push(key);
                twin_check::check(executor, calls[0].as_ref(), &mut twins, watch)?;
            }
            let mut rows = site.time_ahead(&calls)?;
            for launch in &request.launches {
                let twins: &[Kernel] = if own_twin { &twins } else { &[] };
                rows.extend(site.time(&calls, *launch, twins, watch)?);
            }
            if !twin_check::is_finite(executor, calls[0].as_ref())? {
                watch(Event::Note(format!("{} {shape}: results are not finite behind the replays", contract.name)))?;
            }
            if let Some(script) = &mut peers {
                match script.ask(contract.name, *shape) {
                    Ok(answers) => rows.extend(site.peers(answers, watch)?),
                    Err(failure) => {
                        watch(Event::Note(format!("peers are not timed from here on: {failure}")))?;
                        peers = None;
                    }
                }
            }
            relate(&mut rows);
            watch(Event::Rows(&rows))?;
        }
    }
    Ok(())
}

/// Bytes of each pool for the largest shape.
fn need(subject: &dyn Subject, request: &Request) -> Result<Need, Failure> {
    let mut need = Need::default();
    let mut arena = Arena::counting();
    for contract in &request.contracts {
        for shape in &request.shapes {
            arena.reset();
            for _ in 0..sets(subject.bytes(contract, *shape)) {
                subject.call(&mut arena, contract, *shape)?;
            }
            need = need.or(arena.used());
        }
    }
    Ok(need)
}

fn twins(subject: &dyn Subject, request: &Request, watch: Watch) -> Result<Vec<Kernel>, Failure> {
    let Some(twin) = subject.twin() else {
        watch(Event::Note(format!("{} has no hand-written twin", subject.name())))?;
        return Ok(Vec::new());
    };
    twin::build(twin, &request.shapes).or_else(|failure| {
        watch(Event::Note(format!("the hand-written twin is not timed: {failure}")))?;
        Ok(Vec::new())
    })
}

fn peers(subject: &dyn Subject, request: &Request, watch: Watch) -> Result<Option<Peers>, Failure> {
    let Some(script) = subject.peers() else {
        watch(Event::Note(format!("{} has no peers", subject.name())))?;
        return Ok(None);
    };
    match Peers::start(script, request.samples, &request.contracts, &request.shapes) {
        Ok((peers, answers)) => {
            for answer in answers {
                note(answer, watch)?;
            }
            Ok(Some(peers))
        }
        Err(failure) => {
            watch(Event::Note(format!("peers are not timed: {failure}")))?;
            Ok(None)
        }
    }
}

/// Shows an answer that is no time.
fn note(answer: Answer, watch: Watch) -> Result<(), Failure> {
    match answer {
        Answer::Skip { kernel, reason } => watch(Event::Note(format!("{kernel} is not timed: {reason}"))),
        Answer::Note(text) => watch(Event::Note(text)),
        Answer::Time { .. } | Answer::Done => Ok(()),
    }
}

/// One shape and contract.
struct Site<'s> {
    executor: &'s CudaExecutor,
    subject: &'s dyn Subject,
    contract: &'s Contract,
    shape: Shape,
    bandwidth: Option<Bandwidth>,
    request: &'s Request,
}

/// What stands for one contender's results.
struct Label {
    who: Who,
    kernel: String,
    chosen: bool,
}

/// A contender: for each call its launches.
type Lined = (Label, Vec<Vec<PreparedLaunch>>);

impl Site<'_> {
    fn bytes(&self) -> f64 {
        self.subject.bytes(self.contract, self.shape)
    }

    fn floor_us(&self) -> f64 {
        self.bytes() / YARDSTICK / 1e6
    }

    /// Calls with input sets of their own.
    fn calls(&self, arena: &mut Arena) -> Result<Vec<Box<dyn Call>>, Failure> {
        arena.reset();
        (0..sets(self.bytes())).map(|_| self.subject.call(arena, self.contract, self.shape)).collect()
    }

    /// Runs what runs once ahead of the calls.
    fn ahead(&self, calls: &[Box<dyn Call>]) -> Result<(), Failure> {
        for call in calls {
            if let Some((_, plan)) = call.ahead(self.executor)? {
                twin_check::once(self.executor, plan.launches())?;
            }
        }
        Ok(())
    }

    /// The time of what runs once ahead of the calls. It has no floor.
    fn time_ahead(&self, calls: &[Box<dyn Call>]) -> Result<Vec<Row>, Failure> {
        let Some((name, _)) = calls[0].ahead(self.executor)? else { return Ok(Vec::new()) };
        let mut launches = Vec::new();
        for call in calls {
            launches.extend(call.ahead(self.executor)?.map(|(_, plan)| plan.launches().to_vec()));
        }
        // SAFETY: the tensors lie in the arena, which outlives this call and with it the contender.
        let contender = unsafe { Contender::new(self.executor, &launches, rounds(0.0, launches.len())) }?;
        let time = in_turn(self.executor, std::slice::from_ref(&contender), self.request.samples)?[0];
        let label = Label { who: Who::Ahead, kernel: name.into(), chosen: false };
        let row = self.row(label, Launch::Plain.name(), time, None, contender.calls);
        Ok(vec![Row { bytes: 0.0, floor_us: 0.0, of_floor: 0.0, of_copy: None, of_fill: None, ..row }])
    }

    /// Launches of all contenders for each call.
    fn launches(&self, calls: &[Box<dyn Call>], launch: Launch, twins: &[Kernel]) -> Result<Vec<Lined>, Failure> {
        let ours = |kernel: Option<&'static KernelDesc>| -> Result<Vec<Vec<PreparedLaunch>>, Failure> {
            calls.iter().map(|call| Ok(call.plan(self.executor, kernel, launch)?.launches().to_vec())).collect()
        };
        let chosen = calls[0].plan(self.executor, None, launch)?.desc();
        let choice = ours(None)?;
        let label = |desc: &KernelDesc, chosen| Label { who: Who::Ours, kernel: desc.entry.into(), chosen };
        let mut all = vec![(label(chosen, true), choice)];
        let mut names = vec![variant_name(chosen.entry)];
        let others = self.subject.kernels().into_iter().filter(|desc| desc.entry != chosen.entry);
        for desc in others.filter(|desc| self.request.variants.holds(desc)) {
            let name = variant_name(desc.entry);
            if self.request.variants == Variants::EachName && names.contains(&name) {
                continue;
            }
            // A variant that this call does not fit is not eligible.
            if calls[0].plan(self.executor, Some(desc), launch).is_ok() {
                all.push((label(desc, false), ours(Some(desc))?));
                names.push(name);
            }
        }
        let configurations = self.subject.twin().map_or(&[][..], |twin| twin.configurations(self.shape));
        for kernel in twins.iter().filter(|kernel| configurations.contains(&kernel.name)) {
            let launches: Option<Vec<_>> = calls.iter().map(|call| call.twin(kernel, launch)).collect();
            if let Some(launches) = launches {
                all.push((Label { who: Who::Twin, kernel: kernel.name.into(), chosen: false }, launches));
            }
        }
        Ok(all)
    }

    /// All contenders in turn.
    fn time(
        &self,
        calls: &[Box<dyn Call>],
        launch: Launch,
        twins: &[Kernel],
        watch: Watch,
    ) -> Result<Vec<Row>, Failure> {
        let (labels, launches): (Vec<Label>, Vec<Vec<Vec<PreparedLaunch>>>) =
            self.launches(calls, launch, twins)?.into_iter().unzip();
        let contenders = |sets: usize| -> Result<Vec<Contender>, Failure> {
            let rounds = rounds(self.floor_us(), sets);
            // SAFETY: the tensors lie in the arena, which outlives this call and with it the contenders.
            launches.iter().map(|all| unsafe { Contender::new(self.executor, &all[..sets], rounds) }).collect()
        };
        let cold = contenders(calls.len())?;
        let times = in_turn(self.executor, &cold, self.request.samples)?;
        let warm = match self.request.warm {
            true if launch == Launch::PdlStable => in_turn(self.executor, &contenders(2)?, self.request.samples)?,
            true => in_turn(self.executor, &contenders(1)?, self.request.samples)?,
            false => Vec::new(),
        };
        let mut rows = Vec::new();
        for (at, label) in labels.into_iter().enumerate() {
            let warm_us = warm.get(at).map(|time| time.us);
            rows.push(self.row(label, launch.name(), times[at], warm_us, cold[at].calls));
        }
        if rows.iter().any(|row| row.p90 > 1.2 * row.p10) {
            let what = format!("{} {} {}", self.contract.name, self.shape, launch.name());
            watch(Event::Note(format!("{what}: times of one kernel are apart by more than a fifth")))?;
        }
        Ok(rows)
    }

    fn row(&self, label: Label, launch: &'static str, time: Time, warm_us: Option<f64>, calls: usize) -> Row {
        let bytes = self.bytes();
        let share = |rate: f64| 100.0 * bytes / rate / 1e6 / time.us;
        Row {
            op: self.subject.name(),
            contract: self.contract.name,
            shape: self.shape,
            launch,
            who: label.who,
            kernel: label.kernel,
            chosen: label.chosen,
            us: time.us,
            p10: time.p10,
            p90: time.p90,
            warm_us,
            bytes,
            floor_us: self.floor_us(),
            of_floor: share(YARDSTICK),
            of_copy: self.bandwidth.map(|bandwidth| share(bandwidth.copy)),
            of_fill: self.bandwidth.map(|bandwidth| share(bandwidth.fill)),
            ratio: None,
            samples: self.request.samples,
            calls,
        }
    }

    fn peers(&self, answers: Vec<Answer>, watch: Watch) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        for answer in answers {
            match answer {
                Answer::Time { kernel, launch, time } => {
                    let Some(launch) = Launch::find(&launch) else {
                        watch(Event::Note(format!("{kernel}: there is no launch `{launch}`")))?;
                        continue;
                    };
                    let label = Label { who: Who::Peer, kernel, chosen: false };
                    rows.push(self.row(label, launch.name(), time, None, 0));
                }
                other => note(other, watch)?,
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::conv_verify::ConvVerify;
    use crate::bench::shape::List;

    #[test]
    fn variants_go_by_entry_or_by_name() {
        let desc = ConvVerify.kernels()[0];
        let name = kda_runtime::operators::preference::variant_name(desc.entry);
        for wanted in [desc.entry.to_string(), name] {
            assert!(Variants::Named(wanted).holds(desc));
        }
        assert!(Variants::All.holds(desc) && !Variants::Auto.holds(desc));
        assert!(!Variants::Named("bv8".into()).holds(desc));
    }

    /// The largest list fits a device of 80 GB.
    #[test]
    fn the_memory_needed_is_that_of_the_largest_shape() {
        let request = Request {
            shapes: ConvVerify.shapes(List::All),
            contracts: ConvVerify.contracts().to_vec(),
            launches: Launch::ALL.to_vec(),
            variants: Variants::Auto,
            warm: false,
            twin: false,
            peers: false,
            samples: 15,
        };
        let gigabytes = need(&ConvVerify, &request).unwrap().bytes() as f64 / 1e9;
        assert!((10.0..20.0).contains(&gigabytes), "{gigabytes}");
    }
}
