//! What each superstep cost: computing, waiting, communicating; bytes and messages; what went over
//! the wire (`spec/bsp.md` 10). Kept only where somebody asked for it.
#![forbid(unsafe_code)]

use std::fmt::Write;
use weir_engine::Carried;

/// Supersteps that all processes together keep: half a gigabyte of text where process 0 writes
/// them. Those that follow are only counted.
const KEPT_MAX: usize = 1 << 19;
/// One process keeps so many at least.
const KEPT_MIN: usize = 1 << 10;

/// What the time at which all processes had met first is called in a trace, microseconds: viewers
/// leave out what is below 0, and show times from the first event on.
const ORIGIN_US: f64 = 1e12;

/// A superstep of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry {
    /// Which of the places of [`Ledger::places`] ended it.
    pub place: u32,
    /// When the program began to compute, nanoseconds since `bsp_begin`.
    pub begun_ns: u64,
    /// When it called `bsp_sync`, ...
    pub called_ns: u64,
    /// ... when all processes had, ...
    pub met_ns: u64,
    /// ... and when everything had come.
    pub ended_ns: u64,
    /// Bytes sent to others, heads not counted, ...
    pub out_bytes: u64,
    /// ... and got from them.
    pub in_bytes: u64,
    /// To how many others.
    pub out_partners: u32,
    /// From how many.
    pub in_partners: u32,
    /// Messages of `bsp_send` to others.
    pub letters: u64,
    /// Bytes to others that packets carried in slots (`WEIR_BSP_SLOT`), with what describes them.
    pub slotted_bytes: u64,
    /// What went over the wire from the call to the end.
    pub carried: Carried,
}

/// The supersteps of a process.
#[derive(Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
    places: Vec<String>,
    /// How many are kept.
    room: usize,
    /// Supersteps beyond.
    pub left_out: u64,
}

/// The difference of two counts of what went over the wire.
#[must_use]
pub fn since(before: &Carried, now: &Carried) -> Carried {
    Carried {
        packets_sent: now.packets_sent - before.packets_sent,
        packets_received: now.packets_received - before.packets_received,
        acks_sent: now.acks_sent - before.acks_sent,
        acks_received: now.acks_received - before.acks_received,
        packets_lost: now.packets_lost - before.packets_lost,
        repairs_sent: now.repairs_sent - before.repairs_sent,
        stalls: now.stalls - before.stalls,
        records_sent: now.records_sent - before.records_sent,
        records_received: now.records_received - before.records_received,
    }
}

impl Ledger {
    /// Of one of so many processes.
    #[must_use]
    pub fn of(nprocs: usize) -> Ledger {
        let room = (KEPT_MAX / nprocs.max(1)).max(KEPT_MIN);
        Ledger { entries: Vec::new(), places: Vec::new(), room, left_out: 0 }
    }

    /// A superstep more, ended at this place of the program.
    pub fn add(&mut self, place: &str, mut entry: Entry) {
        if self.entries.len() >= self.room {
            self.left_out += 1;
            return;
        }
        let known = self.places.iter().position(|known| known == place);
        entry.place = known.unwrap_or_else(|| {
            self.places.push(place.to_owned());
            self.places.len() - 1
        }) as u32;
        self.entries.push(entry);
    }

    /// The lines of this process in the ledger's file: one JSON document a superstep.
    #[must_use]
    pub fn lines(&self, pid: usize) -> String {
        let mut out = String::new();
        for (nth, e) in self.entries.iter().enumerate() {
            let place = self.places.get(e.place as usize).map_or("", String::as_str);
            let c = &e.carried;
            let _ = writeln!(
                out,
                "{{\"superstep\":{nth},\"pid\":{pid},\"place\":{},\"begun_ns\":{},\"called_ns\":{},\"met_ns\":{},\"ended_ns\":{},\"out_bytes\":{},\"in_bytes\":{},\"out_partners\":{},\"in_partners\":{},\"letters\":{},\"slotted_bytes\":{},\"packets_sent\":{},\"packets_received\":{},\"acks_sent\":{},\"acks_received\":{},\"packets_lost\":{},\"repairs_sent\":{},\"stalls\":{},\"records_sent\":{},\"records_received\":{}}}",
                quoted(place),
                e.begun_ns,
                e.called_ns,
                e.met_ns,
                e.ended_ns,
                e.out_bytes,
                e.in_bytes,
                e.out_partners,
                e.in_partners,
                e.letters,
                e.slotted_bytes,
                c.packets_sent,
                c.packets_received,
                c.acks_sent,
                c.acks_received,
                c.packets_lost,
                c.repairs_sent,
                c.stalls,
                c.records_sent,
                c.records_received,
            );
        }
        out
    }

    /// The events of this process in a trace for viewers (the JSON of Chrome's, which Perfetto
    /// opens), each with a comma behind it: a track for each process, all in one group. All
    /// processes had met first at [`ORIGIN_US`].
    #[must_use]
    pub fn events(&self, pid: usize) -> String {
        let zero = self.entries.first().map_or(0, |e| e.met_ns) as i128;
        let us = |ns: u64| (i128::from(ns) - zero) as f64 / 1000.0 + ORIGIN_US;
        // Viewers take the number 0 for the processor's idle time.
        let tid = pid + 1;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{{\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_name\",\"args\":{{\"name\":\"process {pid}\"}}}},\n\
             {{\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{pid}}}}},"
        );
        for (nth, e) in self.entries.iter().enumerate() {
            let place = quoted(self.places.get(e.place as usize).map_or("", String::as_str));
            for (name, from, to) in [
                ("compute", e.begun_ns, e.called_ns),
                ("wait", e.called_ns, e.met_ns),
                ("communicate", e.met_ns, e.ended_ns),
            ] {
                let _ = writeln!(
                    out,
                    "{{\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\"name\":\"{name}\",\"ts\":{:.3},\"dur\":{:.3},\"args\":{{\"superstep\":{nth},\"place\":{place},\"out_bytes\":{},\"in_bytes\":{}}}}},",
                    us(from),
                    to.saturating_sub(from) as f64 / 1000.0,
                    e.out_bytes,
                    e.in_bytes,
                );
            }
        }
        out
    }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_supersteps_are_lines() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        let mut ledger = Ledger::of(2);
        ledger.add(
            "x.c:3",
            Entry { begun_ns: 5, called_ns: 1005, met_ns: 2005, ended_ns: 4005, out_bytes: 8, ..Entry::default() },
        );
        ledger.add("x.c:3", Entry::default());
        let lines = ledger.lines(1);
        assert_eq!(lines.lines().count(), 2);
        assert!(lines.starts_with("{\"superstep\":0,\"pid\":1,\"place\":\"x.c:3\",\"begun_ns\":5,"), "{lines}");
        let events = ledger.events(1);
        assert!(events.contains("\"name\":\"communicate\",\"ts\":1000000000000.000,\"dur\":2.000"), "{events}");
        assert!(events.lines().all(|line| line.ends_with("},")), "{events}");
    }
}
