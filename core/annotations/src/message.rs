//! `Message`: which attributes each type has, and what it becomes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::compile::Compiler;
use crate::csource::communicates;
use crate::exparse::suggestion;
use crate::expr::{Binary, Expr, PROCNUM, Slot, Value};
use crate::place::{Diagnostic, Place};
use crate::program::{
    Bound, Collective, CollectiveOp, Message, OpKind, Ranks, Recv, Request, Requests, Send, SendMode, WaitMode,
};
use crate::records::{RESERVED, missing};
use crate::syntax::{Attr, Head, NamedAttr, RankList, RequestEx};

/// What a type is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Send(SendMode, bool),
    Recv(bool),
    Sendrecv,
    Probe(bool),
    Wait(WaitMode),
    Test(WaitMode),
    SendInit(SendMode),
    RecvInit,
    /// Whether several.
    Start(bool),
    Free,
    /// Which, and whether it does not block.
    Collective(CollectiveOp, bool),
}

/// The types, without `MPI_` and without the `I` of collectives.
const TYPES: [(&str, Shape); 46] = [
    ("Send", Shape::Send(SendMode::Standard, false)),
    ("Ssend", Shape::Send(SendMode::Synchronous, false)),
    ("Bsend", Shape::Send(SendMode::Buffered, false)),
    ("Rsend", Shape::Send(SendMode::Ready, false)),
    ("Isend", Shape::Send(SendMode::Standard, true)),
    ("Issend", Shape::Send(SendMode::Synchronous, true)),
    ("Ibsend", Shape::Send(SendMode::Buffered, true)),
    ("Irsend", Shape::Send(SendMode::Ready, true)),
    ("Recv", Shape::Recv(false)),
    ("Irecv", Shape::Recv(true)),
    ("Sendrecv", Shape::Sendrecv),
    ("Sendrecv_replace", Shape::Sendrecv),
    ("Probe", Shape::Probe(true)),
    ("Iprobe", Shape::Probe(false)),
    ("Wait", Shape::Wait(WaitMode::One)),
    ("Waitall", Shape::Wait(WaitMode::All)),
    ("Waitany", Shape::Wait(WaitMode::Any)),
    ("Test", Shape::Test(WaitMode::One)),
    ("Testall", Shape::Test(WaitMode::All)),
    ("Testany", Shape::Test(WaitMode::Any)),
    ("Waitsome", Shape::Wait(WaitMode::Some)),
    ("Testsome", Shape::Test(WaitMode::Some)),
    ("Send_init", Shape::SendInit(SendMode::Standard)),
    ("Ssend_init", Shape::SendInit(SendMode::Synchronous)),
    ("Bsend_init", Shape::SendInit(SendMode::Buffered)),
    ("Rsend_init", Shape::SendInit(SendMode::Ready)),
    ("Recv_init", Shape::RecvInit),
    ("Start", Shape::Start(false)),
    ("Startall", Shape::Start(true)),
    ("Request_free", Shape::Free),
    ("Barrier", Shape::Collective(CollectiveOp::Barrier, false)),
    ("Bcast", Shape::Collective(CollectiveOp::Bcast, false)),
    ("Scatter", Shape::Collective(CollectiveOp::Scatter, false)),
    ("Scatterv", Shape::Collective(CollectiveOp::Scatter, false)),
    ("Gather", Shape::Collective(CollectiveOp::Gather, false)),
    ("Gatherv", Shape::Collective(CollectiveOp::Gather, false)),
    ("Allgather", Shape::Collective(CollectiveOp::Allgather, false)),
    ("Allgatherv", Shape::Collective(CollectiveOp::Allgather, false)),
    ("Alltoall", Shape::Collective(CollectiveOp::Alltoall, false)),
    ("Alltoallv", Shape::Collective(CollectiveOp::Alltoall, false)),
    ("Reduce", Shape::Collective(CollectiveOp::Reduce, false)),
    ("Allreduce", Shape::Collective(CollectiveOp::Allreduce, false)),
    ("Reduce_scatter", Shape::Collective(CollectiveOp::ReduceScatter, false)),
    ("Reduce_scatter_block", Shape::Collective(CollectiveOp::ReduceScatter, false)),
    ("Scan", Shape::Collective(CollectiveOp::Scan, false)),
    ("Exscan", Shape::Collective(CollectiveOp::Exscan, false)),
];

/// Whether MPI lets each process of a collective have a size of its own.
fn sizes_differ(name: &str) -> bool {
    let rest = name.trim_start_matches("MPI_").trim_start_matches('I').to_ascii_lowercase();
    matches!(rest.as_str(), "scatterv" | "gatherv" | "allgatherv" | "alltoallv" | "reduce_scatter")
}

fn shape(name: &str) -> Option<Shape> {
    let rest = name.strip_prefix("MPI_")?;
    let listed = |n: &str| TYPES.iter().find(|(name, _)| *name == n).map(|(_, shape)| *shape);
    if let Some(shape) = listed(rest) {
        return Some(shape);
    }
    let inner = rest.strip_prefix('I')?;
    let capital = inner.get(..1)?.to_uppercase() + inner.get(1..)?;
    match listed(&capital) {
        Some(Shape::Collective(op, _)) if !inner.starts_with(char::is_uppercase) => Some(Shape::Collective(op, true)),
        _ => None,
    }
}

/// The attributes that a type may have besides `type`.
const fn allowed(shape: Shape) -> &'static [&'static str] {
    match shape {
        Shape::Send(_, false) => &["size", "from", "to", "tag", "comm", "carry"],
        Shape::Send(_, true) | Shape::SendInit(_) => &["size", "from", "to", "tag", "comm", "carry", "req", "req/stat"],
        Shape::Recv(false) => &["size", "from", "to", "tag", "comm", "bind", "stat", "req/stat"],
        Shape::Recv(true) | Shape::RecvInit => &["size", "from", "to", "tag", "comm", "bind", "req", "req/stat"],
        Shape::Sendrecv => {
            &["size", "from", "to", "tag", "comm", "recvsize", "recvtag", "bind", "carry", "stat", "req/stat"]
        }
        Shape::Probe(_) => &["from", "to", "tag", "comm", "bind", "stat", "req/stat"],
        Shape::Wait(_) | Shape::Test(_) => &["size", "from", "to", "req", "stat", "req/stat", "bind"],
        Shape::Start(_) | Shape::Free => &["req"],
        Shape::Collective(CollectiveOp::Barrier, false) => &["size", "from", "to", "comm"],
        Shape::Collective(CollectiveOp::Barrier, true) => &["size", "from", "to", "comm", "req", "req/stat"],
        Shape::Collective(_, false) => &["size", "from", "to", "comm", "root"],
        Shape::Collective(_, true) => &["size", "from", "to", "comm", "root", "req", "req/stat"],
    }
}

impl Compiler<'_> {
    /// Lays out a message.
    pub fn message(&mut self, head: &Head) {
        if head.broken {
            return;
        }
        let Some(shape) = self.shape_of(head) else { return };
        for attr in &head.attrs {
            if attr.name != "type" && !allowed(shape).contains(&attr.name) {
                let name = head.name_of("type").unwrap_or_default();
                self.found.push(
                    Diagnostic::error("unfit-attribute", attr.place, format!("{name} has no `{}`", attr.name))
                        .with_help(format!("it has {}", allowed(shape).join(", "))),
                );
                return;
            }
        }
        let (message, bound) = match shape {
            Shape::Send(mode, begins) => {
                self.check_own(head, "from");
                let Some(send) = self.send(head, mode, begins) else { return };
                (Message::Send(send), BTreeSet::new())
            }
            Shape::Recv(begins) => {
                self.check_own(head, "to");
                let Some(recv) = self.recv(head, "size", "tag", begins) else { return };
                let bound = if begins { BTreeSet::new() } else { slots_of(&recv.binds) };
                (Message::Recv(recv), bound)
            }
            Shape::Sendrecv => {
                let Some(send) = self.send(head, SendMode::Standard, false) else { return };
                let size = if head.attr("recvsize").is_some() { "recvsize" } else { "size" };
                let tag = if head.attr("recvtag").is_some() { "recvtag" } else { "tag" };
                let Some(recv) = self.recv(head, size, tag, false) else { return };
                let bound = slots_of(&recv.binds);
                (Message::Sendrecv(send, recv), bound)
            }
            Shape::Probe(blocking) => {
                self.check_own(head, "to");
                let Some(recv) = self.recv(head, "size", "tag", false) else { return };
                let bound = slots_of(&recv.binds);
                (Message::Probe(Recv { blocking, ..recv }), bound)
            }
            Shape::Wait(mode) | Shape::Test(mode) => {
                let Some(requests) = self.requests(head, mode) else { return };
                // It also binds what the receives that it completes bind.
                let mut bound = slots_of(&requests.binds);
                bound.extend(self.bound_later.iter().copied());
                let message =
                    if matches!(shape, Shape::Wait(_)) { Message::Wait(requests) } else { Message::Test(requests) };
                (message, bound)
            }
            Shape::SendInit(mode) => {
                self.check_own(head, "from");
                let Some(send) = self.send(head, mode, true) else { return };
                (Message::SendInit(send), BTreeSet::new())
            }
            Shape::RecvInit => {
                self.check_own(head, "to");
                let Some(recv) = self.recv(head, "size", "tag", true) else { return };
                (Message::RecvInit(recv), BTreeSet::new())
            }
            Shape::Start(several) => {
                let mode = if several { WaitMode::All } else { WaitMode::One };
                let Some(mut list) = self.requests(head, mode).map(|requests| requests.list) else { return };
                list.iter_mut().filter(|_| !several).for_each(first_of_its_name);
                (Message::Start(list), BTreeSet::new())
            }
            Shape::Free => {
                let Some(mut request) = self.request(head) else { return };
                first_of_its_name(&mut request);
                (Message::Free(request), BTreeSet::new())
            }
            Shape::Collective(op, begins) => {
                let Some(mut collective) = self.collective(head, op, begins) else { return };
                collective.alike = !sizes_differ(head.name_of("type").unwrap_or_default());
                (Message::Collective(collective), BTreeSet::new())
            }
        };
        self.emit(OpKind::Message(Box::new(message)), head.place);
        self.leave(&bound, head.place);
    }

    fn shape_of(&mut self, head: &Head) -> Option<Shape> {
        let Some(name) = head.name_of("type") else {
            self.found.push(missing(head, "type", "write `type = MPI_Send`, or what it is"));
            return None;
        };
        let found = shape(name);
        if found.is_none() {
            let place = head.attr("type").map_or(head.place, |attr| attr.place);
            let known: Vec<String> = TYPES.iter().map(|(name, _)| format!("MPI_{name}")).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let fault = if communicates(name) {
                Diagnostic::error("unknown-type", place, format!("{name} is not modelled"))
            } else {
                Diagnostic::error("unknown-type", place, format!("`{name}` is no function of MPI that communicates"))
            };
            self.found.push(match suggestion(name, &known) {
                Some(help) if !communicates(name) => fault.with_help(help),
                _ => fault.with_help("see the table in spec/annotations.md, section 5"),
            });
        }
        found
    }

    /// `from` of a send and `to` of a receive are the process itself.
    fn check_own(&mut self, head: &Head, attr: &str) {
        let Some(given) = head.attr(attr) else { return };
        let Some(own) = self.rank(given) else { return };
        if own == Expr::Slot(PROCNUM) {
            return;
        }
        let name = head.name_of("type").unwrap_or_default();
        let said = format!("{name} is executed by a process that is not its `{attr}`: put it into a Runon");
        let condition = Expr::Binary(Binary::Equal, Box::new((own, Expr::Slot(PROCNUM))));
        self.emit(OpKind::Check(condition, Arc::from(said)), given.place);
    }

    /// The single rank that an attribute names.
    fn rank(&mut self, attr: &NamedAttr) -> Option<Expr> {
        let Attr::Ranks(list) = &attr.value else { return None };
        let Some(ex) = list.single() else {
            let said =
                if list.any { "any process cannot be meant here" } else { "one process is meant here, not several" };
            self.found.push(Diagnostic::error("ranks", attr.place, format!("`{}`: {said}", attr.name)));
            return None;
        };
        Some(self.expr(ex))
    }

    fn needed_rank(&mut self, head: &Head, attr: &str) -> Option<Expr> {
        let Some(given) = head.attr(attr) else {
            self.found.push(missing(head, attr, &format!("write `{attr} = ` and the other process's number")));
            return None;
        };
        self.rank(given)
    }

    fn size(&mut self, head: &Head, attr: &str) -> Option<Expr> {
        let size = head.value_of(attr)?;
        let size = self.expr(size);
        if size.constant().is_some_and(|v| v.as_f64() < 0.0) {
            let place = head.attr(attr).map_or(head.place, |a| a.place);
            self.found.push(Diagnostic::error("size", place, "a size below 0"));
        }
        Some(size)
    }

    fn needed_size(&mut self, head: &Head) -> Option<Expr> {
        let size = self.size(head, "size");
        if size.is_none() {
            self.found.push(missing(head, "size", "write `size = ` and the number of bytes"));
        }
        size
    }

    fn comm(&mut self, head: &Head) -> Expr {
        head.value_of("comm").map_or(Expr::int(0), |ex| self.communicator(ex))
    }

    fn request(&mut self, head: &Head) -> Option<Request> {
        let list = ["req", "req/stat"].iter().find_map(|name| match head.attr(name).map(|attr| &attr.value) {
            Some(Attr::Requests(list)) => Some(list),
            _ => None,
        });
        match list.map(Vec::as_slice) {
            Some([one]) => Some(self.one_request(one)),
            Some(_) => {
                self.found.push(Diagnostic::error("request", head.place, "one request is meant here, not several"));
                None
            }
            None => {
                self.found.push(missing(head, "req", "write `req = ` and a name; a wait or test names it"));
                None
            }
        }
    }

    fn one_request(&mut self, request: &RequestEx) -> Request {
        let index = request.index.as_ref().map(|ex| self.expr(ex));
        Request { id: self.request_id(&request.name), index }
    }

    fn send(&mut self, head: &Head, mode: SendMode, begins: bool) -> Option<Send> {
        let to = self.needed_rank(head, "to");
        let size = self.needed_size(head);
        let tag = match head.attr("tag") {
            Some(NamedAttr { value: Attr::Value(ex), .. }) => self.expr(ex),
            Some(attr) => {
                self.found.push(Diagnostic::error("tag", attr.place, "a send has one tag"));
                return None;
            }
            None => Expr::int(0),
        };
        let comm = self.comm(head);
        let carries = self.carries(head);
        let request = if begins { Some(self.request(head)?) } else { None };
        Some(Send { mode, to: to?, size: size?, tag, comm, request, carries })
    }

    fn carries(&mut self, head: &Head) -> Vec<(crate::program::FieldId, Expr)> {
        let Some(Attr::Names(names)) = head.attr("carry").map(|attr| &attr.value) else { return Vec::new() };
        let mut all = Vec::new();
        for (name, place) in names {
            let fields: Vec<String> = self.records.fields(name).map(|field| format!("{name}.{field}")).collect();
            for field in &fields {
                if let Some(slot) = self.names.known_variable(field) {
                    all.push((self.field_id(field), Expr::Slot(slot)));
                }
            }
            if fields.is_empty() || self.records.is_plain(name) {
                let value = self.expr(&crate::syntax::Ex::Name(name.clone(), *place));
                all.push((self.field_id(name), value));
            }
        }
        all
    }

    fn recv(&mut self, head: &Head, size: &str, tag: &str, begins: bool) -> Option<Recv> {
        let from = match head.attr("from") {
            Some(NamedAttr { value: Attr::Ranks(RankList { any: true, .. }), .. }) => None,
            Some(attr) => Some(self.rank(attr)?),
            None => {
                self.found.push(missing(head, "from", "write `from = ` and the sender, or ANY"));
                return None;
            }
        };
        let size = self.size(head, size);
        let tag = head.value_of(tag).cloned().map(|ex| self.expr(&ex));
        let comm = self.comm(head);
        let request = if begins { Some(self.request(head)?) } else { None };
        let binds = self.binds(head);
        Some(Recv { from, size, tag, comm, request, blocking: true, binds })
    }

    /// What `bind` and `stat` bind.
    fn binds(&mut self, head: &Head) -> Vec<(Bound, Slot)> {
        let mut all = Vec::new();
        if let Some(Attr::Binds(binds)) = head.attr("bind").map(|attr| &attr.value) {
            for bind in binds {
                if let Some(bound) = reserved(&bind.what) {
                    self.fits(head, bound, bind.place);
                    all.extend(self.names.known_variable(&bind.variable).map(|slot| (bound, slot)));
                    continue;
                }
                let fields: Vec<String> = self.records.fields(&bind.variable).map(str::to_owned).collect();
                for field in fields {
                    let id = self.field_id(&format!("{}.{field}", bind.what));
                    let slot = self.names.known_variable(&format!("{}.{field}", bind.variable));
                    all.extend(slot.map(|slot| (Bound::Carried(id), slot)));
                }
                if self.records.is_plain(&bind.variable) {
                    let id = self.field_id(&bind.what);
                    all.extend(self.names.known_variable(&bind.variable).map(|slot| (Bound::Carried(id), slot)));
                }
            }
        }
        let status =
            head.name_of("stat").map(str::to_owned).or_else(|| match head.attr("req/stat").map(|a| &a.value) {
                Some(Attr::Requests(list)) => list.first().map(|r| r.name.clone()),
                _ => None,
            });
        for (field, bound) in [("MPI_SOURCE", Bound::Source), ("MPI_TAG", Bound::Tag)] {
            let slot = status.as_ref().and_then(|name| self.names.known_variable(&format!("{name}.{field}")));
            all.extend(slot.map(|slot| (bound, slot)));
        }
        all
    }

    /// Says that a flag or an index is bound where there is none.
    fn fits(&mut self, head: &Head, bound: Bound, place: Place) {
        let name = head.name_of("type").unwrap_or_default();
        let fits = match bound {
            Bound::Flag => match shape(name) {
                Some(Shape::Test(mode)) => mode != WaitMode::Some,
                found => found == Some(Shape::Probe(false)),
            },
            Bound::Outcount => {
                matches!(shape(name), Some(Shape::Wait(WaitMode::Some) | Shape::Test(WaitMode::Some)))
            }
            Bound::Index => {
                matches!(shape(name), Some(Shape::Wait(WaitMode::Any) | Shape::Test(WaitMode::Any)))
            }
            _ => true,
        };
        if !fits {
            let what = match bound {
                Bound::Flag => "flag",
                Bound::Outcount => "outcount",
                _ => "index",
            };
            self.found.push(Diagnostic::error("unfit-bind", place, format!("{name} has no {what}")));
        }
    }

    fn requests(&mut self, head: &Head, mode: WaitMode) -> Option<Requests> {
        let given = ["req", "req/stat"].iter().find_map(|name| match head.attr(name).map(|attr| &attr.value) {
            Some(Attr::Requests(list)) => Some(list),
            _ => None,
        });
        let Some(given) = given else {
            self.found.push(missing(head, "req", "write `req = ` and the name that the operation began with"));
            return None;
        };
        if mode == WaitMode::One && given.len() != 1 {
            self.found.push(
                Diagnostic::error("request", head.place, "one request is meant here, not several")
                    .with_help("MPI_Waitall and its like take several"),
            );
            return None;
        }
        let list = given.iter().map(|request| self.one_request(request)).collect();
        Some(Requests { mode, list, binds: self.binds(head) })
    }

    fn collective(&mut self, head: &Head, op: CollectiveOp, begins: bool) -> Option<Collective> {
        let size = if op == CollectiveOp::Barrier {
            self.size(head, "size").unwrap_or(Expr::int(0))
        } else {
            self.needed_size(head)?
        };
        let (from, to) = (self.ranks(head, "from"), self.ranks(head, "to"));
        let given_root = head.value_of("root").cloned().map(|ex| self.expr(&ex));
        // Which of both is the root, if no attribute says it.
        let (root, group) = match op {
            CollectiveOp::Bcast | CollectiveOp::Scatter if given_root.is_none() => (Some(from), to),
            CollectiveOp::Gather | CollectiveOp::Reduce if given_root.is_none() => (Some(to), from),
            _ => (None, self.same(head, from, to)),
        };
        let rooted =
            matches!(op, CollectiveOp::Bcast | CollectiveOp::Scatter | CollectiveOp::Gather | CollectiveOp::Reduce);
        if !rooted && given_root.is_some() {
            let place = head.attr("root").map_or(head.place, |a| a.place);
            let name = head.name_of("type").unwrap_or_default();
            self.found.push(Diagnostic::error("unfit-attribute", place, format!("{name} has no root")));
        }
        let root = match (given_root, root) {
            (Some(root), _) => Some(root),
            (None, Some(Some(ranks))) => Some(self.only(head, ranks)?),
            (None, Some(None)) => {
                self.found.push(missing(head, "root", "write `root = ` and the root's number"));
                return None;
            }
            (None, None) => None,
        };
        let mut group = group.unwrap_or_default();
        // The root belongs to the group always.
        if let (Some(root), false) = (&root, group.0.is_empty()) {
            group.0.push((root.clone(), root.clone()));
        }
        let comm = self.comm(head);
        let request = if begins { Some(self.request(head)?) } else { None };
        Some(Collective { operation: op, size, alike: true, group, root: root.filter(|_| rooted), comm, request })
    }

    /// The ranks of an attribute; none if there is none.
    fn ranks(&mut self, head: &Head, name: &str) -> Option<Ranks> {
        let attr = head.attr(name)?;
        let Attr::Ranks(list) = &attr.value else { return None };
        if list.any {
            self.found.push(Diagnostic::error(
                "ranks",
                attr.place,
                format!("`{name}`: any process cannot be meant here"),
            ));
            return None;
        }
        let mut all = Vec::new();
        for (low, high) in &list.items {
            let low = self.expr(low);
            let high = high.as_ref().map_or_else(|| low.clone(), |high| self.expr(high));
            let misprint = Expr::Binary(Binary::Subtract, Box::new((Expr::Slot(PROCNUM), Expr::Const(Value::Int(1)))));
            if low == Expr::int(0) && high == misprint {
                self.found.push(
                    Diagnostic::error("ranks", attr.place, "0..procnum-1 is another group in each process")
                        .with_help("did you mean `0..numprocs-1`?"),
                );
            }
            all.push((low, high));
        }
        Some(Ranks(all))
    }

    /// The group of an operation where both attributes say it.
    fn same(&mut self, head: &Head, from: Option<Ranks>, to: Option<Ranks>) -> Option<Ranks> {
        if let (Some(from), Some(to)) = (&from, &to)
            && from != to
        {
            let place = head.attr("to").map_or(head.place, |a| a.place);
            let name = head.name_of("type").unwrap_or_default();
            self.found.push(Diagnostic::error(
                "contradiction",
                place,
                format!("`from` and `to` of {name} are the same group"),
            ));
        }
        from.or(to)
    }

    /// The root among ranks that are one.
    fn only(&mut self, head: &Head, ranks: Ranks) -> Option<Expr> {
        match ranks.0.as_slice() {
            [(low, high)] if low == high => Some(low.clone()),
            _ => {
                self.found.push(missing(
                    head,
                    "root",
                    "of this type `from` or `to` is the root alone, or `root` names it",
                ));
                None
            }
        }
    }
}

fn reserved(what: &str) -> Option<Bound> {
    debug_assert_eq!(RESERVED.len(), 6);
    Some(match what {
        "source" => Bound::Source,
        "tag" => Bound::Tag,
        "size" => Bound::Size,
        "flag" => Bound::Flag,
        "index" => Bound::Index,
        "outcount" => Bound::Outcount,
        _ => return None,
    })
}

/// One request is meant: without an index, the first, as an array's name is the address of its
/// first element.
fn first_of_its_name(request: &mut Request) {
    request.index.get_or_insert(Expr::int(0));
}

fn slots_of(binds: &[(Bound, Slot)]) -> BTreeSet<Slot> {
    binds.iter().map(|(_, slot)| *slot).collect()
}
