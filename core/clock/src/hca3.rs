//! HCA3: every rank's model of the root's clock in `ceil(log2 P)` rounds.
//!
//! From the idea of Hunold & Carpen-Amarie (CLUSTER 2018): the tree of references is walked from
//! the root, so that a reference knows its own model before it serves; a client probes its
//! reference several times over some span, fits a line, and puts the reference's model behind it.
//! What differs: the reference answers with its plain local clock and hands over its model at the
//! end, with its error bound; the client composes the two. That gives the same line as answering in
//! global time would, and a bound for every time, which global time would not.

use crate::fit::{Fit, FitError};
use crate::model::{MODEL_BYTES, Model, ModelError};
use crate::probe::{Assumptions, MinimumFilter, Probe, StopRule, Verdict};
use crate::schedule::{Kind, Schedule, Step};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// How much measuring one pair is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Batches per pair, each one offset measurement of the fit: 1 to 256 (more count as 256, 0 as
    /// 1).
    pub batches: u32,
    /// From the end of one batch to the start of the next, ns. The error of the drift falls with
    /// the span that all batches cover together; a synchronisation takes about
    /// `batches * spacing * rounds`.
    pub spacing_ns: i64,
    /// When a batch ends.
    pub stop: StopRule,
    /// What bounds rest on.
    pub assumptions: Assumptions,
}

impl Default for Effort {
    /// 10 batches, 10 ms apart: a tenth of a second a round.
    fn default() -> Self {
        Effort { batches: 10, spacing_ns: 10_000_000, stop: StopRule::default(), assumptions: Assumptions::default() }
    }
}

/// What a rank has to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Send a probe to `reference`, await its answer, then call [`Participant::probed`].
    Probe {
        /// The rank that answers.
        reference: u32,
    },
    /// Do nothing before own time `local_ns`, then call [`Participant::done`].
    WaitUntil {
        /// Own clock, ns.
        local_ns: i64,
    },
    /// Tell `reference` that no more probes follow, then call [`Participant::done`].
    Finish {
        /// The rank that answered.
        reference: u32,
    },
    /// Receive the model of `reference`, then call [`Participant::took`].
    Take {
        /// The rank that gives it.
        reference: u32,
    },
    /// Answer the probes of `client` with own clock's time until it finishes, then call
    /// [`Participant::done`].
    Serve {
        /// The rank that probes.
        client: u32,
    },
    /// Send own model ([`Participant::give_bytes`]) to `client`, then call [`Participant::done`].
    Give {
        /// The rank that takes it.
        client: u32,
    },
    /// Nothing more: see [`Participant::result`].
    End,
}

/// Why a rank has no model.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SyncError<E> {
    /// Its measurements gave none.
    #[error("rank {rank} against rank {reference}: {error}")]
    Fit {
        /// This rank.
        rank: u32,
        /// Whom it measured.
        reference: u32,
        /// What was wrong.
        error: FitError,
    },
    /// Its reference had none to give.
    #[error("rank {rank}: its reference, rank {reference}, could not synchronise")]
    NoReference {
        /// This rank.
        rank: u32,
        /// Its reference.
        reference: u32,
    },
    /// The rank is not in the schedule.
    #[error("rank {rank} is not among the {ranks} ranks of the schedule")]
    NoSuchRank {
        /// The rank asked for.
        rank: u32,
        /// Ranks in the schedule.
        ranks: u32,
    },
    /// Messages failed.
    #[error(transparent)]
    Exchange(E),
}

/// One rank's part in a synchronisation: a state machine that says what to do and takes what came
/// of it.
///
/// A rank whose measurement fails still plays its part to the end, without a model, so that nobody
/// waits for it in vain; its clients then fail too.
#[derive(Clone, Debug)]
pub struct Participant {
    rank: u32,
    effort: Effort,
    actions: VecDeque<Action>,
    batches: Vec<Vec<Probe>>,
    batch: MinimumFilter,
    fit: Option<Fit>,
    state: Result<Model, SyncError<core::convert::Infallible>>,
}

impl Participant {
    /// The part of `rank`.
    ///
    /// # Errors
    /// [`SyncError::NoSuchRank`].
    pub fn new(
        schedule: &Schedule,
        rank: u32,
        effort: Effort,
    ) -> Result<Participant, SyncError<core::convert::Infallible>> {
        if rank >= schedule.ranks() {
            return Err(SyncError::NoSuchRank { rank, ranks: schedule.ranks() });
        }
        let mut actions = VecDeque::new();
        for step in schedule.steps_of(rank) {
            actions.extend(actions_of(rank, step));
        }
        Ok(Participant {
            rank,
            effort,
            actions,
            batches: Vec::new(),
            batch: MinimumFilter::new(effort.stop),
            fit: None,
            state: Ok(Model::IDENTITY),
        })
    }

    /// What to do now. Stays the same until one of the other functions reports it done.
    #[must_use]
    pub fn action(&self) -> Action {
        self.actions.front().copied().unwrap_or(Action::End)
    }

    /// Reports an [`Action::Probe`]: its times, or `None` if it was lost. Ignored during any other
    /// action.
    pub fn probed(&mut self, outcome: Option<Probe>) {
        if !matches!(self.action(), Action::Probe { .. }) || self.batch.offer(outcome) == Verdict::Continue {
            return;
        }
        let batch = core::mem::replace(&mut self.batch, MinimumFilter::new(self.effort.stop));
        let last_ns = batch.probes().last().map(|p| p.receive_ns);
        self.batches.push(batch.probes().to_vec());
        if self.batches.len() >= self.effort.batches.clamp(1, 256) as usize {
            self.actions.pop_front();
        } else if let (Some(last_ns), true) = (last_ns, self.effort.spacing_ns > 0) {
            let local_ns = last_ns.saturating_add(self.effort.spacing_ns);
            self.actions.push_front(Action::WaitUntil { local_ns });
        }
    }

    /// Reports an [`Action::Take`]: the bytes the reference gave, whatever they are. Ignored during
    /// any other action.
    pub fn took(&mut self, bytes: &[u8; MODEL_BYTES]) {
        let Action::Take { reference } = self.action() else { return };
        self.actions.pop_front();
        let rank = self.rank;
        self.state = match (self.own_model(), Model::from_bytes(bytes)) {
            (Err(error), _) => Err(SyncError::Fit { rank, reference, error }),
            (Ok(_), Err(ModelError::OutOfRange(_))) => Err(SyncError::NoReference { rank, reference }),
            (Ok(own), Ok(parent)) => Ok(own.then(&parent)),
        };
    }

    /// Reports any other action. Ignored during [`Action::Probe`] and [`Action::Take`], which have
    /// results.
    pub fn done(&mut self) {
        if !matches!(self.action(), Action::Probe { .. } | Action::Take { .. }) {
            self.actions.pop_front();
        }
    }

    /// What to send for an [`Action::Give`]: the model, or bytes that are none if there is none.
    #[must_use]
    pub fn give_bytes(&self) -> [u8; MODEL_BYTES] {
        self.state.map_or([0xff; MODEL_BYTES], |model| model.to_bytes())
    }

    /// Local time to the root's time, or why not. Meaningful at [`Action::End`].
    ///
    /// # Errors
    /// [`SyncError::Fit`] and [`SyncError::NoReference`].
    pub fn result(&self) -> Result<Model, SyncError<core::convert::Infallible>> {
        self.state
    }

    /// The fit against the direct reference, for reports; `None` for the root, adopters and
    /// failures.
    #[must_use]
    pub fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }

    /// Own clock against the reference's: measured, or the same clock if nothing was to be
    /// measured.
    fn own_model(&mut self) -> Result<Model, FitError> {
        if self.batches.is_empty() {
            return Ok(Model::IDENTITY);
        }
        let fit = Fit::from_batches(&self.batches, &self.effort.assumptions)?;
        self.batches = Vec::new();
        self.fit = Some(fit);
        Ok(fit.model)
    }
}

/// The actions of `rank` in a step that it takes part in.
fn actions_of(rank: u32, step: Step) -> Vec<Action> {
    let Step { reference, client, kind, .. } = step;
    match (rank == client, kind) {
        (true, Kind::Measure) => {
            vec![Action::Probe { reference }, Action::Finish { reference }, Action::Take { reference }]
        }
        (true, Kind::Adopt) => vec![Action::Take { reference }],
        (false, Kind::Measure) => vec![Action::Serve { client }, Action::Give { client }],
        (false, Kind::Adopt) => vec![Action::Give { client }],
    }
}

/// What moves the messages of a synchronisation and reads the local clock. Every function blocks.
///
/// Over MPI: `probe` is a send of one byte and a receive of 8 (the reference's time); `finish` a
/// send of another byte (or another tag); `serve` receives such bytes and answers until the
/// finishing one; `give` and `take` a message of [`MODEL_BYTES`].
pub trait Exchange {
    /// What can go wrong with messages.
    type Error;
    /// Probes `reference`; `Ok(None)` if probe or answer were lost and waiting was given up.
    ///
    /// # Errors
    /// As the transport has them.
    fn probe(&mut self, reference: u32) -> Result<Option<Probe>, Self::Error>;
    /// Tells `reference` that no more probes follow.
    ///
    /// # Errors
    /// As the transport has them.
    fn finish(&mut self, reference: u32) -> Result<(), Self::Error>;
    /// Answers the probes of `client` with the local time, read as late as possible, until it
    /// finishes.
    ///
    /// # Errors
    /// As the transport has them.
    fn serve(&mut self, client: u32) -> Result<(), Self::Error>;
    /// Sends a model.
    ///
    /// # Errors
    /// As the transport has them.
    fn give(&mut self, client: u32, model: &[u8; MODEL_BYTES]) -> Result<(), Self::Error>;
    /// Receives a model.
    ///
    /// # Errors
    /// As the transport has them.
    fn take(&mut self, reference: u32) -> Result<[u8; MODEL_BYTES], Self::Error>;
    /// Returns at local time `local_ns`, or soon after.
    ///
    /// # Errors
    /// As the transport has them.
    fn wait_until(&mut self, local_ns: i64) -> Result<(), Self::Error>;
}

/// Plays the part of `rank` over `exchange`; all ranks of the schedule must do so with the same
/// schedule. Returns the participant at its end: [`Participant::result`] and [`Participant::fit`].
///
/// # Errors
/// [`SyncError::NoSuchRank`] and [`SyncError::Exchange`]. A measurement that failed is in
/// [`Participant::result`].
pub fn synchronise<X: Exchange>(
    schedule: &Schedule,
    rank: u32,
    effort: Effort,
    exchange: &mut X,
) -> Result<Participant, SyncError<X::Error>> {
    let ranks = schedule.ranks();
    let mut part = Participant::new(schedule, rank, effort).map_err(|_| SyncError::NoSuchRank { rank, ranks })?;
    loop {
        match part.action() {
            Action::End => return Ok(part),
            Action::Probe { reference } => {
                let outcome = exchange.probe(reference).map_err(SyncError::Exchange)?;
                part.probed(outcome);
                continue;
            }
            Action::Take { reference } => {
                let bytes = exchange.take(reference).map_err(SyncError::Exchange)?;
                part.took(&bytes);
                continue;
            }
            Action::WaitUntil { local_ns } => exchange.wait_until(local_ns),
            Action::Finish { reference } => exchange.finish(reference),
            Action::Serve { client } => exchange.serve(client),
            Action::Give { client } => exchange.give(client, &part.give_bytes()),
        }
        .map_err(SyncError::Exchange)?;
        part.done();
    }
}
