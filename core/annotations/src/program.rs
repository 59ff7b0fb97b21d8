//! A program's model: flat code over slots.
//!
//! Two stages. A [`Program`] is parsed and checked, with parameters still open: it is made once,
//! and swept over parameters and numbers of processes. [`Program::model`] gives it all that is
//! known before the run, and folds: the result is a [`Model`], which every process runs from its
//! own slots.
//!
//! # How a process runs
//!
//! A process has a program counter (from 0), a copy of [`Model::slots`] with its number in
//! [`PROCNUM`](crate::expr::PROCNUM), and its clock. Control costs no time. Each [`Op`]:
//!
//! | op | what happens |
//! |---|---|
//! | [`OpKind::Serial`] | the clock advances by a draw of its time |
//! | [`OpKind::Message`] | see [`Message`] |
//! | [`OpKind::Set`] | slot := value |
//! | [`OpKind::Take`] | the next row of a stream into its slots; see [`Take`] |
//! | [`OpKind::Jump`] | pc := target |
//! | [`OpKind::JumpUnless`] | pc := target if the condition is 0 |
//! | [`OpKind::Choose`] | one of the targets, with a chance in proportion to its weight, drawn anew each time |
//! | [`OpKind::LoopBegin`], [`OpKind::LoopEnd`] | see [`Loop`] |
//! | [`OpKind::Check`] | an error of the model (at this place) if the condition is 0 |
//! | [`OpKind::End`] | the process is done; the last op |
//!
//! Jumps lead to ops of the same code; the checker proves that every target exists and that `End`
//! is last, so that a program counter never leaves it. A jump may lead out of loops, never into
//! one. Backward jumps are made by `LoopEnd` alone, so steps can be counted there. Every evaluation
//! may fail ([`EvalError`]); with the op's place that is an error of the model.

use std::sync::Arc;

use crate::expr::{EvalError, Expr, Slot, Value};
use crate::place::Place;

/// An index into [`Model::ops`].
pub type Pc = u32;

/// A parsed and checked program whose parameters are still open.
#[derive(Debug, Clone)]
pub struct Program {
    /// The names of its files, as given to the parser.
    pub files: Arc<[String]>,
    /// The code, in which parameters are slots.
    pub ops: Vec<Op>,
    /// All slots, by number.
    pub slots: Vec<SlotInfo>,
    /// What must be given, or may be given in place of what the source says, sorted by name.
    pub parameters: Vec<Parameter>,
    /// The streams of data, by [`StreamId`].
    pub streams: Vec<Stream>,
    /// Names of requests, by [`RequestId`].
    pub requests: Vec<String>,
    /// Names of what messages carry, by [`FieldId`].
    pub fields: Vec<String>,
    /// What the source says about machines.
    pub machine: MachineDirectives,
    /// Branches on the process's number, for the check that they cover all processes.
    pub runons: Vec<RunonInfo>,
}

/// A `Runon` of several conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct RunonInfo {
    /// Its conditions but for `else`, in order.
    pub conditions: Vec<(Expr, Place)>,
    /// Whether an `else` takes the rest.
    pub has_else: bool,
    /// Where it stands.
    pub place: Place,
}

/// What a slot is for.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotInfo {
    /// Its name in the source; made up (with a `%`) for counters of loops.
    pub name: String,
    /// What it holds at the start of each process.
    pub initial: Value,
}

/// A name whose value is given from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Where its value goes.
    pub slot: Slot,
    /// What it is if nothing is given: a constant of the source. It may mention `numprocs` and
    /// other parameters.
    pub default: Option<Expr>,
    /// Where it is used, or declared: for "missing parameter".
    pub places: Vec<Place>,
    /// Another place that explains it: where its default stands, or why the source has no value for
    /// it.
    pub note: Option<(Place, String)>,
}

/// `Processor`, `Network` and `Default` directives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineDirectives {
    /// Processors, by [`ProcessorId`]. Names that only `Serial on` mentions are here too.
    pub processors: Vec<Processor>,
    /// Networks.
    pub networks: Vec<Network>,
    /// Name of the default processor.
    pub processor: Option<(String, Place)>,
    /// Name of the default network.
    pub network: Option<(String, Place)>,
    /// The default number of processes.
    pub numprocs: Option<(Expr, Place)>,
    /// The clock of all processors in MHz.
    pub speed_mhz: Option<(Expr, Place)>,
    /// The clock of one processor in MHz, by its process's number: `speed_i`.
    pub speed_of_mhz: Vec<(u32, Expr, Place)>,
}

/// A kind of processor: CPU, compiler and system under one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    /// Its name.
    pub name: String,
    /// The clock in MHz for which the serial times on it hold; none: they are times as they are.
    pub basis_mhz: Option<f64>,
    /// Where it stands first.
    pub place: Place,
}

/// An index into [`MachineDirectives::processors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessorId(pub u32);

/// A network: a directed graph of links.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Its links.
    pub links: Vec<NetworkLink>,
    /// Where it stands.
    pub place: Place,
}

/// `link NAME = FROM TO FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLink {
    /// Its name.
    pub name: String,
    /// A node or switch.
    pub from: String,
    /// A node or switch.
    pub to: String,
    /// The file or folder with the link's distributions.
    pub profile: String,
    /// Where it stands.
    pub place: Place,
}

/// A model ready to run: for one number of processes, one processor and one set of parameters.
#[derive(Debug, Clone)]
pub struct Model {
    /// The names of the source's files.
    pub files: Arc<[String]>,
    /// The code, the same for all processes; see the module's table.
    pub ops: Vec<Op>,
    /// What each process's slots hold at its start, but for `PROCNUM`, which the virtual machine
    /// sets.
    pub slots: Vec<Value>,
    /// Names of the slots, for people.
    pub slot_names: Vec<String>,
    /// How many processes there are, at least 1.
    pub numprocs: u32,
    /// The factor on every serial time of each process: basis clock / its clock. Empty: 1 for all.
    pub slowness: Vec<f64>,
    /// The data of the streams, by [`StreamId`].
    pub streams: Vec<Arc<Table>>,
    /// Names of requests, by [`RequestId`].
    pub requests: Vec<String>,
    /// Names of what messages carry, by [`FieldId`].
    pub fields: Vec<String>,
    /// The source's links, if it describes its network.
    pub network: Option<Network>,
}

/// One step of the code.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// The directive it comes from.
    pub place: Place,
}

impl Op {
    /// Gives each expression in it to a function, which may replace it.
    pub fn each_expr(&mut self, work: &mut impl FnMut(&mut Expr)) {
        match &mut self.kind {
            OpKind::Serial(serial) => serial.times.iter_mut().for_each(|(_, time, _)| time.law.each_expr(work)),
            OpKind::Message(message) => message.each_expr(work),
            OpKind::Set(_, expr) | OpKind::JumpUnless(expr, _) | OpKind::Check(expr, _) => work(expr),
            OpKind::Choose(branches) => branches.iter_mut().for_each(|(weight, _)| work(weight)),
            OpKind::LoopBegin(l) => match &mut l.until {
                Until::Count(expr) | Until::While(expr) => work(expr),
            },
            OpKind::Take(_) | OpKind::Jump(_) | OpKind::LoopEnd(_) | OpKind::End => {}
        }
    }
}

impl Law {
    fn each_expr(&mut self, work: &mut impl FnMut(&mut Expr)) {
        match self {
            Self::Fixed(a) | Self::Exponential(a) => work(a),
            Self::Uniform(a, b)
            | Self::Normal(a, b)
            | Self::Lognormal(a, b)
            | Self::Gamma(a, b)
            | Self::Weibull(a, b) => {
                work(a);
                work(b);
            }
            Self::Pearson5(a, b, c) => {
                work(a);
                work(b);
                work(c);
            }
            Self::Draw(..) => {}
        }
    }
}

impl Message {
    fn each_expr(&mut self, work: &mut impl FnMut(&mut Expr)) {
        match self {
            Self::Send(send) => send.each_expr(work),
            Self::Recv(recv) | Self::Probe(recv) => recv.each_expr(work),
            Self::Sendrecv(send, recv) => {
                send.each_expr(work);
                recv.each_expr(work);
            }
            Self::SendInit(send) => send.each_expr(work),
            Self::RecvInit(recv) => recv.each_expr(work),
            Self::Wait(Requests { list, .. }) | Self::Test(Requests { list, .. }) | Self::Start(list) => {
                list.iter_mut().filter_map(|request| request.index.as_mut()).for_each(work);
            }
            Self::Free(request) => request.index.iter_mut().for_each(work),
            Self::Collective(collective) => {
                work(&mut collective.size);
                work(&mut collective.comm);
                collective.root.iter_mut().for_each(&mut *work);
                collective.request.iter_mut().filter_map(|request| request.index.as_mut()).for_each(&mut *work);
                for (low, high) in &mut collective.group.0 {
                    work(low);
                    work(high);
                }
            }
        }
    }
}

impl Send {
    fn each_expr(&mut self, work: &mut impl FnMut(&mut Expr)) {
        [&mut self.to, &mut self.size, &mut self.tag, &mut self.comm].into_iter().for_each(&mut *work);
        self.request.iter_mut().filter_map(|request| request.index.as_mut()).for_each(&mut *work);
        self.carries.iter_mut().for_each(|(_, value)| work(value));
    }
}

impl Recv {
    fn each_expr(&mut self, work: &mut impl FnMut(&mut Expr)) {
        [&mut self.from, &mut self.size, &mut self.tag].into_iter().flatten().for_each(&mut *work);
        work(&mut self.comm);
        self.request.iter_mut().filter_map(|request| request.index.as_mut()).for_each(work);
    }
}

/// What a step does; see the module's table.
#[derive(Debug, Clone, PartialEq)]
pub enum OpKind {
    /// A serial segment.
    Serial(Box<Serial>),
    /// Communication.
    Message(Box<Message>),
    /// Puts a value into a slot.
    Set(Slot, Expr),
    /// Reads a stream.
    Take(Box<Take>),
    /// Goes on elsewhere; always forward.
    Jump(Pc),
    /// Goes on elsewhere if the expression is 0; always forward.
    JumpUnless(Expr, Pc),
    /// Goes on at one of several places by chance. Weights are at least 0, and one of them is more;
    /// else it is an error of the model ([`choice_of`] says which branch a draw means).
    Choose(Vec<(Expr, Pc)>),
    /// Begins a loop.
    LoopBegin(Box<Loop>),
    /// Ends the body of the loop whose `LoopBegin` stands there.
    LoopEnd(Pc),
    /// An error of the model if the expression is 0, said with this text.
    Check(Expr, Arc<str>),
    /// The process is done.
    End,
}

/// A loop.
///
/// `LoopBegin` sets `index` to 0, and, if it counts, `left` to the number of iterations (rounded
/// towards zero; less than 0 is an error of the model). Then, as at each `LoopEnd`, it decides:
/// with `left` at 0, or a condition that is 0, it goes on at `exit`, otherwise at the op behind
/// `LoopBegin`. `LoopEnd` first adds 1 to `index` and takes 1 from `left`.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// How long.
    pub until: Until,
    /// Counts iterations from 0, readable by the body.
    pub index: Slot,
    /// Iterations left, not readable by the body; unused by `while`.
    pub left: Slot,
    /// Where it goes on behind the loop: the op behind its `LoopEnd`.
    pub exit: Pc,
    /// The body does the same for the same process in each iteration: no draw by weight, no `Take`,
    /// no wildcard, no test, and nothing that it evaluates changes from one iteration to the next.
    /// Only the times drawn differ.
    pub steady: bool,
}

/// How long a loop goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum Until {
    /// So many times.
    Count(Expr),
    /// While this is not 0.
    While(Expr),
}

/// A serial segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Serial {
    /// Its time for each processor that the source names, in a [`Program`]; one entry, the chosen
    /// processor's, in a [`Model`]. `None` is any processor.
    pub times: Vec<(Option<ProcessorId>, Time, Place)>,
}

/// A time: a law whose arguments are expressions.
#[derive(Debug, Clone, PartialEq)]
pub struct Time {
    /// Which law. A draw below 0 counts as 0.
    pub law: Law,
    /// How many nanoseconds the unit of its times has (1e6 for milliseconds, the default of the
    /// language).
    pub unit_ns: f64,
}

/// Laws of times. Arguments that are times are in [`Time::unit_ns`], others have no unit.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// Always the same.
    Fixed(Expr),
    /// Between two times.
    Uniform(Expr, Expr),
    /// Mean and standard deviation, both times.
    Normal(Expr, Expr),
    /// Mean, a time.
    Exponential(Expr),
    /// Median, a time, and the standard deviation of the logarithm, without unit.
    Lognormal(Expr, Expr),
    /// Shape without unit, scale a time.
    Gamma(Expr, Expr),
    /// Shape without unit, scale a time.
    Weibull(Expr, Expr),
    /// Shape without unit, scale and location times: location + scale / Gamma(shape, 1).
    Pearson5(Expr, Expr, Expr),
    /// A row of a stream's column by chance, each as likely.
    Draw(StreamId, usize),
}

/// Communication, as MPI defines it. Ranks are process numbers, sizes are bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// `MPI_Send` and its like.
    Send(Send),
    /// `MPI_Recv`, `MPI_Irecv`.
    Recv(Recv),
    /// `MPI_Sendrecv`: both begin at once, both must be done. Neither has a request.
    Sendrecv(Send, Recv),
    /// `MPI_Wait`, `MPI_Waitall`, `MPI_Waitany`, `MPI_Waitsome`.
    Wait(Requests),
    /// `MPI_Test`, `MPI_Testall`, `MPI_Testany`: sets [`Bound::Flag`]; `MPI_Testsome`: sets
    /// [`Bound::Outcount`].
    Test(Requests),
    /// `MPI_Send_init` and its like: a persistent request, of which each start is such a send. It
    /// is evaluated here, what the message carries at each start.
    SendInit(Send),
    /// `MPI_Recv_init`.
    RecvInit(Recv),
    /// `MPI_Start`, `MPI_Startall`: begins what persistent requests are for, in this order; one
    /// without an index stands for all of its name, by index and age, one with it for the oldest
    /// made under it that is not active. That there is none is an error of the model.
    Start(Vec<Request>),
    /// `MPI_Request_free`: what the request is for goes on by itself, and a persistent one is gone;
    /// the oldest of several. One that is neither active nor persistent is an error of the model.
    Free(Request),
    /// `MPI_Probe` (`blocking`), `MPI_Iprobe` (not, sets [`Bound::Flag`]): as a receive that leaves
    /// the message where it is.
    Probe(Recv),
    /// All processes of a group together.
    Collective(Collective),
}

/// A send.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    /// When it may complete.
    pub mode: SendMode,
    /// The receiver. -1 (`MPI_PROC_NULL`): nothing is sent, it is complete at once.
    pub to: Expr,
    /// Bytes, at least 0.
    pub size: Expr,
    /// At least 0.
    pub tag: Expr,
    /// The communicator's number; 0 is `MPI_COMM_WORLD`.
    pub comm: Expr,
    /// For those that do not block: where their completion is asked for.
    pub request: Option<Request>,
    /// What the message tells its receiver: evaluated when the send begins.
    pub carries: Vec<(FieldId, Expr)>,
}

/// When a send may complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    /// When its buffer is free: eager or rendezvous, by the machine's threshold.
    Standard,
    /// When its receive has begun.
    Synchronous,
    /// At once.
    Buffered,
    /// As standard; its receive must have been posted.
    Ready,
}

/// A receive.
#[derive(Debug, Clone, PartialEq)]
pub struct Recv {
    /// The sender, none: any. -1 (`MPI_PROC_NULL`): complete at once, with source -1 and tag -1.
    pub from: Option<Expr>,
    /// Bytes it has room for; none: any message fits. A longer message is an error of the model
    /// (truncation).
    pub size: Option<Expr>,
    /// None: any.
    pub tag: Option<Expr>,
    /// As in [`Send`].
    pub comm: Expr,
    /// For `MPI_Irecv`: where its completion is asked for. What is bound is bound when a wait or
    /// test completes it.
    pub request: Option<Request>,
    /// Of probes only: whether it waits.
    pub blocking: bool,
    /// What it learns, put into slots when it completes.
    pub binds: Vec<(Bound, Slot)>,
}

/// What can be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The message's sender.
    Source,
    /// The message's tag.
    Tag,
    /// The message's bytes.
    Size,
    /// Of a test or `MPI_Iprobe`: 1 if complete (there), else 0.
    Flag,
    /// Of `MPI_Waitany`, `MPI_Testany`: which of the listed requests it was, from 0; -1: none was
    /// left.
    Index,
    /// Of `MPI_Waitsome`, `MPI_Testsome`: how many were complete; -1: none was left.
    Outcount,
    /// What the sender put under this name; that it put nothing there is an error of the model.
    Carried(FieldId),
}

/// A name under which a message carries a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(pub u32);

/// The name of a request, or of an array of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// A request of a process: the operations that were begun under (name, index) and are not complete,
/// oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// Which of an array. None where begun: index 0. None where waited for: all of that name, in
    /// the order they were begun.
    pub index: Option<Expr>,
}

/// What a wait or test is for.
///
/// A request that nothing stands under is complete (MPI's `MPI_REQUEST_NULL`). Of several
/// operations under one listed request `One` means the oldest; `All` all of them; `Any` the
/// earliest complete, the lowest position in the list among equals; `Some` all that are complete
/// when the process goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    /// Which of the list must be complete.
    pub mode: WaitMode,
    /// The list, not empty; `One` has one.
    pub list: Vec<Request>,
    /// Besides what the receives that it completes bind themselves: flag and index, and source,
    /// tag, size and what is carried of the receive that was completed (the last in the list, if
    /// several).
    pub binds: Vec<(Bound, Slot)>,
}

/// Which of a list of requests must be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// The only one.
    One,
    /// Each.
    All,
    /// One of them.
    Any,
    /// One of them; all that are complete by then are taken.
    Some,
}

/// A collective operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// Which.
    pub operation: CollectiveOp,
    /// Bytes: of the whole message for bcast, reduce, allreduce, scan; of the block for one process
    /// for the others; 0 for barriers.
    pub size: Expr,
    /// All processes of the group must have the same size, as MPI says of all but the `v` variants.
    pub alike: bool,
    /// The processes of the group. A process outside that comes here is an error of the model.
    pub group: Ranks,
    /// The root's process number, for those that have one.
    pub root: Option<Expr>,
    /// As in [`Send`]. Collectives of one communicator and the same group match in the order in
    /// which they are called.
    pub comm: Expr,
    /// For those that do not block (`MPI_Ibarrier` ...).
    pub request: Option<Request>,
}

/// Collective operations; `v` variants are counted to these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is MPI's operation of that name")]
pub enum CollectiveOp {
    Barrier,
    Bcast,
    Scatter,
    Gather,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
}

impl CollectiveOp {
    /// All of them.
    pub const ALL: [CollectiveOp; 11] = [
        Self::Barrier,
        Self::Bcast,
        Self::Scatter,
        Self::Gather,
        Self::Allgather,
        Self::Alltoall,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
    ];
}

/// Process numbers: inclusive ranges. Empty: all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranks(pub Vec<(Expr, Expr)>);

/// The number of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A stream of data: rows that processes take one after the other, each process for itself from the
/// first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Its name, and that of the variable its rows go to.
    pub name: String,
    /// The file it stands in.
    pub file: String,
    /// Columns that the program uses, in the order of [`Table::columns`] once it is read.
    pub columns: Vec<String>,
    /// Where it is declared.
    pub place: Place,
}

/// Takes the next row of a stream.
///
/// With `cursor` below the number of rows: each slot gets its column's value in row `cursor`,
/// `valid` 1, and `cursor` one more. Otherwise `valid` gets 0 and all else stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// Which.
    pub stream: StreamId,
    /// Where this process stands in it.
    pub cursor: Slot,
    /// 1 if there was a row.
    pub valid: Slot,
    /// Column of [`Table::columns`], and where it goes.
    pub fields: Vec<(usize, Slot)>,
}

/// The data of a stream.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Row by row, `columns.len()` values each.
    pub values: Vec<Value>,
}

impl Table {
    /// How many rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns.len()).unwrap_or(0)
    }

    /// The value in a row and a column.
    #[must_use]
    pub fn value(&self, row: usize, column: usize) -> Option<Value> {
        if column >= self.columns.len() {
            return None;
        }
        self.values.get(row.checked_mul(self.columns.len())?.checked_add(column)?).copied()
    }
}

impl Ranks {
    /// The process numbers, ascending, each once.
    ///
    /// # Errors
    /// That an end has no value; the inner error: the end that is not below `numprocs`.
    pub fn list(&self, slots: &[Value], numprocs: u32) -> Result<Result<Vec<u32>, i64>, EvalError> {
        let mut all = Vec::new();
        for (low, high) in &self.0 {
            let (low, high) = (low.int_value(slots)?, high.int_value(slots)?);
            for end in [low, high] {
                if low <= high && !(0..i64::from(numprocs)).contains(&end) {
                    return Ok(Err(end));
                }
            }
            // Both fit: they are below numprocs.
            all.extend((low..=high).filter_map(|rank| u32::try_from(rank).ok()));
        }
        if self.0.is_empty() {
            all.extend(0..numprocs);
        }
        all.sort_unstable();
        all.dedup();
        Ok(Ok(all))
    }
}

/// Which branch of a [`OpKind::Choose`] a draw means: `unit` is from 0 up to, not including, 1.
/// None: no weight is above 0, or one is below.
///
/// # Errors
/// That a weight has no value.
pub fn choice_of(branches: &[(Expr, Pc)], slots: &[Value], unit: f64) -> Result<Option<Pc>, EvalError> {
    let mut total = 0.0;
    for (weight, _) in branches {
        let weight = weight.eval(slots)?.as_f64();
        if weight < 0.0 {
            return Ok(None);
        }
        total += weight;
    }
    let mut left = unit * total;
    let mut last = None;
    for (weight, target) in branches {
        let weight = weight.eval(slots)?.as_f64();
        if weight > 0.0 {
            last = Some(*target);
            if left < weight {
                return Ok(last);
            }
        }
        left -= weight;
    }
    Ok(last)
}
