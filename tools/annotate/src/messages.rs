//! A call of MPI as a `Message`: sizes from counts and datatypes, peers, tags, communicators,
//! requests, what is bound.

use tree_sitter::Node;

use crate::c::{Call, arguments, line, unwrapped};
use crate::calls::{self, Kind};
use crate::expr::Expr;
use crate::steps::Step;
use crate::walk::{Frame, Walker};

/// How many elements of an array of requests are listed one by one.
const MOST_LISTED: i64 = 16;

/// Puts together the attributes of one message.
struct Writer<'a, 't> {
    walker: &'a mut Walker<'t>,
    frame: &'a Frame,
    call: Call<'t>,
    arguments: Vec<Node<'t>>,
    out: Vec<(String, String)>,
}

impl<'t> Walker<'t> {
    /// What the model says of a call of MPI.
    pub fn message(&mut self, call: Call<'t>, at: usize, frame: &Frame) -> Step {
        let place = line(call.node);
        let Some(Ok(kind)) = calls::kind(call.name) else {
            self.note(place, &format!("no directive can say {}: it is left out", call.name));
            return if calls::wants_skip(call.name) {
                Step::Skip { at, line: place }
            } else {
                Step::Call { at, line: place }
            };
        };
        let given = arguments(call.node);
        let is_alone = |comm: usize| given.get(comm).is_some_and(|n| self.unit.text_of(*n) == "MPI_COMM_SELF");
        if matches!(kind, Kind::Collective { comm, request: None, .. } if is_alone(comm)) {
            // Among one process nothing is sent and nobody is waited for.
            return Step::Skip { at, line: place };
        }
        let mut writer = Writer { arguments: given, walker: self, frame, call, out: Vec::new() };
        writer.all(kind);
        Step::Message { at, line: place, kind: call.name.to_owned(), attributes: writer.out }
    }
}

impl<'t> Writer<'_, 't> {
    fn all(&mut self, kind: Kind) {
        match kind {
            Kind::Send { request } => {
                self.size("size", 1, 2);
                self.put("from", "procnum".into());
                self.peer("to", 3);
                self.tag("tag", 4);
                self.comm(5);
                self.request(request);
            }
            Kind::Receive { request } => {
                self.size("size", 1, 2);
                self.peer("from", 3);
                self.put("to", "procnum".into());
                self.tag("tag", 4);
                self.comm(5);
                self.request(request);
                if request.is_none() {
                    self.status(6);
                }
            }
            Kind::Exchange => {
                self.size("size", 1, 2);
                self.peer("to", 3);
                self.tag("tag", 4);
                self.size("recvsize", 6, 7);
                self.peer("from", 8);
                self.tag("recvtag", 9);
                self.comm(10);
                self.status(11);
            }
            Kind::ExchangeInPlace => {
                self.size("size", 1, 2);
                self.peer("to", 3);
                self.tag("tag", 4);
                self.peer("from", 5);
                self.tag("recvtag", 6);
                self.comm(7);
                self.status(8);
            }
            Kind::Probe { flag } => {
                self.peer("from", 0);
                self.put("to", "procnum".into());
                self.tag("tag", 1);
                self.comm(2);
                self.bind("flag", flag);
                self.status(flag.map_or(3, |f| f + 1));
            }
            Kind::One { flag } => {
                self.request(Some(0));
                self.bind("flag", flag);
                self.status(flag.map_or(1, |f| f + 1));
            }
            Kind::Several { gives } => {
                self.requests();
                gives.iter().for_each(|(what, at)| self.bind(what, Some(*at)));
            }
            Kind::Begin => self.request(Some(0)),
            Kind::Collective { size, root, comm, each, request } => self.collective(size, root, comm, each, request),
            Kind::Local | Kind::Abort => {}
        }
    }

    fn collective(
        &mut self,
        size: Option<(usize, usize)>,
        root: Option<usize>,
        comm: usize,
        each: bool,
        request: Option<usize>,
    ) {
        if let Some((count, datatype)) = size {
            if each {
                let why = format!("{} has a size for each process; this stands for all", self.call.name);
                let place = format!("size_{}", line(self.call.node));
                let size = self.walker.parameter(&place, self.call.node, &why);
                self.put("size", size.to_string());
            } else {
                let (count, datatype) = self.significant(count, datatype);
                self.size("size", count, datatype);
            }
        }
        if let Some(root) = root {
            self.peer("root", root);
        }
        self.comm(comm);
        self.request(request);
    }

    /// Where count and datatype of a collective stand, if a process that has its part in place
    /// gives none for sending.
    fn significant(&self, count: usize, datatype: usize) -> (usize, usize) {
        let text = |at: usize| self.arguments.get(at).map_or("", |n| self.walker.unit.text_of(*n));
        let both = matches!(
            self.call.name.trim_start_matches("MPI_").to_ascii_lowercase().trim_start_matches('i'),
            "gather" | "scatter" | "allgather" | "alltoall"
        );
        if both && (text(0) == "MPI_IN_PLACE" || text(2) == "MPI_DATATYPE_NULL") { (4, 5) } else { (count, datatype) }
    }

    fn put(&mut self, name: &str, value: String) {
        self.out.push((name.to_owned(), value));
    }

    fn value(&mut self, at: usize, name: &str) -> Expr {
        let node = self.arguments.get(at).copied();
        self.walker.value_or(node, name, self.call.node, self.frame)
    }

    /// Count times datatype.
    fn size(&mut self, name: &str, count: usize, datatype: usize) {
        let count = self.value(count, &format!("{name}_count"));
        let text = self.arguments.get(datatype).map_or("", |n| self.walker.unit.text_of(*n));
        let each = match calls::datatype(text) {
            Some("") => Expr::int(1),
            Some(c) => Expr::Sizeof(c.to_owned()),
            None => {
                let why = format!("the size of the datatype {text}, in bytes");
                self.walker.parameter_for(&format!("{text}_bytes"), self.call.node, &why)
            }
        };
        let size = Expr::binary("*", count, each);
        self.put(name, size.to_string());
    }

    fn peer(&mut self, name: &str, at: usize) {
        let value = self.value(at, name);
        self.put(name, value.to_string());
    }

    fn tag(&mut self, name: &str, at: usize) {
        let value = self.value(at, name);
        self.put(name, value.to_string());
    }

    fn comm(&mut self, at: usize) {
        let text = self.arguments.get(at).map_or("", |n| self.walker.unit.text_of(*n));
        if text.is_empty() || text == "MPI_COMM_WORLD" {
            return;
        }
        let name = identifier(text);
        if self.arguments.get(at).is_some_and(|comm| self.walker.has_ranks_of_world(*comm)) {
            self.put("comm", name);
            return;
        }
        let why = format!(
            "{} goes by the communicator {text}, whose ranks are taken for those of MPI_COMM_WORLD",
            self.call.name
        );
        self.walker.note(line(self.call.node), &why);
        self.put("comm", name);
    }

    fn status(&mut self, at: usize) {
        let Some(name) = self.target(at) else { return };
        let fields = &self.walker.unit.functions[self.frame.function].fields;
        if !["MPI_SOURCE", "MPI_TAG"].iter().any(|f| fields.contains(format!("{name}.{f}").as_str())) {
            return;
        }
        let Some(var) = self.walker.unit.resolve(name, self.call.node.start_byte()) else { return };
        let name = self.walker.name_of(var);
        self.put("stat", name);
    }

    /// The variable whose address an argument is.
    fn target(&self, at: usize) -> Option<&'t str> {
        let argument = unwrapped(*self.arguments.get(at)?);
        let inner = argument.child_by_field_name("argument").filter(|_| argument.kind() == "pointer_expression")?;
        (inner.kind() == "identifier").then(|| self.walker.unit.text_of(inner))
    }

    /// A flag or an index, if the model has the variable that gets it.
    fn bind(&mut self, what: &str, at: Option<usize>) {
        let Some(at) = at else { return };
        let var = self.target(at).and_then(|name| self.walker.unit.resolve(name, self.call.node.start_byte()));
        let Some(var) = var else {
            let why = format!("where {} puts its {what} is not known to the model", self.call.name);
            self.walker.note(line(self.call.node), &why);
            return;
        };
        let Some(name) = self.walker.kept.get(&var).cloned().flatten() else { return };
        if name == what {
            self.put("bind", name);
        } else {
            self.put(&format!("bind {name}"), what.to_owned());
        }
    }

    fn request(&mut self, at: Option<usize>) {
        let Some(node) = at.and_then(|at| self.arguments.get(at).copied()) else { return };
        let (name, index) = self.element(node);
        let text = index.map_or_else(|| name.clone(), |i| format!("{name}[{i}]"));
        self.put("req", text);
    }

    /// The array of a request, and which element; that is none where the array itself is named, or
    /// it cannot be told.
    fn element(&mut self, node: Node<'t>) -> (String, Option<Expr>) {
        let node = unwrapped(node);
        let field = |name: &str| node.child_by_field_name(name);
        let inner = match node.kind() {
            "pointer_expression" => field("argument"),
            _ => None,
        };
        if let Some(inner) = inner {
            let inner = unwrapped(inner);
            if inner.kind() == "subscript_expression" {
                return self.indexed(inner.child_by_field_name("argument"), inner.child_by_field_name("index"), inner);
            }
            return (self.request_name(inner), None);
        }
        let plus =
            node.kind() == "binary_expression" && field("operator").is_some_and(|o| self.walker.unit.text_of(o) == "+");
        if plus {
            return self.indexed(field("left"), field("right"), node);
        }
        (self.request_name(node), None)
    }

    fn indexed(&mut self, array: Option<Node<'t>>, index: Option<Node<'t>>, whole: Node<'t>) -> (String, Option<Expr>) {
        let name = self.request_name(array.unwrap_or(whole));
        match index.map(|i| self.walker.value(i, self.frame)) {
            // An index that changes, `[n++]`, or that only a parameter could say: all of the name
            // are meant.
            Some(Ok(value))
                if !value.any(&mut |e| matches!(e, Expr::Name(n) if self.walker.parameters.contains(n))) =>
            {
                (name, Some(value))
            }
            _ => {
                self.walker.unindexed.insert(name.clone());
                (name, None)
            }
        }
    }

    /// The name of a request; that of a formal parameter is the one that all callers give.
    fn request_name(&mut self, node: Node<'t>) -> String {
        let text = self.walker.unit.text_of(node);
        let function = &self.walker.unit.functions[self.frame.function];
        let Some(position) = function.parameters.iter().position(|p| *p == text) else { return identifier(text) };
        let (unit, own) = (&self.walker.unit, function.name);
        let calls = unit.functions.iter().flat_map(|f| f.calls.iter()).filter(|c| c.name == own);
        let mut given: Vec<String> = calls
            .filter_map(|c| arguments(c.node).get(position).copied())
            .map(|n| unit.text_of(n).trim_start_matches(['&', '(', ' ']))
            .map(|t| identifier(t.split(['[', '+', ')', ' ']).next().unwrap_or(t)))
            .collect();
        given.sort();
        given.dedup();
        match given.as_slice() {
            [one] => one.clone(),
            _ => {
                let why = format!("{text} is another request with each call of {own}: the model takes them for one");
                self.walker.note(line(self.call.node), &why);
                identifier(text)
            }
        }
    }

    fn requests(&mut self) {
        let Some(array) = self.arguments.get(1).copied() else { return };
        let count =
            self.arguments.first().and_then(|n| self.walker.value(*n, self.frame).ok()).and_then(|v| v.as_int());
        let (name, start) = self.element(array);
        let first = start.as_ref().map_or(Some(0), Expr::as_int);
        let listed = match (first, count) {
            (Some(first), Some(count)) if (1..=MOST_LISTED).contains(&count) => {
                (0..count).map(|i| format!("{name}[{}]", first.saturating_add(i))).collect::<Vec<_>>().join(", ")
            }
            _ => name,
        };
        self.put("req", listed);
    }
}

/// A name as the directive language takes it.
fn identifier(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    let clean = clean.trim_start_matches('_').to_owned();
    if clean.is_empty() || clean.starts_with(|c: char| c.is_ascii_digit()) { format!("r{clean}") } else { clean }
}
