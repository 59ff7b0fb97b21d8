//! Defects that can be switched on in simulated ranks, to show that the checkers find what breaks a
//! promise.
//!
//! They lie in the simulator, between the messages (`weir_message::Messages`) and what drives them:
//! a call is changed, left out or made twice, as it would be with a defect behind it. So what ships
//! has no switch. Those that change what goes over the network (credit, cancelled receives, what is
//! read for parity) are found by what the messages then do.

use std::ops::Range;

use rayon::prelude::*;

use crate::run::{Watch, run};
use crate::scenario::{Profile, Scenario};

/// A defect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "`ALL` says of each what it is")]
pub enum Defect {
    PayloadShifted,
    WrittenBehind,
    ParitySpoilt,
    ToldEarly,
    EndTwice,
    EndLost,
    SyncNotAwaited,
    WaitingOvertaken,
    TagBitIgnored,
    SourceIgnored,
    CreditTwice,
    DeathUnheard,
    CancelledStays,
    ClaimNotKept,
    BulkEndUntold,
    TimersForgotten,
    WriteShifted,
    ReadShifted,
    NoticeLost,
    NoticeTwice,
    AddedTwice,
    AnswerDropped,
    PartsOverlap,
    FreeSpaceIgnored,
    ExcessUntold,
    BufferKept,
    BufferBackEarly,
    PartsOutOfOrder,
    LeftAtOnce,
    LifeReused,
    SentToHeir,
    ForgottenKept,
    CutRecordCounted,
    HastyVerdict,
    NeverQuiet,
    MarkTwice,
}

/// What is known of a defect.
#[derive(Copy, Clone, Debug)]
pub struct Known {
    /// The defect.
    pub defect: Defect,
    /// By what name it is asked for.
    pub name: &'static str,
    /// What it breaks.
    pub promise: &'static str,
    /// The seeds that are likely to show it.
    pub profile: Profile,
}

const fn known(defect: Defect, name: &'static str, promise: &'static str, profile: Profile) -> Known {
    Known { defect, name, promise, profile }
}

/// All defects.
pub const ALL: &[Known] = &[
    known(Defect::PayloadShifted, "payload-shifted", "every byte of a completed receive is right", Profile::All),
    known(Defect::WrittenBehind, "written-behind", "no byte is written behind a receive's buffer", Profile::All),
    known(Defect::ParitySpoilt, "parity-spoilt", "what is restored from parity is right", Profile::Lossy),
    known(Defect::ToldEarly, "told-early", "a send is complete when all of it has arrived", Profile::All),
    known(Defect::EndTwice, "end-twice", "an operation ends once", Profile::All),
    known(Defect::EndLost, "end-lost", "every operation ends", Profile::Clean),
    known(Defect::SyncNotAwaited, "sync-not-awaited", "a synchronous send is complete when matched", Profile::All),
    known(Defect::WaitingOvertaken, "waiting-overtaken", "messages of one sender match in their order", Profile::All),
    known(Defect::TagBitIgnored, "tag-bit-ignored", "a receive takes its own tag only", Profile::All),
    known(Defect::SourceIgnored, "source-ignored", "a receive takes its own sender only", Profile::All),
    known(Defect::CreditTwice, "credit-twice", "nobody is given credit for more than came", Profile::All),
    known(Defect::DeathUnheard, "death-unheard", "the dead are noticed", Profile::Crash),
    known(Defect::CancelledStays, "cancelled-stays", "a cancelled receive takes nothing", Profile::All),
    known(Defect::ClaimNotKept, "claim-not-kept", "a claimed message is the claimer's alone", Profile::All),
    known(Defect::BulkEndUntold, "bulk-end-untold", "what a broken carrier had goes by another", Profile::All),
    known(Defect::TimersForgotten, "timers-forgotten", "everything ends in time", Profile::Lossy),
    known(Defect::WriteShifted, "write-shifted", "a remote write lands where it was to", Profile::All),
    known(Defect::ReadShifted, "read-shifted", "a remote read brings what is there", Profile::All),
    known(Defect::NoticeLost, "notice-lost", "a write that is done was told to its target", Profile::All),
    known(Defect::AddedTwice, "added-twice", "an atomic operation is executed once", Profile::All),
    known(Defect::AnswerDropped, "answer-dropped", "every atomic operation is answered", Profile::All),
    known(Defect::PartsOverlap, "parts-overlap", "messages of one buffer lie behind each other", Profile::All),
    known(Defect::FreeSpaceIgnored, "free-space-ignored", "a buffer with too little free takes no more", Profile::All),
    known(Defect::ExcessUntold, "excess-untold", "a message that does not fit is told to be cut", Profile::All),
    known(Defect::BufferKept, "buffer-kept", "a buffer for several messages is handed back", Profile::All),
    known(Defect::BufferBackEarly, "buffer-back-early", "a buffer is handed back when all in it is over", Profile::All),
    known(
        Defect::PartsOutOfOrder,
        "parts-out-of-order",
        "messages in buffers are told as they were sent",
        Profile::All,
    ),
    known(Defect::LeftAtOnce, "left-at-once", "what was told as sent arrives, though its sender ends", Profile::Leave),
    known(Defect::LifeReused, "life-reused", "a new life is told from the old one", Profile::Leave),
    known(Defect::SentToHeir, "sent-to-heir", "what was sent to the old life is not for the new one", Profile::Leave),
    known(Defect::ForgottenKept, "forgotten-kept", "the place of a forgotten peer comes free", Profile::Leave),
    known(
        Defect::CutRecordCounted,
        "cut-record-counted",
        "what a connection was cut off in counts for nothing",
        Profile::Carriers,
    ),
    known(Defect::HastyVerdict, "hasty-verdict", "who is silent for a short time is not dead", Profile::Carriers),
    known(Defect::NeverQuiet, "never-quiet", "who has nothing to tell sends little", Profile::Multihome),
    known(Defect::MarkTwice, "mark-twice", "nobody is told of more marks than switches made", Profile::Incast),
    known(Defect::NoticeTwice, "notice-twice", "a target is told of a write once", Profile::All),
];

/// Which operations a defect spoils that does not spoil all.
pub(crate) fn hits(number: u64) -> bool {
    number % 8 == 3
}

/// Who found a defect.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first seed that shows it.
    pub seed: u64,
    /// Which checker.
    pub kind: String,
    /// What it said.
    pub detail: String,
}

/// The first of `seeds` in which `known` is found.
#[must_use]
pub fn find(known: &Known, seeds: Range<u64>) -> Option<Found> {
    let watch = Watch { planted: Some(known.defect), ..Watch::default() };
    seeds.into_par_iter().find_map_first(|seed| {
        let s = Scenario::draw(seed, known.profile);
        let found = |kind: &str, detail: String| Some(Found { seed, kind: kind.to_owned(), detail });
        match std::panic::catch_unwind(|| run(&s, watch)) {
            Ok(report) => report.violation.and_then(|v| found(v.kind, v.detail)),
            Err(_) => found("panic", "a simulated rank panics".to_owned()),
        }
    })
}
