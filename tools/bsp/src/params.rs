//! The file of measured machine parameters (`spec/bsp-params.md`): written, read, checked.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_superstep::variance;

use crate::Error;
use crate::estimate::{Costs, Edge, Spread, line};

/// Version of the format.
pub const FORMAT: u64 = 1;
/// Largest file that is read.
pub const FILE_MAX_BYTES: u64 = 64 << 20;
/// Most machines of a file.
pub const MACHINES_MAX: usize = 1024;
/// Most relations of a machine.
pub const RELATIONS_MAX: usize = 4096;
/// Most processes of a machine.
pub const P_MAX: u32 = 1 << 20;
/// Largest number of bytes of a relation: as much as a superstep message may have.
pub const H_MAX_BYTES: u64 = 1 << 40;

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Everybody to everybody, the same.
    Total,
    /// Everybody to the next one.
    Shift,
    /// Everybody to process 0.
    Gather,
    /// Process 0 to everybody.
    Scatter,
    /// Everybody to others drawn at random.
    Random,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 5] = [Pattern::Total, Pattern::Shift, Pattern::Gather, Pattern::Scatter, Pattern::Random];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Total => "total",
            Pattern::Shift => "shift",
            Pattern::Gather => "gather",
            Pattern::Scatter => "scatter",
            Pattern::Random => "random",
        }
    }

    /// What it is, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Pattern::Total => "total exchange",
            Pattern::Shift => "cyclic shift",
            Pattern::Gather => "all to one",
            Pattern::Scatter => "one to all",
            Pattern::Random => "random",
        }
    }

    /// Whether all send and get the same.
    #[must_use]
    pub fn is_balanced(self) -> bool {
        matches!(self, Pattern::Total | Pattern::Shift)
    }
}

/// The primitive that bytes are sent by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// `bsp_hpput`.
    #[default]
    Hpput,
    /// `bsp_put`.
    Put,
    /// `bsp_send`.
    Send,
}

impl By {
    /// All of them.
    pub const ALL: [By; 3] = [By::Hpput, By::Put, By::Send];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            By::Hpput => "hpput",
            By::Put => "put",
            By::Send => "send",
        }
    }
}

/// Supersteps of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relation {
    /// By which primitive.
    #[serde(default)]
    pub by: By,
    /// Who sent to whom.
    pub pattern: Pattern,
    /// Bytes of a put or message.
    pub block_bytes: u64,
    /// The h that was wanted, bytes.
    pub wanted_bytes: u64,
    /// Each superstep: h in bytes, and its time in nanoseconds.
    pub samples: Vec<(u64, f64)>,
}

/// What was measured with one number of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Number of processes.
    pub p: u32,
    /// Number of hosts they ran on.
    pub hosts: u32,
    /// When it was measured, seconds since 1970.
    pub measured_unix_s: u64,
    /// Speed of the processes while all compute, operations a second.
    pub speed_ops_per_s: Vec<f64>,
    /// Times of supersteps in which nothing is sent, nanoseconds.
    pub barrier_ns: Vec<f64>,
    /// Times of supersteps in which something is.
    pub relations: Vec<Relation>,
}

impl Machine {
    /// The relation that g is taken from: a total exchange by `bsp_hpput` with the largest h, in
    /// the largest blocks.
    #[must_use]
    pub fn headline(&self) -> Option<&Relation> {
        let total = self.relations.iter().filter(|r| r.pattern == Pattern::Total && r.by == By::Hpput);
        total.max_by_key(|r| (r.wanted_bytes, r.block_bytes))
    }

    /// l: the time of a superstep in which nothing is sent, nanoseconds.
    #[must_use]
    pub fn l_ns(&self) -> Spread {
        Spread::of(&self.barrier_ns)
    }

    /// s: operations a second.
    #[must_use]
    pub fn s_ops_per_s(&self) -> Spread {
        Spread::of(&self.speed_ops_per_s)
    }

    /// g of each superstep of a relation, nanoseconds a byte: its time less l, over h. Ascending.
    #[must_use]
    pub fn gaps(&self, relation: &Relation) -> Vec<f64> {
        let l_ns = self.l_ns().mean;
        let mut gaps: Vec<f64> = relation.samples.iter().map(|(h, ns)| (ns - l_ns) / *h as f64).collect();
        gaps.sort_by(f64::total_cmp);
        gaps
    }

    /// g, nanoseconds a byte.
    #[must_use]
    pub fn g_ns_per_byte(&self) -> Spread {
        self.headline().map_or_else(Spread::default, |relation| Spread::of(&self.gaps(relation)))
    }

    /// How many times longer than l the supersteps are that g is taken from. Below about 3 g is
    /// uncertain.
    #[must_use]
    pub fn reach(&self) -> f64 {
        let Some(relation) = self.headline() else { return 0.0 };
        let times: Vec<f64> = relation.samples.iter().map(|(_, ns)| *ns).collect();
        Spread::of(&times).mean / self.l_ns().mean - 1.0
    }

    /// The costs of a superstep.
    #[must_use]
    pub fn costs(&self) -> Costs {
        Costs { p: self.p, l_ns: self.l_ns().mean, g_ns_per_byte: self.g_ns_per_byte().mean }
    }

    /// The same in the units of the field: operations, and operations a word of 32 bits.
    #[must_use]
    pub fn in_operations(&self) -> weir_superstep::cost::Machine {
        let s = self.s_ops_per_s().mean;
        weir_superstep::cost::Machine {
            p: self.p,
            l: self.l_ns().mean * 1e-9 * s,
            g: self.g_ns_per_byte().mean * 4e-9 * s,
            s,
        }
    }

    /// What l, g and s are the means of, each with its name.
    #[must_use]
    pub fn spreads(&self) -> [(&'static str, Vec<f64>); 3] {
        let gaps = self.headline().map(|relation| self.gaps(relation)).unwrap_or_default();
        [("l_ns", self.barrier_ns.clone()), ("g_ns_per_byte", gaps), ("s_ops_per_s", self.speed_ops_per_s.clone())]
    }

    /// The distribution of g of one edge: the p-th root of the measured one.
    #[must_use]
    pub fn edge(&self) -> Edge {
        self.headline().map_or_else(Edge::default, |relation| Edge::of(self.gaps(relation), self.p))
    }

    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("the machine of {} processes: {what}", self.p));
        if !(2..=P_MAX).contains(&self.p) {
            return wrong(&format!("p may be from 2 to {P_MAX}"));
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for (name, values) in [("speed_ops_per_s", &self.speed_ops_per_s), ("barrier_ns", &self.barrier_ns)] {
            if values.is_empty() || !values.iter().all(|value| positive(*value)) {
                return wrong(&format!("{name} must be numbers above 0, one at least"));
            }
        }
        if self.relations.len() > RELATIONS_MAX {
            return wrong(&format!("more than {RELATIONS_MAX} relations"));
        }
        for (nth, relation) in self.relations.iter().enumerate() {
            let is_good = |(h, ns): &(u64, f64)| (1..=H_MAX_BYTES).contains(h) && positive(*ns);
            if relation.samples.is_empty() || !relation.samples.iter().all(is_good) {
                return wrong(&format!(
                    "relations[{nth}].samples must be pairs of bytes (1 to {H_MAX_BYTES}) and nanoseconds above 0, one at least"
                ));
            }
            if !(1..=H_MAX_BYTES).contains(&relation.block_bytes) || !(1..=H_MAX_BYTES).contains(&relation.wanted_bytes)
            {
                return wrong(&format!(
                    "relations[{nth}]: block_bytes and wanted_bytes may be from 1 to {H_MAX_BYTES}"
                ));
            }
        }
        if self.headline().is_none() {
            return wrong("it has no relation of the pattern total by hpput, from which g is taken");
        }
        Ok(())
    }
}

/// What was measured, by number of processes, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// The machines.
    pub machines: Vec<Machine>,
}

#[derive(Serialize)]
struct Document<'a> {
    weir_bsp_params: u64,
    program: String,
    machines: Vec<Written<'a>>,
}

/// What is read of it: nothing is kept that is not known.
#[derive(Deserialize)]
struct Given {
    weir_bsp_params: u64,
    machines: Vec<Machine>,
}

/// A machine as it stands in a file: with what follows from its samples, for readers that do not
/// compute it. It is not read.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    machine: &'a Machine,
    summary: Summary,
}

#[derive(Serialize)]
struct Summary {
    l_ns: Spread,
    g_ns_per_byte: Spread,
    s_ops_per_s: Spread,
    l_ops: f64,
    g_ops_per_word: f64,
}

impl Params {
    /// Adds machines; one with as many processes as one that is there takes its place.
    pub fn merge(&mut self, more: Params) {
        for machine in more.machines {
            self.machines.retain(|known| known.p != machine.p);
            self.machines.push(machine);
        }
        self.machines.sort_by_key(|machine| machine.p);
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no such file: the place and what is wrong there.
    pub fn read(path: &Path) -> Result<Params, Error> {
        let failed = |cause| Error::Read { path: path.to_owned(), cause };
        let mut text = Vec::new();
        File::open(path).map_err(failed)?.take(FILE_MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        Params::parse(&text, &path.display().to_string())
    }

    /// Reads a text; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Params::read`].
    pub fn parse(text: &[u8], name: &str) -> Result<Params, Error> {
        let wrong = |place: String, what: String| Error::Wrong { place, what };
        if text.len() as u64 > FILE_MAX_BYTES {
            return Err(wrong(name.into(), format!("more than {FILE_MAX_BYTES} bytes")));
        }
        let document: Given = serde_json::from_slice(text).map_err(|error| {
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or(&what);
            wrong(
                format!("{name}:{}:{}", error.line(), error.column()),
                format!("{what}; not a file of weir bsp params (spec/bsp-params.md)"),
            )
        })?;
        if document.weir_bsp_params != FORMAT {
            let what = format!("version {} of the format; this program reads {FORMAT}", document.weir_bsp_params);
            return Err(wrong(name.into(), what));
        }
        let mut machines = document.machines;
        machines.sort_by_key(|machine| machine.p);
        if machines.is_empty() || machines.len() > MACHINES_MAX {
            return Err(wrong(name.into(), format!("{} machines: 1 to {MACHINES_MAX} can be", machines.len())));
        }
        machines.iter().try_for_each(Machine::check).map_err(|what| wrong(name.into(), what))?;
        if let Some(two) = machines.windows(2).find(|two| two[0].p == two[1].p) {
            return Err(wrong(name.into(), format!("two machines of {} processes", two[0].p)));
        }
        Ok(Params { machines })
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        fn written(machine: &Machine) -> Written<'_> {
            let operations = machine.in_operations();
            let summary = Summary {
                l_ns: machine.l_ns(),
                g_ns_per_byte: machine.g_ns_per_byte(),
                s_ops_per_s: machine.s_ops_per_s(),
                l_ops: operations.l,
                g_ops_per_word: operations.g,
            };
            Written { machine, summary }
        }
        let document = Document {
            weir_bsp_params: FORMAT,
            program: format!("weir {}", env!("CARGO_PKG_VERSION")),
            machines: self.machines.iter().map(written).collect(),
        };
        // Numbers and names always have a text.
        serde_json::to_string(&document).unwrap_or_default() + "\n"
    }

    /// The machine with so many processes.
    #[must_use]
    pub fn of(&self, p: u32) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.p == p)
    }

    /// Costs with so many processes: measured, or predicted from the nearest that were. The second
    /// is a word about where they come from, if they are not measured.
    #[must_use]
    pub fn costs(&self, p: u32) -> Option<(Costs, Option<String>)> {
        if let Some(machine) = self.of(p) {
            return Some((machine.costs(), None));
        }
        let below = self.machines.iter().rev().find(|machine| machine.p < p);
        let from = below.or_else(|| self.machines.first())?;
        let word = format!(
            "p = {p} was not measured: g is predicted from the edges of p = {}, l {}",
            from.p,
            if self.machines.len() > 1 { "by a line through what was measured" } else { "is the one measured there" }
        );
        Some((self.predicted(from, p), Some(word)))
    }

    /// What the edges of one machine say of another number of processes; l by a line through all
    /// that were measured.
    #[must_use]
    pub fn predicted(&self, from: &Machine, p: u32) -> Costs {
        let points: Vec<(f64, f64)> = self.machines.iter().map(|m| (f64::from(m.p), m.l_ns().mean)).collect();
        let l_ns = line(&points).map_or(from.l_ns().mean, |(zero, slope)| zero + slope * f64::from(p));
        let least_ns = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        Costs {
            p,
            // A line that has fallen to nothing says nothing.
            l_ns: if l_ns > 0.0 { l_ns } else { least_ns },
            g_ns_per_byte: from.edge().slowest_of(p).mean,
        }
    }

    /// g that normal edges would give with so many processes, nanoseconds a byte: mean + c sd of
    /// the edge (seed 3.8).
    #[must_use]
    pub fn normal_g(from: &Machine, p: u32) -> f64 {
        let edge = from.edge().spread();
        edge.mean + variance::slowest_of_normals(p) * edge.sd
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose supersteps cost exactly this.
    pub fn machine(p: u32, l_ns: f64, g_ns_per_byte: f64) -> Machine {
        let sample = |h: u64| (h, l_ns + g_ns_per_byte * h as f64);
        let relations = Pattern::ALL.iter().flat_map(|pattern| {
            [64u64, 1024].map(|block_bytes| Relation {
                by: By::Hpput,
                pattern: *pattern,
                block_bytes,
                wanted_bytes: 65_536,
                samples: vec![sample(65_536), sample(65_528)],
            })
        });
        Machine {
            p,
            hosts: 1,
            measured_unix_s: 1_700_000_000,
            speed_ops_per_s: vec![1e9, 1.5e9],
            barrier_ns: vec![l_ns, l_ns],
            relations: relations.collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_gives_the_same_parameters() {
        let params = Params { machines: vec![machine(2, 1000.0, 0.5), machine(4, 3000.0, 0.75)] };
        let text = params.text();
        assert_eq!(Params::parse(text.as_bytes(), "f").unwrap(), params);
        assert!(text.contains("\"weir_bsp_params\":1") && text.contains("\"g_ops_per_word\":"), "{text}");
        let four = params.of(4).unwrap();
        assert!((four.g_ns_per_byte().mean - 0.75).abs() < 1e-9 && (four.l_ns().mean - 3000.0).abs() < 1e-9);
        // 1.25e9 operations a second: 3 us are 3750 operations, a word at 0.75 ns a byte 3.75.
        let operations = four.in_operations();
        assert!((operations.l - 3750.0).abs() < 1e-6 && (operations.g - 3.75).abs() < 1e-9, "{operations:?}");
    }

    #[test]
    fn a_number_of_processes_that_was_not_measured_is_predicted_and_said() {
        let params = Params { machines: vec![machine(2, 1000.0, 0.5), machine(4, 3000.0, 0.5)] };
        let (costs, word) = params.costs(8).unwrap();
        assert!((costs.l_ns - 7000.0).abs() < 1e-6 && (costs.g_ns_per_byte - 0.5).abs() < 1e-9, "{costs:?}");
        assert!(word.unwrap().contains("from the edges of p = 4"));
        assert_eq!(params.costs(2).unwrap().1, None);
        assert_eq!(Params::default().costs(2), None);
    }

    #[test]
    fn what_is_no_such_file_is_refused_with_its_place() {
        let good = Params { machines: vec![machine(2, 1000.0, 0.5)] }.text();
        for (text, wanted) in [
            ("".to_owned(), "f:1:0: "),
            ("{}".into(), "f:1:2: missing field"),
            (good.replace("params\":1", "params\":9"), "f: version 9"),
            (good.replace("\"p\":2", "\"p\":1"), "p may be from 2"),
            (good.replace("\"barrier_ns\":[1000.0,1000.0]", "\"barrier_ns\":[]"), "barrier_ns must be"),
            (good.replace("\"barrier_ns\":[1000.0,1000.0]", "\"barrier_ns\":[-1]"), "barrier_ns must be"),
            (good.replace("[65536,", "[0,"), "relations[0].samples"),
            (good.replace("\"total\"", "\"shift\""), "no relation of the pattern total"),
            (good.replace("\"total\"", "\"ring\""), "unknown variant `ring`"),
            (good.replacen("\"machines\":[", "\"machines\":[],\"x\":[", 1), "f: 0 machines"),
        ] {
            let error = Params::parse(text.as_bytes(), "f").unwrap_err().to_string();
            assert!(error.contains(wanted), "{wanted}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Params::parse(&bytes, "f");
        }

        #[test]
        fn a_damaged_file_is_refused_or_written_again_as_it_was_read(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = Params { machines: vec![machine(3, 123.25, 0.125)] }.text().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(params) = Params::parse(&text, "f") {
                prop_assert_eq!(Params::parse(params.text().as_bytes(), "f").unwrap(), params);
            }
        }
    }
}
