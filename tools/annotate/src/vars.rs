//! What a variable of the program holds where it is used.
//!
//! One of four answers. Where one assignment alone reaches the place and what it says cannot change
//! on the way: its value. Where all assignments can be followed: a variable of the model, set where
//! the program sets it. Where a value comes from outside, from data, or by ways that are not
//! followed (pointers, calls of other files): a parameter, with the reason.

use tree_sitter::Node;

use crate::c::{self, Home, Var, Write, base_of, line};
use crate::expr::Expr;
use crate::translate::{LOOPS, Reason, ancestor};
use crate::types::{INT, LONG, Ty, Typed};
use crate::walk::{Frame, Walker};

/// Expressions with more parts are given a name of their own where they are computed.
const PARTS_PUT_IN: usize = 12;
/// How many assignments of one variable are followed.
const MOST_WRITES: usize = 100;

/// Calls of MPI that give a flag or an index, and bind it in the model.
const BINDING: [&str; 8] = [
    "MPI_Test",
    "MPI_Testall",
    "MPI_Testany",
    "MPI_Testsome",
    "MPI_Waitany",
    "MPI_Waitsome",
    "MPI_Iprobe",
    "MPI_Comm_rank",
];
/// Calls that give each process a value of its own.
const OF_EACH: [&str; 6] =
    ["MPI_Cart_shift", "MPI_Cart_coords", "MPI_Cart_rank", "MPI_Cart_get", "MPI_Graph_neighbors", "MPI_Group_rank"];
/// Calls that give a status, and bind its source and tag.
const WITH_STATUS: [&str; 7] =
    ["MPI_Recv", "MPI_Sendrecv", "MPI_Sendrecv_replace", "MPI_Probe", "MPI_Iprobe", "MPI_Wait", "MPI_Test"];

/// What the assignments of a variable say.
enum Said {
    /// It is this.
    Is(Typed),
    /// One assignment reaches the place, and has no value in a model.
    Unknown(Reason),
    /// Several reach it, or what they say changes.
    Changes(Reason),
}

impl<'t> Walker<'t> {
    /// What a variable, or a field of one, holds at a place.
    pub fn variable(&mut self, name: &'t str, at: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        match name {
            "MPI_PROC_NULL" => return Ok(Typed::within(Expr::Null, INT, -1, -1)),
            // What the model has for the index or number of none.
            "MPI_UNDEFINED" => return Ok(Typed::int(-1, INT)),
            "MPI_ANY_SOURCE" | "MPI_ANY_TAG" => return Ok(Typed::of(Expr::Any, INT)),
            "NULL" => return Err("it is a pointer".into()),
            _ => {}
        }
        let Some(var) = self.unit.resolve(base_of(name), at.start_byte()) else {
            return self.constant(name, frame);
        };
        let given =
            |g: &&crate::walk::Given| g.var == var && name == base_of(name) && g.range.contains(&at.start_byte());
        if let Some(given) = frame.given.iter().rev().find(given) {
            self.used.insert(given.index.clone());
            return Ok(given.value.clone());
        }
        if name != base_of(name) {
            return self.field(name, var, at, frame);
        }
        let Some(ty) = self.unit.variables[var].ty else {
            if self.unit.variables[var].home == Home::Define {
                return self.defined(name, var, at, frame);
            }
            return Err(format!("{name} is a pointer, an array, or of a type that is no number this file declares"));
        };
        match self.unit.variables[var].home {
            Home::Define => self.defined(name, var, at, frame),
            Home::Formal(_) => self.formal(name, var, ty, at),
            _ => Ok(self.held(name, var, ty, at, frame)),
        }
    }

    /// A constant of an `enum`; or a name that the file does not declare.
    fn constant(&mut self, name: &'t str, frame: &Frame) -> Result<Typed, Reason> {
        let Some((value, beyond)) = self.unit.constants.get(name).copied() else {
            return Err(format!("nothing in this file declares {name}"));
        };
        let Some(value) = value else {
            return Ok(Typed::within(Expr::name(name), INT, i128::from(beyond), i128::from(beyond)));
        };
        let first = self.typed(value, frame)?;
        let is = Typed::binary("+", first.clone(), Typed::int(beyond, INT))?;
        Ok(if is_plain(value) && is.expr.as_int().is_some() { Typed { expr: Expr::name(name), ..is } } else { is })
    }

    /// What a `#define` stands for: its name, if the language reads the same of it.
    fn defined(&mut self, name: &'t str, var: Var, at: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        let writes = self.unit.writes_of(name, var);
        let [Write { value: Some(value), .. }] = writes.as_slice() else {
            let why = "it is defined more than once";
            return Ok(Typed::of(self.parameter_of(name, var, false, at, why), LONG));
        };
        let is = self.typed(*value, frame)?.settled();
        let cast = is.expr.any(&mut |e| matches!(e, Expr::Cast(..)));
        let signed = matches!(is.ty, Ty::Int { signed: true, .. } | Ty::Double);
        Ok(if is_plain(*value) && !cast && signed { Typed { expr: Expr::name(name), ..is } } else { is })
    }

    fn field(&mut self, name: &'t str, var: Var, at: Node<'t>, frame: &Frame) -> Result<Typed, Reason> {
        let (base, field) = name.split_once('.').unwrap_or((name, ""));
        let whole = self.unit.writes_of(base_of(name), var);
        if matches!(field, "MPI_SOURCE" | "MPI_TAG") {
            let bound = !whole.is_empty() && whole.iter().all(|w| WITH_STATUS.contains(&w.by));
            let local = self.unit.variables[var].home == Home::Local && base == self.unit.variables[var].name;
            if bound && local {
                let full = format!("{}.{field}", self.name_of(var));
                self.changing.insert(full.clone());
                self.bound.insert(full.clone());
                return Ok(Typed::of(Expr::Name(full), INT));
            }
        }
        let ty = self.unit.field_type(var, field);
        let writes = self.unit.writes_of(name, var);
        let why = match (name.contains("->"), writes.as_slice()) {
            (true, _) => "it is reached by a pointer".to_owned(),
            (_, []) if whole.is_empty() => "nothing in this file gives it a value".to_owned(),
            (false, [one]) if whole.is_empty() && self.dominates(one, at.start_byte()) => {
                match (one.value.map(|v| self.typed(v, frame)), ty) {
                    (Some(Ok(value)), Some(ty)) if self.is_stable(&value.expr) => {
                        return Ok(value.converted(ty).settled());
                    }
                    (Some(Err(why)), _) => why,
                    _ => format!("line {} sets it", line(one.node)),
                }
            }
            (false, [first, ..]) => format!("line {} changes it", line(first.node)),
            (false, []) => format!("line {} sets {base}", line(whole[0].node)),
        };
        let several = writes.len() + whole.len() > 1;
        Ok(self.asked_for(name, var, ty.unwrap_or(LONG), several, at, &why))
    }

    fn formal(&mut self, name: &'t str, var: Var, ty: Ty, at: Node<'t>) -> Result<Typed, Reason> {
        let writes = self.unit.writes_of(name, var);
        if self.unit.variables[var].function == Some(self.start) {
            let why = "an argument of the function that the model begins with";
            return Ok(self.asked_for(name, var, ty, !writes.is_empty(), at, why));
        }
        if !writes.is_empty() && self.keeps(var, &writes).is_none() {
            let why = format!("line {} changes it", line(writes[0].node));
            return Ok(self.asked_for(name, var, ty, true, at, &why));
        }
        self.formals.insert(var);
        Ok(Typed::of(Expr::Name(self.name_of(var)), ty))
    }

    /// A parameter with the variable's type. What changes is none that could decide how long a loop
    /// goes on.
    fn asked_for(&mut self, name: &str, var: Var, ty: Ty, changes: bool, at: Node<'t>, why: &str) -> Typed {
        let parameter = self.parameter_of(name, var, changes, at, why);
        if let (true, Expr::Name(name)) = (changes, &parameter) {
            self.guesses.insert(name.clone());
        }
        // A parameter may be given as a whole number.
        if ty.floats() {
            Typed::of(Expr::Cast("double", Box::new(parameter)), Ty::Double)
        } else {
            Typed::of(parameter, ty)
        }
    }

    /// What a variable holds that is no argument.
    fn held(&mut self, name: &'t str, var: Var, ty: Ty, at: Node<'t>, frame: &Frame) -> Typed {
        if let Some(Some(kept)) = self.kept.get(&var) {
            return Typed::of(Expr::Name(kept.clone()), ty);
        }
        if let Some(known) = self.cache.get(&var) {
            return known.clone();
        }
        let writes = self.unit.writes_of(name, var);
        if let Some(known) = self.rank_or_size(&writes, at) {
            return known;
        }
        if let Some(known) = self.neighbour(name, &writes, frame) {
            return known;
        }
        if self.resolving.contains(&var) {
            return self.asked_for(name, var, ty, true, at, "its value depends on itself");
        }
        self.resolving.push(var);
        let said = self.said(var, ty, &writes, at, frame);
        self.resolving.pop();
        let why = match said {
            Said::Is(value) if value.expr.parts() <= PARTS_PUT_IN => return self.remembered(var, &writes, value),
            Said::Is(value) => match self.keeps(var, &writes) {
                Some(kept) => return Typed::of(Expr::Name(kept), ty),
                None => return self.remembered(var, &writes, value),
            },
            Said::Unknown(why) => {
                let looped = writes.first().is_some_and(|w| ancestor(w.node, &LOOPS).is_some());
                let parameter = self.asked_for(name, var, ty, false, at, &why);
                if let (true, Expr::Name(name)) = (looped, &parameter.expr) {
                    self.guesses.insert(name.clone());
                }
                return parameter;
            }
            Said::Changes(why) => why,
        };
        if let Some(value) = self.argument(name, var, ty, &writes, at, frame, &why) {
            return value;
        }
        match self.keeps(var, &writes) {
            Some(kept) => Typed::of(Expr::Name(kept), ty),
            None => self.asked_for(name, var, ty, true, at, &why),
        }
    }

    /// What a declaration gives is looked up once: wherever its variable is known, it has been
    /// reached.
    fn remembered(&mut self, var: Var, writes: &[Write<'t>], value: Typed) -> Typed {
        if let [Write { node, .. }] = writes
            && node.kind() == "init_declarator"
        {
            self.cache.insert(var, value.clone());
        }
        value
    }

    /// The process's number, or how many there are.
    fn rank_or_size(&mut self, writes: &[Write<'t>], at: Node<'t>) -> Option<Typed> {
        const MOST: i128 = (1 << 31) - 1;
        for (call, value, least) in [("MPI_Comm_rank", "procnum", 0), ("MPI_Comm_size", "numprocs", 1)] {
            let Some(own) = writes.iter().find(|w| w.by == call) else { continue };
            let only = writes.iter().all(|w| w.by == call || (w.by == "=" && w.node.kind() == "init_declarator"));
            // The call's own argument is no use of it.
            if only
                && (own.function.is_none() || at.start_byte() > own.node.start_byte() || !same_function(own, at, self))
            {
                self.other_communicator(writes, at);
                return Some(Typed::within(Expr::name(value), INT, least, MOST));
            }
        }
        None
    }

    /// Says so where a rank or number of processes is that of another communicator than
    /// `MPI_COMM_WORLD`.
    fn other_communicator(&mut self, writes: &[Write<'t>], at: Node<'t>) {
        let calls = writes.iter().filter(|w| w.by.starts_with("MPI_Comm_"));
        let mut comms = calls.filter_map(|w| c::arguments(w.node).first().copied());
        let other = |n: &Node<'t>| self.unit.text_of(*n) != "MPI_COMM_WORLD" && !self.has_ranks_of_world(*n);
        if let Some(comm) = comms.find(other).map(|n| self.unit.text_of(n)) {
            let why = format!("ranks of {comm} are taken for those of MPI_COMM_WORLD");
            self.note(line(at), &why);
        }
    }

    fn said(&mut self, var: Var, ty: Ty, writes: &[Write<'t>], at: Node<'t>, frame: &Frame) -> Said {
        let Some((first, rest)) = writes.split_first() else {
            let variable = &self.unit.variables[var];
            if variable.own && matches!(variable.home, Home::File | Home::Static) {
                return Said::Is(Typed::int(0, LONG).converted(ty));
            }
            return Said::Unknown("nothing in this file gives it a value".into());
        };
        let of_file = self.unit.variables[var].home == Home::File;
        let reaches = self.dominates(first, at.start_byte()) || (of_file && first.function.is_none());
        let plain = first.by == "=" && first.value.is_some();
        if !plain {
            let why = match first.by {
                "&" => format!("its address is taken in line {}", line(first.node)),
                by if OF_EACH.contains(&by) => format!(
                    "{by} sets it in line {}, in each process to another value, and a parameter has one for all: write an expression of procnum in its place",
                    line(first.node)
                ),
                by if by.starts_with(char::is_alphabetic) => format!("{by} sets it in line {}", line(first.node)),
                _ => format!("it changes in line {}", line(first.node)),
            };
            let zero_first = of_file && !first.by.starts_with(char::is_alphabetic);
            // What a test or wait gives is bound, each time anew.
            let bound = BINDING.contains(&first.by) && first.by != "MPI_Comm_rank";
            return if rest.is_empty() && !zero_first && !bound { Said::Unknown(why) } else { Said::Changes(why) };
        }
        if rest.is_empty() && !reaches {
            return Said::Changes(format!("line {} sets it, which may not have been done here", line(first.node)));
        }
        if let [second] = rest
            && let Some(value) = self.of_both_branches(first, second, at, frame)
        {
            return self.if_stable(value, ty);
        }
        let start = first.value.map_or_else(|| Err("it has no value".to_owned()), |v| self.typed(v, frame));
        let start = match (start, rest) {
            (Err(why), []) => return Said::Unknown(why),
            (Err(why), [next, ..]) => return Said::Changes(format!("{why}; line {} changes it", line(next.node))),
            (Ok(start), _) => start.converted(ty).settled(),
        };
        if rest.is_empty() {
            return self.if_stable(Ok(start), ty);
        }
        if !reaches || self.unit.variables[var].home != Home::Local {
            return Said::Changes(format!("{} at first; line {} changes it", start.expr, line(rest[0].node)));
        }
        let chain = self.chained(var, start, first, rest, at, frame);
        self.if_stable(chain, ty)
    }

    fn if_stable(&self, value: Result<Typed, Reason>, ty: Ty) -> Said {
        match value {
            Ok(value) => {
                let value = value.converted(ty).settled();
                if value.expr == Expr::Any || self.is_stable(&value.expr) {
                    Said::Is(value)
                } else {
                    Said::Changes(format!("{} changes", value.expr))
                }
            }
            Err(why) => Said::Changes(why),
        }
    }

    /// `int v = a; if (c) v = b; if (d) v = e;` one after the other, before the place: one
    /// expression.
    fn chained(
        &mut self,
        var: Var,
        start: Typed,
        first: &Write<'t>,
        rest: &[Write<'t>],
        at: Node<'t>,
        frame: &Frame,
    ) -> Result<Typed, Reason> {
        let ty = start.ty;
        let list = statement_of(first.node).and_then(|s| s.parent());
        let mut current = start;
        for write in rest {
            let changes = || format!("{} at first; line {} changes it", current.expr, line(write.node));
            let (Some(value), Some(branch)) = (write.value, ancestor(write.node, &["if_statement"])) else {
                return Err(changes());
            };
            let alone = branch.child_by_field_name("alternative").is_none()
                && branch.parent() == list
                && branch.end_byte() <= at.start_byte()
                && statement_of(write.node)
                    .and_then(|s| s.parent())
                    .is_some_and(|p| p == branch || (p.kind() == "compound_statement" && p.parent() == Some(branch)));
            let Some(condition) = branch.child_by_field_name("condition").filter(|_| alone) else {
                return Err(changes());
            };
            let mut before = frame.clone();
            before.given.push(crate::walk::Given {
                var,
                range: 0..usize::MAX,
                value: current.clone(),
                index: String::new(),
            });
            let asked = self.typed(condition, &before).and_then(|c| Ok((c, self.typed(value, &before)?)));
            let (condition, value) = asked.map_err(|why| format!("{}: {why}", changes()))?;
            if !self.is_decided(&condition.expr) {
                return Err(changes());
            }
            current = Typed::choice(condition, value.converted(ty).settled(), current).converted(ty).settled();
        }
        Ok(current)
    }

    /// `if (c) v = a; else v = b;` before the place.
    fn of_both_branches(
        &mut self,
        a: &Write<'t>,
        b: &Write<'t>,
        at: Node<'t>,
        frame: &Frame,
    ) -> Option<Result<Typed, Reason>> {
        let (first, second) = (ancestor(a.node, &["if_statement"])?, ancestor(b.node, &["if_statement"])?);
        let other = first.child_by_field_name("alternative")?;
        let apart = other.start_byte() > a.node.start_byte() && other.byte_range().contains(&b.node.start_byte());
        let list = first.parent().filter(|p| p.kind() == "compound_statement")?;
        let direct = |w: &Write<'t>| {
            let parent = statement_of(w.node).and_then(|s| s.parent());
            let parent = parent.map(|p| if p.kind() == "compound_statement" { p.parent() } else { Some(p) });
            parent.flatten().is_some_and(|p| p == first || p == other)
        };
        let reaches = list.byte_range().contains(&at.start_byte()) && first.end_byte() <= at.start_byte();
        if first != second || !apart || !reaches || !direct(a) || !direct(b) || (a.by, b.by) != ("=", "=") {
            return None;
        }
        let condition = first.child_by_field_name("condition")?;
        let (x, y) = (a.value?, b.value?);
        Some((|| {
            let condition = self.typed(condition, frame)?;
            let x = self.typed(x, frame)?;
            Ok(Typed::choice(condition, x, self.typed(y, frame)?))
        })())
    }

    /// A value that is fixed unless the program's arguments say otherwise: a parameter with that
    /// value.
    #[expect(clippy::too_many_arguments, reason = "a variable, its assignments, where it is used, and why")]
    fn argument(
        &mut self,
        name: &'t str,
        var: Var,
        ty: Ty,
        writes: &[Write<'t>],
        at: Node<'t>,
        frame: &Frame,
        why: &str,
    ) -> Option<Typed> {
        let (first, rest) = writes.split_first()?;
        let here = |w: &Write<'t>| same_function(w, at, self) && w.node.end_byte() <= at.start_byte();
        let plain = writes.iter().all(|w| w.by == "=" && here(w) && ancestor(w.node, &LOOPS).is_none());
        let start = self.typed(first.value?, frame).ok()?.converted(ty).settled();
        if !plain || rest.is_empty() || start.expr.as_int().is_none() {
            return None;
        }
        let from_outside = |w: &mut Self, value: Option<Node<'t>>| value.is_none_or(|v| w.typed(v, frame).is_err());
        if !rest.iter().any(|w| from_outside(self, w.value)) {
            return None;
        }
        let parameter = self.asked_for(name, var, ty, false, at, why);
        if let Expr::Name(name) = &parameter.expr {
            self.defaults.insert(name.clone(), start.expr.to_string());
        }
        Some(parameter)
    }

    /// Whether an assignment has been made whenever a place is reached, and by nothing later that
    /// is not another assignment.
    fn dominates(&self, write: &Write<'t>, at: usize) -> bool {
        if write.function.is_none() {
            return true;
        }
        let Some(statement) = statement_of(write.node) else { return false };
        let Some(list) = statement.parent() else { return false };
        matches!(list.kind(), "compound_statement" | "for_statement")
            && list.byte_range().contains(&at)
            && at >= statement.start_byte()
    }

    /// Whether nothing in an expression changes while a function runs.
    pub fn is_stable(&self, value: &Expr) -> bool {
        !value.any(&mut |e| matches!(e, Expr::Any) || matches!(e, Expr::Name(n) if self.changing.contains(n)))
    }

    /// Whether an expression depends only on what a model knows.
    pub fn is_decided(&self, value: &Expr) -> bool {
        !value.any(&mut |e| matches!(e, Expr::Name(n) if self.guesses.contains(n) || n.starts_with("argc")))
    }

    /// The model's name for a variable, if the model can have it itself: each assignment can be
    /// said, and stands where the model goes along.
    fn keeps(&mut self, var: Var, writes: &[Write<'t>]) -> Option<String> {
        if let Some(known) = self.kept.get(&var) {
            return known.clone();
        }
        let home = self.unit.variables[var].home;
        let lives = matches!(home, Home::Local | Home::Formal(_) | Home::File);
        let fits = lives && writes.len() <= MOST_WRITES && writes.iter().all(|w| self.follows(w));
        if !fits {
            return None;
        }
        let name = self.name_of(var);
        self.changing.insert(name.clone());
        if writes.iter().any(|w| BINDING.contains(&w.by)) {
            self.bound.insert(name.clone());
        }
        self.kept.insert(var, Some(name.clone()));
        self.cache.clear();
        Some(name)
    }

    /// Whether the model goes along where an assignment stands.
    fn follows(&self, write: &Write<'t>) -> bool {
        let Some(function) = write.function else { return true };
        if !self.walked.contains(&function) {
            return false;
        }
        let binds = BINDING.contains(&write.by) && write.by != "MPI_Comm_rank";
        if !binds && write.by.starts_with(|c: char| c.is_alphabetic() || c == '&') && write.by != "&=" {
            return false;
        }
        let mut at = write.node;
        if !binds {
            let Some(parent) = write.node.parent() else { return false };
            match parent.kind() {
                "expression_statement" | "declaration" => at = parent,
                "for_statement" if self.general.contains(&parent.id()) => at = parent,
                _ => return false,
            }
        }
        let mut up = at.parent();
        while let Some(node) = up {
            match node.kind() {
                "function_definition" => return true,
                "for_statement" if node.child_by_field_name("initializer") == Some(at) => {
                    if !self.general.contains(&node.id()) {
                        return false;
                    }
                }
                "compound_statement" | "if_statement" | "else_clause" | "for_statement" | "while_statement"
                | "do_statement" => {}
                _ if binds && !node.kind().ends_with("_statement") => {}
                "expression_statement" if binds => {}
                _ => return false,
            }
            at = node;
            up = node.parent();
        }
        false
    }
}

fn same_function(write: &Write<'_>, at: Node<'_>, walker: &Walker<'_>) -> bool {
    write.function.is_some_and(|f| walker.unit.functions[f].body.byte_range().contains(&at.start_byte()))
}

/// The statement that an assignment is.
fn statement_of(node: Node<'_>) -> Option<Node<'_>> {
    node.parent().filter(|p| matches!(p.kind(), "expression_statement" | "declaration"))
}

/// Whether an expression is made of numbers alone.
fn is_plain(node: Node<'_>) -> bool {
    let mut plain = true;
    c::each(node, |n| {
        plain &= !matches!(n.kind(), "identifier" | "call_expression" | "ERROR" | "char_literal" | "sizeof_expression");
        plain
    });
    plain
}
