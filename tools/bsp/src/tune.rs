//! `weir tune`: the same supersteps with each value of a setting, in turns, and which of them is
//! best.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use weir_bsp::tuning::{self, MOST_SLOT_US, OwnQueue, Tried};
use weir_report::units;

use crate::args::TuneArgs;
use crate::measure::{Measuring, Progress};
use crate::params::{By, Pattern};
use crate::relation::Part;
use crate::sys::{Area, Program};
use crate::tune_rule::{AS_FAST, LITTLE_SCATTER, Times, choose};
use crate::{Error, put, relation};

/// Supersteps with one value before another has its turn: what the machine does meanwhile is to hit
/// all alike.
const AT_A_TIME: usize = 8;
/// Of these the first ones are not counted: windows and rates are of the value before.
const NOT_COUNTED: usize = 2;
/// Slots that are tried of themselves, as shares of the time that a packet took without slots:
/// from what no medium carries to what leaves a third of it idle.
const SLOT_SHARES: [f64; 8] = [0.6, 0.8, 0.95, 1.0, 1.05, 1.15, 1.3, 1.5];
/// What a full packet carries on a network whose packets have 1500 bytes.
const PACKET_BYTES: f64 = 1428.0;

/// The setting that is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Queue,
    Slot,
}

impl Setting {
    fn variable(self) -> &'static str {
        match self {
            Setting::Queue => "WEIR_BSP_QUEUE",
            Setting::Slot => "WEIR_BSP_SLOT",
        }
    }

    /// For people.
    fn words(self) -> &'static str {
        match self {
            Setting::Queue => "own queue",
            Setting::Slot => "slot",
        }
    }

    fn default_value(self) -> Tried {
        match self {
            Setting::Queue => Tried::Queue(OwnQueue::default()),
            Setting::Slot => Tried::SlotUs(0),
        }
    }
}

/// A value, as the variable takes it.
fn value_text(value: Tried) -> String {
    match value {
        Tried::Queue(queue) => queue.to_string(),
        Tried::SlotUs(0) => "none".into(),
        Tried::SlotUs(us) => us.to_string(),
    }
}

/// What was measured with one value.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The value, of the own queue, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// ... or of slots, microseconds, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Times of supersteps, of the slowest process each.
    #[serde(flatten)]
    pub times: Times,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// Version of this document.
    pub weir_tune: u64,
    /// Processes.
    pub p: u32,
    /// Hosts that they ran on.
    pub hosts: u32,
    /// Who sent to whom.
    pub pattern: Pattern,
    /// The most bytes that a process sends or gets in a superstep.
    pub h_bytes: u64,
    /// In ascending order of the value.
    pub trials: Vec<Trial>,
    /// The variable to be set, ...
    pub variable: &'static str,
    /// ... and its best value.
    pub chosen: String,
    /// It is what is used if nothing is set.
    pub is_default: bool,
    #[serde(skip)]
    setting: Setting,
}

impl Trial {
    fn value(&self) -> &str {
        self.queue.as_deref().or(self.slot.as_deref()).unwrap_or_default()
    }
}

/// Own queues in the order of the rule: bytes ascending; what follows the rate of the network
/// stands where it mostly lies, and the system's own, which is the most, last.
fn ascending(args: &TuneArgs) -> Vec<Tried> {
    let mut queues: Vec<OwnQueue> = args.queues.clone();
    queues.push(OwnQueue::Auto);
    queues.sort_by_key(|queue| match queue {
        OwnQueue::Bytes(bytes) => (0, *bytes),
        OwnQueue::Auto => (1, 0),
        OwnQueue::System => (2, 0),
    });
    queues.dedup();
    queues.into_iter().map(Tried::Queue).collect()
}

/// Slots in their order, none first. Where none are named, those around `packet_us`, the time that
/// a packet takes without slots.
fn slots(named: &[u64], packet_us: f64) -> Vec<Tried> {
    let around = || SLOT_SHARES.iter().map(|share| ((share * packet_us).round() as u64).clamp(1, MOST_SLOT_US));
    let mut slots: Vec<u64> = if named.is_empty() { around().collect() } else { named.to_vec() };
    slots.push(0);
    slots.sort_unstable();
    slots.dedup();
    slots.into_iter().map(Tried::SlotUs).collect()
}

/// Measures, as one process of a job. Process 0 gets what came of it.
///
/// # Errors
/// If there is nothing to be tuned.
pub fn measure(args: &TuneArgs) -> Result<Option<Tuned>, Error> {
    let program = Program::begin();
    let (p, pid) = (program.p(), program.pid());
    if p < 2 {
        program.end();
        let what = "one process alone sends nothing: start at least 2, on the hosts that are to be tuned";
        return Err(Error::Usage(what.into()));
    }
    let rounds = (args.samples as usize).div_ceil(AT_A_TIME - NOT_COUNTED);
    let progress = Progress::new((args.quiet, args.bar), pid == 0, p, rounds);
    let mut at = Measuring::new(program, 1, progress);
    let hosts = at.hosts();
    let parts = relation::parts(args.pattern, p, pid, args.h, relation::share(args.pattern, p, args.h));
    let bytes = usize::try_from(relation::area_bytes(p, args.h)).unwrap_or(usize::MAX);
    let area = at.program.area(bytes);
    at.program.sync(c"tune:area");
    let (setting, values) = match &args.slots {
        None => (Setting::Queue, ascending(args)),
        Some(named) if named.is_empty() => (Setting::Slot, slots(&[], packet_us(&mut at, &area, &parts))),
        Some(named) => (Setting::Slot, slots(named, 0.0)),
    };
    at.progress.say(&intent(args, p as u32, (setting, &values)));
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); values.len()];
    let begun = std::time::Instant::now();
    for round in 0..rounds {
        at.progress.begin(setting.words());
        for turn in 0..values.len() {
            // Each comes after each other one: the last of a round leaves its traces in the next.
            let nth = (turn + round) % values.len();
            tuning::try_out(values[nth]);
            let own = at.supersteps(&area, (&parts, By::Hpput), AT_A_TIME, c"tune:exchange");
            let slowest = at.slowest_of(&own);
            times[nth].extend(slowest.into_iter().skip(NOT_COUNTED));
        }
        // Where no packets carry the first supersteps all others would be measured in vain.
        let is_vain = round == 0 && told(&mut at) == 0.0;
        // Process 0 says for all when time is up.
        let is_over = is_vain || (begun.elapsed().as_secs_f64() > args.time && round > 0);
        if at.tell(f64::from(u8::from(is_over))) > 0.0 {
            break;
        }
    }
    at.progress.end();
    let told = told(&mut at);
    at.program.end();
    if pid > 0 {
        return Ok(None);
    }
    if told == 0.0 {
        return Err(Error::Usage(NOTHING.into()));
    }
    let h_bytes = parts.iter().map(|part| part.h_bytes).max().unwrap_or(0);
    Ok(tuned((p as u32, hosts), (args.pattern, h_bytes), (setting, &values), &times))
}

/// What a packet takes without slots, microseconds: a superstep's time over the packets of all
/// processes. All get the same.
fn packet_us(at: &mut Measuring, area: &Area, parts: &[Part]) -> f64 {
    tuning::try_out(Tried::SlotUs(0));
    let own = at.supersteps(area, (parts, By::Hpput), AT_A_TIME, c"tune:exchange");
    let slowest = at.slowest_of(&own);
    let bytes = parts.iter().flat_map(|part| &part.puts).map(|put| put.bytes as f64).sum::<f64>();
    let packets = at.sum_of(bytes / parts.len().max(1) as f64) / PACKET_BYTES;
    let median_ns = Times::of(slowest.get(NOT_COUNTED..).unwrap_or_default()).median_ns;
    at.tell(median_ns * 1e-3 / packets.max(1.0))
}

/// How often the endpoint of a process was told how much may wait, the most of all processes:
/// process 0 gets it.
fn told(at: &mut Measuring) -> f64 {
    at.slowest_of(&[tuning::told() as f64]).first().copied().unwrap_or(0.0)
}

/// What is measured, in a line.
fn intent(args: &TuneArgs, p: u32, (setting, values): (Setting, &[Tried])) -> String {
    let all: Vec<String> = values.iter().map(|value| value_text(*value)).collect();
    format!(
        "tries {} = {}: supersteps of {p} processes, {}, h {}, with each in turns, {} with each or {} s in all",
        setting.variable(),
        all.join(", "),
        args.pattern.words(),
        units::size(args.h),
        args.samples,
        args.time
    )
}

const NOTHING: &str = "these processes share memory: no packets carry their supersteps, and there is nothing to be tuned. Start them on several hosts (weir run --hosts), or try packets here with WEIR_CARRIER=udp";

fn tuned(
    (p, hosts): (u32, u32),
    (pattern, h_bytes): (Pattern, u64),
    (setting, values): (Setting, &[Tried]),
    times: &[Vec<f64>],
) -> Option<Tuned> {
    let all: Vec<Times> = times.iter().map(|times| Times::of(times)).collect();
    let default = setting.default_value();
    let chosen = *values.get(choose(&all, values.iter().position(|value| *value == default))?)?;
    let of = |which, value| (setting == which).then(|| value_text(value));
    let trial = |(value, times): (&Tried, _)| Trial {
        queue: of(Setting::Queue, *value),
        slot: of(Setting::Slot, *value),
        times,
    };
    let trials = values.iter().zip(all).map(trial).collect();
    Some(Tuned {
        weir_tune: 1,
        p,
        hosts,
        pattern,
        h_bytes,
        trials,
        variable: setting.variable(),
        chosen: value_text(chosen),
        is_default: chosen == default,
        setting,
    })
}

impl Tuned {
    /// As a table, with what to do.
    #[must_use]
    pub fn text(&self) -> String {
        let (pattern, size) = (self.pattern.words(), units::size(self.h_bytes));
        let mut s = format!("{pattern}, h {size}, {} processes on {} hosts\n\n", self.p, self.hosts);
        let _ = writeln!(
            s,
            "{:>10} {:>6} {:>12} {:>12} {:>8} {:>8}",
            self.setting.words(),
            "count",
            "median",
            "mean",
            "sd/mean",
            "scatter"
        );
        for trial in &self.trials {
            let (value, t) = (trial.value(), &trial.times);
            let mark = if value == self.chosen { "  chosen" } else { "" };
            let percent = |share: f64| format!("{:.1}%", share * 100.0);
            let _ = writeln!(
                s,
                "{value:>10} {:>6} {:>12} {:>12} {:>8} {:>8}{mark}",
                t.count,
                units::time(t.median_ns),
                units::time(t.mean_ns),
                percent(t.sd_ns / t.mean_ns.max(1.0)),
                percent(t.scatter),
            );
        }
        let rule = format!(
            "the smallest {} whose median is within {:.0} % of the fastest and whose scatter is small ({:.0} %, or near the least)",
            self.setting.words(),
            (AS_FAST - 1.0) * 100.0,
            LITTLE_SCATTER * 100.0
        );
        let _ = match self.is_default {
            true => writeln!(s, "\nNothing to set: no other value gains enough over {}. Rule: {rule}.", self.chosen),
            false => writeln!(s, "\nexport {}={}\n\nRule: {rule}.", self.variable, self.chosen),
        };
        s
    }

    /// As a file that a shell reads.
    #[must_use]
    pub fn file(&self) -> String {
        let from = format!("# weir tune: {} processes on {} hosts, h {} bytes", self.p, self.hosts, self.h_bytes);
        match self.setting {
            Setting::Slot if self.is_default => format!("{from}\nunset {}\n", self.variable),
            _ => format!("{from}\nexport {}={}\n", self.variable, self.chosen),
        }
    }
}

/// Whether what is found can be written where it is asked for: looked at before it is measured.
///
/// # Errors
/// If it cannot.
pub fn can_be_kept(args: &TuneArgs) -> Result<(), Error> {
    let Some(file) = &args.output else { return Ok(()) };
    weir_put::looks_writable(file).map_err(|cause| Error::Write { path: file.clone(), cause })
}

/// Writes the file that is asked for.
///
/// # Errors
/// If it cannot be written.
pub fn keep(args: &TuneArgs, tuned: &Tuned) -> Result<(), Error> {
    args.output.as_ref().map_or(Ok(()), |file| put(Path::new(file), &tuned.file()))
}

/// What is to be printed.
#[must_use]
pub fn show(args: &TuneArgs, tuned: &Tuned) -> String {
    match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(tuned).unwrap_or_default()),
        false => tuned.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TuneArgs,
    }

    #[test]
    fn the_default_is_always_tried_and_the_systems_is_the_most() {
        let args = Line::parse_from(["tune", "--queues", "system,64K,32K"]).args;
        let said: Vec<String> = ascending(&args).into_iter().map(value_text).collect();
        assert_eq!(said, ["32K", "64K", "auto", "system"]);
        assert!(Line::try_parse_from(["tune", "--queues", "7"]).is_err());
    }

    #[test]
    fn no_slots_are_always_tried_and_others_lie_around_a_packets_time() {
        let said = |slots: Vec<Tried>| slots.into_iter().map(value_text).collect::<Vec<_>>();
        assert_eq!(said(slots(&[1250, 400, 1250], 0.0)), ["none", "400", "1250"]);
        let found = said(slots(&[], 1230.4));
        assert_eq!(found, ["none", "738", "984", "1169", "1230", "1292", "1415", "1600", "1846"]);
        // Where a packet takes no time there is no slot of no length.
        assert_eq!(said(slots(&[], 0.0)), ["none", "1"]);
    }

    #[test]
    fn what_is_about_to_be_measured_is_said_in_a_line() {
        let args =
            Line::parse_from(["tune", "--queues", "32K,system", "--h", "64K", "--samples", "9", "--time", "5"]).args;
        let said = intent(&args, 4, (Setting::Queue, &ascending(&args)));
        assert!(said.starts_with("tries WEIR_BSP_QUEUE = 32K, auto, system: supersteps of 4 processes, "), "{said}");
        assert!(said.ends_with("with each in turns, 9 with each or 5 s in all") && said.contains("h 64"), "{said}");
    }

    #[test]
    fn what_is_chosen_is_said_to_people_shells_and_programs() {
        let queues = [OwnQueue::Bytes(32 << 10), OwnQueue::Auto, OwnQueue::System].map(Tried::Queue);
        let of = |ms: f64| vec![ms * 1e6; 9];
        let tuned = |setting, values: &[Tried], times: &[Vec<f64>]| {
            super::tuned((8, 4), (Pattern::Total, 1 << 20), (setting, values), times).unwrap()
        };
        let found = tuned(Setting::Queue, &queues, &[of(5.0), of(7.0), of(9.0)]);
        assert_eq!((found.chosen.as_str(), found.is_default), ("32K", false));
        assert!(found.text().contains("\nexport WEIR_BSP_QUEUE=32K\n"), "{}", found.text());
        assert!(found.file().ends_with("\nexport WEIR_BSP_QUEUE=32K\n"));
        let value = serde_json::to_value(&found).unwrap();
        assert_eq!(value["trials"][1]["queue"], "auto");
        assert_eq!(value["trials"][1]["median_ns"], 7e6);
        let found = tuned(Setting::Queue, &queues, &[of(5.0), of(5.01), of(9.0)]);
        assert!(found.is_default && found.text().contains("Nothing to set"), "{}", found.text());
        // A medium that collapses without slots, and with short ones.
        let values = slots(&[500, 1250, 1500], 0.0);
        let found = tuned(Setting::Slot, &values, &[of(30.0), of(20.0), of(10.0), of(10.2)]);
        assert!(found.text().contains("\nexport WEIR_BSP_SLOT=1250\n"), "{}", found.text());
        let value = serde_json::to_value(&found).unwrap();
        assert_eq!((&value["trials"][0]["slot"], &value["chosen"]), (&"none".into(), &"1250".into()));
        assert_eq!(value["trials"][0].get("queue"), None);
        let found = tuned(Setting::Slot, &values, &[of(10.0), of(20.0), of(10.1), of(10.2)]);
        assert!(found.is_default && found.text().contains("over none"), "{}", found.text());
        assert!(found.file().ends_with("\nunset WEIR_BSP_SLOT\n"), "{}", found.file());
    }
}
