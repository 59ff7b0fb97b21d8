//! The ledger of a run (`spec/bsp.md` 10): read line by line, added up by superstep as it comes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// Version of the ledger that is read.
const FORMAT: u64 = 1;
/// Longest line that is read. What the face writes has some hundred bytes.
const LINE_MAX_BYTES: u64 = 64 << 10;
/// Most supersteps of a process: no fewer than the face keeps.
pub const SUPERSTEPS_MAX: usize = 1 << 20;
/// Most processes.
pub const PROCESSES_MAX: u64 = 1 << 20;
/// Most lines of the program that end a superstep, ...
const PLACES_MAX: usize = 1 << 16;
/// ... and bytes of all their texts.
const PLACES_MAX_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
struct Head {
    weir_bsp_ledger: u64,
    processes: u64,
}

#[derive(Deserialize)]
struct Line {
    superstep: u64,
    pid: u64,
    place: String,
    begun_ns: u64,
    called_ns: u64,
    met_ns: u64,
    ended_ns: u64,
    out_bytes: u64,
    in_bytes: u64,
    out_partners: u64,
    in_partners: u64,
    letters: u64,
    #[serde(flatten)]
    carried: Carried,
}

/// What went over the wire, as the ledger counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct Carried {
    /// Payload that went in slots (`WEIR_BSP_SLOT`).
    pub slotted_bytes: u64,
    /// Packets.
    pub packets_sent: u64,
    /// Packets that came.
    pub packets_received: u64,
    /// Acknowledgements.
    pub acks_sent: u64,
    /// Acknowledgements that came.
    pub acks_received: u64,
    /// Packets taken for lost.
    pub packets_lost: u64,
    /// Pieces of messages sent again.
    pub repairs_sent: u64,
    /// Times that sending had to wait.
    pub stalls: u64,
    /// Records in shared memory.
    pub records_sent: u64,
    /// Records that came.
    pub records_received: u64,
}

impl Carried {
    /// Adds another count.
    pub fn add(&mut self, more: &Carried) {
        let pairs = [
            (&mut self.slotted_bytes, more.slotted_bytes),
            (&mut self.packets_sent, more.packets_sent),
            (&mut self.packets_received, more.packets_received),
            (&mut self.acks_sent, more.acks_sent),
            (&mut self.acks_received, more.acks_received),
            (&mut self.packets_lost, more.packets_lost),
            (&mut self.repairs_sent, more.repairs_sent),
            (&mut self.stalls, more.stalls),
            (&mut self.records_sent, more.records_sent),
            (&mut self.records_received, more.records_received),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// A superstep of all processes. Times are durations in nanoseconds; sums are over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Which of [`Profile::places`] ended it, in process 0.
    pub place: u32,
    /// Another process ended it at another place.
    pub is_elsewhere_too: bool,
    /// Longest computation of a process, ...
    pub work_max_ns: u64,
    /// ... and of all together.
    pub work_sum_ns: u64,
    /// Waiting until all had called, of all together.
    pub wait_sum_ns: u64,
    /// Longest communication of a process after all had met.
    pub talk_max_ns: u64,
    /// Longest time of a process from begin to end.
    pub span_max_ns: u64,
    /// Most bytes that a process sent, ...
    pub out_max_bytes: u64,
    /// ... or got.
    pub in_max_bytes: u64,
    /// Bytes sent by all, ...
    pub out_bytes: u64,
    /// ... and got by all.
    pub in_bytes: u64,
    /// Most others that a process sent to or got from.
    pub partners_max: u64,
    /// Messages of `bsp_send`.
    pub letters: u64,
    /// What went over the wire.
    pub carried: Carried,
}

impl Step {
    /// h of the superstep: most bytes that a process sent or got.
    #[must_use]
    pub fn h_bytes(&self) -> u64 {
        self.out_max_bytes.max(self.in_max_bytes)
    }

    /// Time that the superstep took beyond its longest computation, nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        self.span_max_ns.saturating_sub(self.work_max_ns)
    }

    fn add(&mut self, line: &Line, place: u32) {
        let since = |to: u64, from: u64| to.saturating_sub(from);
        let work_ns = since(line.called_ns, line.begun_ns);
        if line.pid == 0 {
            self.place = place;
        }
        self.is_elsewhere_too |= line.pid > 0 && self.place != place;
        let maxima = [
            (&mut self.work_max_ns, work_ns),
            (&mut self.talk_max_ns, since(line.ended_ns, line.met_ns)),
            (&mut self.span_max_ns, since(line.ended_ns, line.begun_ns)),
            (&mut self.out_max_bytes, line.out_bytes),
            (&mut self.in_max_bytes, line.in_bytes),
            (&mut self.partners_max, line.out_partners.max(line.in_partners)),
        ];
        maxima.into_iter().for_each(|(most, this)| *most = (*most).max(this));
        let sums = [
            (&mut self.work_sum_ns, work_ns),
            (&mut self.wait_sum_ns, since(line.met_ns, line.called_ns)),
            (&mut self.out_bytes, line.out_bytes),
            (&mut self.in_bytes, line.in_bytes),
            (&mut self.letters, line.letters),
        ];
        sums.into_iter().for_each(|(sum, this)| *sum = sum.saturating_add(this));
        self.carried.add(&line.carried);
    }
}

/// The supersteps of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Where it was read.
    pub name: String,
    /// How many processes.
    pub processes: u32,
    /// The folder that the files of all places lie in, with its `/`; empty where they have none in
    /// common.
    pub root: String,
    /// Lines of the program that ended supersteps, as `file:line`, the file from `root` on.
    pub places: Vec<String>,
    /// The supersteps, in order.
    pub steps: Vec<Step>,
}

impl Profile {
    /// The place of a superstep.
    #[must_use]
    pub fn place(&self, step: &Step) -> &str {
        self.places.get(step.place as usize).map_or("?", |place| if place.is_empty() { "?" } else { place })
    }
}

/// Reads a ledger's file.
///
/// # Errors
/// If it cannot be read, or is no whole ledger: the line and what is wrong there.
pub fn read(path: &Path) -> Result<Profile, Error> {
    let file = File::open(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    read_from(BufReader::new(file), &path.display().to_string())
}

/// Reads a ledger; `name` is what errors call it.
///
/// # Errors
/// As [`read`].
pub fn read_from(mut from: impl BufRead, name: &str) -> Result<Profile, Error> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    for number in 1.. {
        let wrong = |what: String| Error::Wrong { place: format!("{name}:{number}"), what };
        line.clear();
        let got = from.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line);
        if got.map_err(|cause| Error::Read { path: name.into(), cause })? == 0 {
            break;
        }
        if line.last() != Some(&b'\n') {
            let long = line.len() as u64 == LINE_MAX_BYTES;
            let cut = "the file ends within this line: it was cut short";
            return Err(wrong(if long { format!("more than {LINE_MAX_BYTES} bytes") } else { cut.into() }));
        }
        reader.line(&line, number == 1).map_err(wrong)?;
    }
    reader.finish(name)
}

#[derive(Default)]
struct Reader {
    profile: Profile,
    known: HashMap<String, u32>,
    /// Bytes of the places that are known.
    known_bytes: usize,
    /// Supersteps of each process.
    counts: Vec<u32>,
}

impl Reader {
    fn line(&mut self, bytes: &[u8], is_first: bool) -> Result<(), String> {
        if is_first {
            let head: Head = serde_json::from_slice(bytes)
                .map_err(|_| "no ledger of a BSP program: one begins with {\"weir_bsp_ledger\":1,...}".to_owned())?;
            if head.weir_bsp_ledger != FORMAT {
                return Err(format!("version {} of the format; this program reads {FORMAT}", head.weir_bsp_ledger));
            }
            if !(1..=PROCESSES_MAX).contains(&head.processes) {
                return Err(format!("{} processes: 1 to {PROCESSES_MAX} can be", head.processes));
            }
            self.profile.processes = head.processes as u32;
            self.counts = vec![0; head.processes as usize];
            return Ok(());
        }
        let line: Line = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let count = usize::try_from(line.pid).ok().and_then(|pid| self.counts.get_mut(pid));
        let Some(count) = count else {
            return Err(format!("process {}: there are {} processes", line.pid, self.profile.processes));
        };
        if line.superstep != u64::from(*count) || *count as usize >= SUPERSTEPS_MAX {
            return Err(format!("superstep {} of process {}, where {count} should be", line.superstep, line.pid));
        }
        *count += 1;
        let times = [line.begun_ns, line.called_ns, line.met_ns, line.ended_ns];
        if !times.is_sorted() {
            return Err("begun_ns, called_ns, met_ns and ended_ns do not follow each other".into());
        }
        let place = self.place(&line.place)?;
        let at = line.superstep as usize;
        if at == self.profile.steps.len() {
            if line.pid > 0 {
                return Err(format!("superstep {at} of process {}, which process 0 does not have", line.pid));
            }
            self.profile.steps.push(Step::default());
        }
        if let Some(step) = self.profile.steps.get_mut(at) {
            step.add(&line, place);
        }
        Ok(())
    }

    fn place(&mut self, text: &str) -> Result<u32, String> {
        if let Some(number) = self.known.get(text) {
            return Ok(*number);
        }
        let number = self.known.len();
        self.known_bytes += text.len();
        if number >= PLACES_MAX || self.known_bytes > PLACES_MAX_BYTES {
            return Err(format!("more than {PLACES_MAX} places, or {PLACES_MAX_BYTES} bytes of their texts"));
        }
        self.known.insert(text.to_owned(), number as u32);
        self.profile.places.push(text.to_owned());
        Ok(number as u32)
    }

    fn finish(mut self, name: &str) -> Result<Profile, Error> {
        let wrong = |what: String| Error::Wrong { place: name.to_owned(), what };
        let Some(first) = self.counts.first().copied() else { return Err(wrong("it is empty".into())) };
        if first == 0 {
            return Err(wrong("it has no superstep of process 0: it was cut short".into()));
        }
        if let Some(pid) = self.counts.iter().position(|count| *count != first) {
            let have = self.counts[pid];
            return Err(wrong(format!("process {pid} has {have} supersteps, process 0 has {first}: it was cut short")));
        }
        name.clone_into(&mut self.profile.name);
        let root = root(&self.profile.places);
        for place in &mut self.profile.places {
            if let Some(rest) = place.strip_prefix(&root) {
                *place = rest.to_owned();
            }
        }
        self.profile.root = root;
        Ok(self.profile)
    }
}

/// The folder that all places with a folder have in common.
fn root(places: &[String]) -> String {
    let mut folders = places.iter().filter_map(|place| Some(&place[..=place.rfind('/')?]));
    let Some(first) = folders.next() else { return String::new() };
    let common = folders.fold(first, |common, folder| {
        let same = common.bytes().zip(folder.bytes()).take_while(|(a, b)| a == b).count();
        // A slash is a byte of its own in any text.
        common.as_bytes()[..same].iter().rposition(|byte| *byte == b'/').map_or("", |at| &common[..=at])
    });
    common.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_bsp::ledger::{Entry, Ledger};

    /// The file of a run with the entries that `made` gives for each process and superstep.
    fn file(processes: usize, steps: usize, made: impl Fn(usize, usize) -> Entry) -> String {
        let mut text = format!("{{\"weir_bsp_ledger\":1,\"processes\":{processes}}}\n");
        for pid in 0..processes {
            let mut ledger = Ledger::of(processes);
            (0..steps).for_each(|step| ledger.add(["a.c:1", "a.c:2"][step % 2], made(pid, step)));
            text += &ledger.lines(pid);
        }
        text
    }

    fn said(text: &str) -> String {
        read_from(text.as_bytes(), "l").unwrap_err().to_string()
    }

    #[test]
    fn what_the_face_writes_is_read_and_added_up() {
        let text = file(3, 4, |pid, step| {
            let (pid, begun_ns) = (pid as u64, step as u64 * 1000);
            Entry {
                begun_ns,
                called_ns: begun_ns + 100 * (pid + 1),
                met_ns: begun_ns + 400,
                ended_ns: begun_ns + 700 + pid,
                out_bytes: 10 * pid,
                in_bytes: 30 - 10 * (pid + 1),
                out_partners: 1,
                letters: pid,
                ..Entry::default()
            }
        });
        let profile = read_from(text.as_bytes(), "l").unwrap();
        assert_eq!((profile.processes, profile.steps.len()), (3, 4));
        assert_eq!(profile.places, ["a.c:1", "a.c:2"]);
        let step = profile.steps[1];
        assert_eq!((step.work_max_ns, step.work_sum_ns, step.wait_sum_ns), (300, 600, 600));
        assert_eq!((step.talk_max_ns, step.span_max_ns, step.cost_ns()), (302, 702, 402));
        assert_eq!((step.out_bytes, step.in_bytes, step.h_bytes(), step.letters), (30, 30, 20, 3));
        assert_eq!(profile.place(&step), "a.c:2");
    }

    #[test]
    fn places_are_told_from_the_folder_that_all_have_in_common() {
        let of = |places: &[&str]| root(&places.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["/a/b/x.c:1", "/a/bc/y.h:2", "unknown"]), "/a/");
        assert_eq!(of(&["/a/b/x.c:1"]), "/a/b/");
        assert_eq!(of(&["src/é/x.c:1", "src/è/y.c:1"]), "src/");
        assert_eq!(of(&["x.c:1", ""]), "");
        assert_eq!(of(&["/x.c:1", "y/z.c:2"]), "");
        let text = file(1, 2, |_, _| Entry::default()).replace("a.c", "/home/a.c");
        let profile = read_from(text.as_bytes(), "l").unwrap();
        assert_eq!((profile.root.as_str(), &profile.places[..]), ("/home/", &["a.c:1".to_owned(), "a.c:2".into()][..]));
    }

    #[test]
    fn what_is_no_whole_ledger_is_refused_with_its_place() {
        let good = file(2, 2, |_, _| Entry::default());
        assert!(read_from(good.as_bytes(), "l").is_ok());
        for (text, wanted) in [
            (String::new(), "l: it is empty"),
            ("{}\n".into(), "l:1: no ledger"),
            (good.replacen(":1,", ":2,", 1), "l:1: version 2"),
            (good.replacen("\"processes\":2", "\"processes\":0", 1), "l:1: 0 processes"),
            (good.replacen("\"processes\":2", "\"processes\":1", 1), "l:4: process 1"),
            (good.replacen("\"processes\":2", "\"processes\":3", 1), "process 2 has 0 supersteps"),
            (good[..good.len() - 4].into(), "l:5: the file ends"),
            (good.replacen("\"superstep\":1", "\"superstep\":7", 1), "l:3: superstep 7"),
            (good.replacen("\"met_ns\":0", "\"met_ns\":5", 1), "l:2: begun_ns"),
            (good.replacen("\"letters\":0", "\"letters\":-1", 1), "l:2: "),
            (format!("{good}{}\n", "x".repeat(70_000)), "l:6: more than 65536 bytes"),
        ] {
            let error = said(&text);
            assert!(error.contains(wanted), "{wanted}: {error}");
        }
    }

    #[test]
    fn places_without_end_are_refused() {
        let place = |nth: u64| format!("{nth}{}", "x".repeat(60_000));
        let mut ledger = Ledger::of(1);
        (0..300).for_each(|nth| ledger.add(&place(nth), Entry::default()));
        let text = format!("{{\"weir_bsp_ledger\":1,\"processes\":1}}\n{}", ledger.lines(0));
        let error = said(&text);
        assert!(error.starts_with("l:281: more than 65536 places, or 16777216 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = read_from(&bytes[..], "l");
        }

        #[test]
        fn a_damaged_ledger_is_read_or_refused(at in 0usize..2000, byte in any::<u8>()) {
            let mut text = file(2, 3, |pid, step| Entry { letters: (pid + step) as u64, ..Entry::default() }).into_bytes();
            let at = at % text.len();
            text[at] = byte;
            let _ = read_from(&text[..], "l");
        }

        #[test]
        fn sums_are_those_of_the_processes(
            p in 1usize..5,
            bytes in prop::collection::vec((0u64..1 << 40, 0u64..1 << 40), 1..12),
        ) {
            let of = |pid: usize, step: usize| bytes[(pid * 7 + step) % bytes.len()];
            let text = file(p, bytes.len(), |pid, step| {
                Entry { out_bytes: of(pid, step).0, in_bytes: of(pid, step).1, ..Entry::default() }
            });
            let profile = read_from(text.as_bytes(), "l").unwrap();
            for (nth, step) in profile.steps.iter().enumerate() {
                prop_assert_eq!(step.out_bytes, (0..p).map(|pid| of(pid, nth).0).sum::<u64>());
                prop_assert_eq!(step.in_bytes, (0..p).map(|pid| of(pid, nth).1).sum::<u64>());
                let h = (0..p).map(|pid| of(pid, nth).0.max(of(pid, nth).1)).max().unwrap();
                prop_assert_eq!(step.h_bytes(), h);
            }
        }
    }
}
