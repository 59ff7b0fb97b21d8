//! One run over time: what each process does when, and the messages between them, up to a bound.

/// What a process does for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// It computes.
    Compute,
    /// It is kept by a send.
    Send,
    /// It is kept by the end of a receive.
    Receive,
    /// It waits.
    Wait,
}

impl Doing {
    /// All, in the order of their numbers in a page's data.
    pub const ALL: [Self; 4] = [Self::Compute, Self::Send, Self::Receive, Self::Wait];

    /// The name in traces and legends.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Wait => "wait",
        }
    }
}

/// A stretch of a process's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Whose.
    pub process: u32,
    /// From, nanoseconds of virtual time.
    pub start_ns: f64,
    /// To.
    pub end_ns: f64,
    /// What it does.
    pub doing: Doing,
    /// Where in the source: an index into [`Timeline::places`].
    pub place: u32,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrow {
    /// Its sender.
    pub from: u32,
    /// Its receiver.
    pub to: u32,
    /// Its bytes.
    pub bytes: u64,
    /// When its send began, nanoseconds of virtual time.
    pub sent_ns: f64,
    /// When a receive had it.
    pub received_ns: f64,
    /// Where it is sent: an index into [`Timeline::places`].
    pub place: u32,
}

/// A run, or its beginning.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    /// How many processes.
    pub numprocs: u32,
    /// When the run ends, nanoseconds of virtual time.
    pub end_ns: f64,
    /// Until when bars and arrows are here; `end_ns`, if all are.
    pub shown_ns: f64,
    /// What processes do.
    pub bars: Vec<Bar>,
    /// Messages.
    pub arrows: Vec<Arrow>,
    /// How many bars and arrows there were.
    pub all: (u64, u64),
    /// Places of the source: `jacobi.c:41`.
    pub places: Vec<String>,
}

impl Timeline {
    /// What was left out, if anything was.
    #[must_use]
    pub fn cut(&self) -> Option<String> {
        let (bars, arrows) = (self.bars.len() as u64, self.arrows.len() as u64);
        (self.all != (bars, arrows)).then(|| {
            format!(
                "Only the first {} of {} are here: {bars} of {} stretches, {arrows} of {} messages.",
                weir_report::units::time(self.shown_ns),
                weir_report::units::time(self.end_ns),
                self.all.0,
                self.all.1
            )
        })
    }
}

/// Keeps the beginning of a run, in bounded memory.
#[derive(Debug, Clone)]
pub struct Collector {
    most: usize,
    bars: Vec<Bar>,
    arrows: Vec<Arrow>,
    all: (u64, u64),
    /// Until when nothing was left out.
    whole_ns: f64,
}

/// Bars, and arrows, of a page: some megabytes.
pub const MOST_IN_A_PAGE: usize = 40_000;
/// The same of a trace: some hundred megabytes.
pub const MOST_IN_A_TRACE: usize = 500_000;

impl Collector {
    /// One that keeps so many bars and so many arrows.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, bars: Vec::new(), arrows: Vec::new(), all: (0, 0), whole_ns: f64::INFINITY }
    }

    /// Takes a bar. Those of one process come in order, those of different ones in any.
    pub fn bar(&mut self, bar: Bar) {
        self.all.0 += 1;
        if self.bars.len() < self.most {
            self.bars.push(bar);
        } else {
            self.whole_ns = self.whole_ns.min(bar.start_ns);
        }
    }

    /// Takes a message.
    pub fn arrow(&mut self, arrow: Arrow) {
        self.all.1 += 1;
        if self.arrows.len() < self.most {
            self.arrows.push(arrow);
        } else {
            self.whole_ns = self.whole_ns.min(arrow.sent_ns);
        }
    }

    /// Whether it is full: what comes later would only be counted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bars.len() >= self.most && self.arrows.len() >= self.most
    }

    /// The timeline of a run that ended then. What began after something that was left out is left
    /// out too, so that no process seems to stand still where others go on.
    #[must_use]
    pub fn finish(mut self, numprocs: u32, end_ns: f64, places: Vec<String>) -> Timeline {
        let shown_ns = self.whole_ns.min(end_ns);
        if self.whole_ns.is_finite() {
            self.bars.retain(|bar| bar.start_ns < shown_ns);
            self.arrows.retain(|arrow| arrow.sent_ns < shown_ns);
        }
        Timeline { numprocs, end_ns, shown_ns, bars: self.bars, arrows: self.arrows, all: self.all, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(process: u32, start_ns: f64) -> Bar {
        Bar { process, start_ns, end_ns: start_ns + 10.0, doing: Doing::Compute, place: 0 }
    }

    #[test]
    fn a_full_collector_cuts_all_processes_at_one_time_and_says_so() {
        let mut collector = Collector::new(5);
        for (process, start) in [(0, 0.0), (0, 10.0), (0, 20.0), (1, 0.0), (0, 30.0), (1, 10.0), (1, 20.0)] {
            collector.bar(bar(process, start));
        }
        let timeline = collector.finish(2, 1000.0, vec![]);
        assert_eq!((timeline.bars.len(), timeline.all.0, timeline.shown_ns), (2, 7, 10.0));
        assert!(timeline.bars.iter().all(|b| b.start_ns < 10.0));
        assert!(timeline.cut().is_some_and(|c| c.contains("2 of 7 stretches")));
    }

    #[test]
    fn a_short_run_is_whole() {
        let mut collector = Collector::new(5);
        collector.bar(bar(0, 0.0));
        let timeline = collector.finish(1, 10.0, vec![]);
        assert_eq!((timeline.cut(), timeline.shown_ns), (None, 10.0));
    }
}
