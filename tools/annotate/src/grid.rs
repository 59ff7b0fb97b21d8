//! Neighbours on a grid of processes: what `MPI_Cart_shift` gives on a communicator that
//! `MPI_Cart_create` makes of `MPI_COMM_WORLD`. Ranks go row by row (MPI 4.1, 8.2), so that a
//! neighbour is an expression of `procnum`.

use tree_sitter::Node;

use crate::c::{self, Write, arguments, line, unwrapped};
use crate::expr::Expr;
use crate::types::{INT, Typed};
use crate::walk::{Frame, Walker};

/// Dimensions of a grid at most.
const MOST: usize = 4;

/// A grid whose sides are known.
struct Grid {
    /// Processes along each dimension.
    sides: Vec<Expr>,
    periodic: Vec<bool>,
}

impl<'t> Walker<'t> {
    /// The neighbour that a variable is given by `MPI_Cart_shift`. None: it is not given by that
    /// alone, or the grid is not known.
    pub fn neighbour(&mut self, name: &str, writes: &[Write<'t>], frame: &Frame) -> Option<Typed> {
        let [Write { by: "MPI_Cart_shift", node: call, .. }] = writes else { return None };
        let [comm, direction, shift, source, destination] = arguments(*call)[..] else { return None };
        let is_given = |unit: &c::Unit<'t>, n: Node<'t>| {
            n.child_by_field_name("argument").is_some_and(|a| unit.text_of(a) == name)
        };
        let (back, ahead) = (is_given(&self.unit, source), is_given(&self.unit, destination));
        let direction = usize::try_from(self.value(direction, frame).ok()?.as_int()?).ok()?;
        let by = self.value(shift, frame).ok()?.as_int().filter(|by| by.unsigned_abs() < 1 << 16)?;
        let grid = self.grid(comm, frame)?;
        if back == ahead || direction >= grid.sides.len() {
            return None;
        }
        let expr = grid.neighbour(direction, if back { -by } else { by });
        Some(Typed::within(expr, INT, -1, (1 << 31) - 1))
    }

    /// Whether the ranks of a communicator are those of `MPI_COMM_WORLD`: it is a copy of that, or
    /// a grid made of it.
    pub fn has_ranks_of_world(&self, comm: Node<'t>) -> bool {
        let Some((by, call)) = self.maker(comm) else { return false };
        let given = arguments(call);
        let of_world = given.first().is_some_and(|old| self.unit.text_of(*old) == "MPI_COMM_WORLD");
        let kept = given.get(4).is_some_and(|reorder| self.unit.text_of(*reorder) == "0");
        of_world && (by == "MPI_Comm_dup" || (by == "MPI_Cart_create" && kept))
    }

    /// The only call that makes a communicator; one may free it.
    fn maker(&self, comm: Node<'t>) -> Option<(&'t str, Node<'t>)> {
        let name = self.unit.variable(comm).filter(|name| *name == c::base_of(name))?;
        let var = self.unit.resolve(name, comm.start_byte())?;
        let mut writes = self.unit.writes_of(name, var);
        writes.retain(|w| w.by != "MPI_Comm_free");
        match writes[..] {
            [Write { by, node, .. }] => Some((by, node)),
            _ => None,
        }
    }

    fn grid(&mut self, comm: Node<'t>, frame: &Frame) -> Option<Grid> {
        if !self.has_ranks_of_world(comm) {
            return None;
        }
        let (_, call) = self.maker(comm).filter(|(by, _)| *by == "MPI_Cart_create")?;
        let [_, count, sides, periods, ..] = arguments(call)[..] else { return None };
        let count =
            usize::try_from(self.value(count, frame).ok()?.as_int()?).ok().filter(|n| (1..=MOST).contains(n))?;
        let (periods, false) = self.elements(periods, count, call)? else { return None };
        let name = self.unit.text_of(unwrapped(sides));
        let (numbers, chosen) = self.elements(sides, count, call)?;
        if numbers.iter().any(|n| *n < 0) || (!chosen && numbers.contains(&0)) {
            return None;
        }
        let mut out: Vec<Expr> = numbers.iter().map(|n| Expr::int(*n)).collect();
        // What MPI_Dims_create chooses is asked for, but for the last: there are numprocs in all.
        let open: Vec<usize> = (0..count).filter(|d| numbers[*d] == 0).collect();
        if let Some((last, asked)) = open.split_last() {
            for d in asked {
                let why =
                    format!("how many processes stand along dimension {d} of the grid, which MPI_Dims_create chooses");
                out[*d] = self.parameter_for(&format!("{name}_{d}"), call, &why);
            }
            let others = (0..count).filter(|d| d != last).map(|d| out[d].clone());
            let others = others.reduce(|a, b| Expr::binary("*", a, b));
            let all = Expr::name("numprocs");
            out[*last] = others.map_or(all.clone(), |others| Expr::binary("/", all, others));
        } else {
            let all: i64 = numbers.iter().try_fold(1i64, |all, n| all.checked_mul(*n))?;
            self.note(line(call), &format!("the grid has {all} processes: the model holds for as many"));
        }
        Some(Grid { sides: out, periodic: periods.iter().map(|p| *p != 0).collect() })
    }

    /// The elements of an array of whole numbers where a call is given it, and whether
    /// `MPI_Dims_create` has filled those in that are 0. None: something else may have changed
    /// them.
    fn elements(&self, array: Node<'t>, count: usize, call: Node<'t>) -> Option<(Vec<i64>, bool)> {
        let array = unwrapped(array);
        let name = self.unit.text_of(array);
        let var = self.unit.resolve(name, array.start_byte()).filter(|_| array.kind() == "identifier")?;
        let body = self.unit.functions[self.unit.variables[var].function?].body;
        let mut uses = Vec::new();
        c::each(body, |node| {
            if node.kind() == "identifier"
                && self.unit.text_of(node) == name
                && self.unit.resolve(name, node.start_byte()) == Some(var)
            {
                uses.push(node);
            }
            true
        });
        let (mut numbers, mut chosen) = (vec![None; count], false);
        for node in uses {
            let parent = node.parent()?;
            match parent.kind() {
                "array_declarator" => {
                    let first = parent.parent().filter(|p| p.kind() == "init_declarator");
                    if let Some(list) = first.and_then(|f| f.child_by_field_name("value")) {
                        let given = c::children(list);
                        for (d, number) in numbers.iter_mut().enumerate() {
                            *number = Some(given.get(d).map_or(Some(0), |n| self.plain_number(*n))?);
                        }
                    }
                }
                "argument_list" => match parent.parent().and_then(|c| c.child_by_field_name("function")) {
                    Some(f) if self.unit.text_of(f) == "MPI_Dims_create" && node.start_byte() < call.start_byte() => {
                        chosen = true;
                    }
                    Some(f) if self.unit.text_of(f) == "MPI_Cart_create" => {}
                    _ => return None,
                },
                "subscript_expression" => match self.put_into(parent, body, call) {
                    Some(Some((d, number))) => *numbers.get_mut(d)? = Some(number),
                    Some(None) => {}
                    None => return None,
                },
                _ => return None,
            }
        }
        Some((numbers.into_iter().collect::<Option<Vec<i64>>>()?, chosen))
    }

    /// What a place gives an element: nothing, where it is only read; `element = number` among the
    /// function's own statements before a call. None: something else.
    fn put_into(&self, element: Node<'t>, body: Node<'t>, call: Node<'t>) -> Option<Option<(usize, i64)>> {
        let parent = element.parent()?;
        match parent.kind() {
            "update_expression" => return None,
            "pointer_expression" => return None,
            "assignment_expression" if parent.child_by_field_name("left") == Some(element) => {}
            _ => return Some(None),
        }
        // `a[0] = a[1] = 0`: the number is the last, the statement the first.
        let (mut value, mut outer) = (parent.child_by_field_name("right")?, parent);
        while value.kind() == "assignment_expression" {
            value = value.child_by_field_name("right")?;
        }
        while let Some(p) = outer.parent().filter(|p| p.kind() == "assignment_expression") {
            outer = p;
        }
        let plain = parent.child_by_field_name("operator").is_some_and(|o| self.unit.text_of(o) == "=");
        let statement = outer.parent().filter(|s| s.kind() == "expression_statement" && s.parent() == Some(body))?;
        let index = self.plain_number(element.child_by_field_name("index")?)?;
        if !plain || statement.start_byte() > call.start_byte() {
            return None;
        }
        Some(Some((usize::try_from(index).ok()?, self.plain_number(value)?)))
    }

    /// A number as it is written.
    fn plain_number(&self, node: Node<'t>) -> Option<i64> {
        match self.unit.text_of(unwrapped(node)) {
            "true" => Some(1),
            "false" => Some(0),
            text => text.parse().ok(),
        }
    }
}

impl Grid {
    /// The process so many further on along a dimension.
    fn neighbour(&self, direction: usize, by: i64) -> Expr {
        let side = self.sides[direction].clone();
        let row = self.sides[direction + 1..].iter().cloned().reduce(|a, b| Expr::binary("*", a, b));
        let own = Expr::name("procnum");
        let line = row.clone().map_or(own.clone(), |row| Expr::binary("/", own.clone(), row));
        let place = if direction == 0 { line } else { Expr::binary("%", line, side.clone()) };
        let steps = |count: Expr| match &row {
            Some(row) => Expr::binary("*", count, row.clone()),
            None => count,
        };
        if self.periodic[direction] {
            let moved = Expr::binary("%", Expr::binary("+", place.clone(), Expr::int(by)), side.clone());
            let wrapped = Expr::binary("%", Expr::binary("+", moved, side.clone()), side);
            return Expr::binary("+", own, steps(Expr::binary("-", wrapped, place)));
        }
        let inside = if by >= 0 {
            Expr::binary("<", Expr::binary("+", place, Expr::int(by)), side)
        } else {
            Expr::binary(">=", place, Expr::int(-by))
        };
        let there = Expr::binary(if by >= 0 { "+" } else { "-" }, own, steps(Expr::int(by.abs())));
        Expr::Choice(Box::new((inside, there, Expr::Null)))
    }
}
