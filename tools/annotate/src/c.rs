//! What a C file says, read with tree-sitter: its functions, constants, types, and what is assigned where.
//!
//! The tree may be of any text: what cannot be parsed stands in it as errors, and nothing here recurses along it.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::{Node, Parser, Tree};

use crate::error::Error;

/// Sources longer than this are refused: no file that people write is.
pub const MOST_BYTES: usize = 4 << 20;

/// The text with each plain `#define NAME value` once more as a variable at its end, so that the parser reads the value.
#[must_use]
pub fn with_defines(text: &str) -> String {
    const MOST_DEFINES: usize = 2000;
    let plain = |value: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || " _+-*/%()<>&|.".contains(c);
        let depth = value.chars().try_fold(0i32, |depth, c| match c {
            '(' => Some(depth + 1),
            ')' if depth == 0 => None,
            ')' => Some(depth - 1),
            _ => Some(depth),
        });
        !value.is_empty() && value.len() < 200 && value.chars().all(known) && depth == Some(0)
    };
    let mut out = text.to_owned();
    let defines =
        text.lines().filter_map(|line| line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define"));
    let pairs = defines.filter(|rest| rest.starts_with([' ', '\t'])).filter_map(|rest| {
        let rest = rest.trim();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        let value = rest[end..].split("//").next()?.split("/*").next()?;
        // A bracket right behind the name makes a macro with arguments.
        (end > 0 && value.starts_with([' ', '\t']) && plain(value.trim())).then(|| (&rest[..end], value.trim()))
    });
    for (name, value) in pairs.take(MOST_DEFINES) {
        out += &format!("\nstatic const long {name} = ({value});");
    }
    out
}

/// Parses C.
///
/// # Errors
/// If the file is too long, or the parser gives up.
pub fn parse(text: &str, file: &str) -> Result<Tree, Error> {
    if text.len() > MOST_BYTES {
        return Err(Error::TooLong { file: file.to_owned(), most: MOST_BYTES });
    }
    let mut parser = Parser::new();
    let language = tree_sitter_c::LANGUAGE.into();
    let given_up = || Error::Unreadable { file: file.to_owned() };
    parser.set_language(&language).map_err(|_| given_up())?;
    parser.parse(text, None).ok_or_else(given_up)
}

/// The line of a node, from 1.
#[must_use]
pub fn line(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row).unwrap_or(u32::MAX - 1) + 1
}

/// A function with a body.
#[derive(Debug)]
pub struct Function<'t> {
    /// Its name.
    pub name: &'t str,
    /// Names of its parameters, in order; empty where one has none.
    pub parameters: Vec<&'t str>,
    /// The `{ ... }`.
    pub body: Node<'t>,
    /// Names declared in it, parameters too.
    pub locals: BTreeMap<&'t str, u32>,
    /// What is assigned in it.
    pub writes: BTreeMap<&'t str, Vec<Write<'t>>>,
    /// Its calls, in the order in which they begin.
    pub calls: Vec<Call<'t>>,
    /// Fields of variables that are read or written in it, as they are written: `status.MPI_TAG`.
    pub fields: BTreeSet<&'t str>,
}

/// A place where a variable gets a value.
#[derive(Debug, Clone, Copy)]
pub struct Write<'t> {
    /// The value, where it is plainly that of an expression.
    pub value: Option<Node<'t>>,
    /// What writes: `=`, `+=`, `++`, or the name of the function that is given its address.
    pub by: &'t str,
    /// The assignment, or the call.
    pub node: Node<'t>,
}

/// A call by name.
#[derive(Debug, Clone, Copy)]
pub struct Call<'t> {
    /// Of which function.
    pub name: &'t str,
    /// The whole call.
    pub node: Node<'t>,
}

/// A file of C.
#[derive(Debug)]
pub struct Unit<'t> {
    /// The text.
    pub text: &'t str,
    /// Its functions, in order.
    pub functions: Vec<Function<'t>>,
    /// Where in `functions` a name stands; of several of one name, the first.
    names: BTreeMap<&'t str, usize>,
    /// What is assigned outside of functions.
    pub writes: BTreeMap<&'t str, Vec<Write<'t>>>,
    /// Constants of `enum`, by name: their value, or that before them with what is to be added.
    pub constants: BTreeMap<&'t str, (Option<Node<'t>>, i64)>,
    /// Types with names that are a structure or another type.
    pub types: BTreeMap<&'t str, Node<'t>>,
    /// The first line that cannot be parsed.
    pub damaged: Option<u32>,
    /// Bytes of the file itself; behind them stand its constants once more ([`with_defines`]).
    pub own_bytes: usize,
    /// Where the function ends that was met last.
    inside_until: usize,
}

/// All nodes below one, before their children, without recursion.
pub fn each<'t>(root: Node<'t>, mut visit: impl FnMut(Node<'t>) -> bool) {
    let mut cursor = root.walk();
    loop {
        let deeper = visit(cursor.node());
        if deeper && cursor.goto_first_child() {
            continue;
        }
        loop {
            if cursor.node() == root {
                return;
            }
            if cursor.goto_next_sibling() {
                break;
            }
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

/// The children that are more than punctuation and comments.
#[must_use]
pub fn children<'t>(node: Node<'t>) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).filter(|child| child.kind() != "comment").collect()
}

/// A node without the brackets around it.
#[must_use]
pub fn unwrapped(mut node: Node<'_>) -> Node<'_> {
    while node.kind() == "parenthesized_expression" {
        match children(node).first() {
            Some(inner) => node = *inner,
            None => break,
        }
    }
    node
}

impl<'t> Unit<'t> {
    /// Collects what a parsed file says.
    #[must_use]
    pub fn of(text: &'t str, own_bytes: usize, tree: &'t Tree) -> Self {
        let mut unit = Self {
            text,
            functions: Vec::new(),
            names: BTreeMap::new(),
            writes: BTreeMap::new(),
            constants: BTreeMap::new(),
            types: BTreeMap::new(),
            damaged: None,
            own_bytes,
            inside_until: 0,
        };
        each(tree.root_node(), |node| unit.declared(node));
        unit
    }

    /// The text of a node.
    #[must_use]
    pub fn text_of(&self, node: Node<'_>) -> &'t str {
        self.text.get(node.byte_range()).unwrap_or("")
    }

    /// The function of a name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Takes down what stands outside of functions; true: look below it too.
    fn declared(&mut self, node: Node<'t>) -> bool {
        if (node.is_error() || node.is_missing()) && self.damaged.is_none() && node.start_byte() < self.own_bytes {
            self.damaged = Some(line(node));
        }
        match node.kind() {
            // Constants and errors may stand in bodies too: on it goes. A function within a function is no C.
            "function_definition" if !self.is_inside(node) => {
                self.inside_until = node.end_byte();
                self.defined(node);
            }
            "enumerator_list" => self.enumerators(node),
            "type_definition" => {
                if let (Some(of), Some(name)) =
                    (node.child_by_field_name("type"), node.child_by_field_name("declarator"))
                    && name.kind() == "type_identifier"
                {
                    self.types.insert(self.text_of(name), of);
                }
            }
            "struct_specifier" => {
                if let (Some(name), Some(_)) = (node.child_by_field_name("name"), node.child_by_field_name("body")) {
                    self.types.insert(self.text_of(name), node);
                }
            }
            "init_declarator" if !self.is_inside(node) => self.initialised(node),
            _ => {}
        }
        true
    }

    fn is_inside(&self, node: Node<'t>) -> bool {
        node.start_byte() < self.inside_until
    }

    fn initialised(&mut self, node: Node<'t>) {
        if let Some(name) = node.child_by_field_name("declarator").and_then(|d| self.declared_name(d)) {
            let write = Write { value: node.child_by_field_name("value"), by: "=", node };
            self.writes.entry(name).or_default().push(write);
        }
    }

    fn enumerators(&mut self, list: Node<'t>) {
        let (mut last, mut beyond) = (None, 0);
        for entry in children(list) {
            if entry.kind() != "enumerator" {
                continue;
            }
            if let Some(value) = entry.child_by_field_name("value") {
                (last, beyond) = (Some(value), 0);
            }
            if let Some(name) = entry.child_by_field_name("name") {
                self.constants.insert(self.text_of(name), (last, beyond));
            }
            beyond += 1;
        }
    }

    /// The name that a declarator declares.
    fn declared_name(&self, mut node: Node<'t>) -> Option<&'t str> {
        loop {
            match node.kind() {
                "identifier" | "field_identifier" => return Some(self.text_of(node)),
                "pointer_declarator"
                | "array_declarator"
                | "init_declarator"
                | "parenthesized_declarator"
                | "function_declarator" => {
                    let inner = node.child_by_field_name("declarator");
                    node = inner.or_else(|| children(node).into_iter().last())?;
                }
                _ => return None,
            }
        }
    }

    fn defined(&mut self, node: Node<'t>) {
        let Some(body) = node.child_by_field_name("body") else { return };
        let mut declarator = node.child_by_field_name("declarator");
        while let Some(d) = declarator.filter(|d| d.kind() != "function_declarator") {
            declarator = d.child_by_field_name("declarator");
        }
        let Some(declarator) = declarator else { return };
        let Some(name) = declarator.child_by_field_name("declarator").filter(|n| n.kind() == "identifier") else {
            return;
        };
        let list = declarator.child_by_field_name("parameters").map(children).unwrap_or_default();
        let named = |p: Node<'t>| p.child_by_field_name("declarator").and_then(|d| self.declared_name(d)).unwrap_or("");
        let parameters: Vec<&str> =
            list.into_iter().filter(|p| p.kind() == "parameter_declaration").map(named).collect();
        let mut function = Function {
            name: self.text_of(name),
            locals: parameters.iter().map(|p| (*p, 1)).collect(),
            parameters,
            body,
            writes: BTreeMap::new(),
            calls: Vec::new(),
            fields: BTreeSet::new(),
        };
        each(body, |inner| {
            self.in_function(inner, &mut function);
            true
        });
        function.calls.sort_by_key(|c| c.node.start_byte());
        self.names.entry(function.name).or_insert(self.functions.len());
        self.functions.push(function);
    }

    /// Takes down what a node in a function declares, writes and calls.
    fn in_function(&self, node: Node<'t>, function: &mut Function<'t>) {
        let mut write = |target: Option<Node<'t>>, value: Option<Node<'t>>, by: &'t str| {
            if let Some(name) = target.and_then(|t| self.variable(t)) {
                function.writes.entry(name).or_default().push(Write { value, by, node });
            }
        };
        match node.kind() {
            "assignment_expression" => {
                let by = node.child_by_field_name("operator").map_or("=", |o| self.text_of(o));
                let value = node.child_by_field_name("right").filter(|_| by == "=");
                write(node.child_by_field_name("left"), value, by);
            }
            "update_expression" => write(node.child_by_field_name("argument"), None, "++"),
            "init_declarator" => {
                if let Some(name) = node.child_by_field_name("declarator").and_then(|d| self.declared_name(d)) {
                    let value = node.child_by_field_name("value");
                    function.writes.entry(name).or_default().push(Write { value, by: "=", node });
                }
            }
            "call_expression" => self.called(node, function),
            "field_expression" => {
                function.fields.insert(self.text_of(node));
            }
            "declaration" => {
                let mut cursor = node.walk();
                let names =
                    node.children_by_field_name("declarator", &mut cursor).filter_map(|d| self.declared_name(d));
                for name in names {
                    *function.locals.entry(name).or_insert(0) += 1;
                }
            }
            _ => {}
        }
    }

    fn called(&self, node: Node<'t>, function: &mut Function<'t>) {
        let Some(name) = node.child_by_field_name("function").filter(|f| f.kind() == "identifier") else { return };
        let name = self.text_of(name);
        function.calls.push(Call { name, node });
        for argument in arguments(node) {
            let argument = unwrapped(argument);
            let address = argument.kind() == "pointer_expression"
                && argument.child_by_field_name("operator").is_some_and(|o| self.text_of(o) == "&");
            let target = argument.child_by_field_name("argument").filter(|_| address);
            if let Some(variable) = target.and_then(|t| self.variable(t)) {
                function.writes.entry(variable).or_default().push(Write { value: None, by: name, node });
            }
        }
    }

    /// The name of a variable, or of a field of one as it is written: `n`, `grid.columns`, `g->columns`.
    #[must_use]
    pub fn variable(&self, node: Node<'t>) -> Option<&'t str> {
        let node = unwrapped(node);
        match node.kind() {
            "identifier" => Some(self.text_of(node)),
            "field_expression" => {
                let base = node.child_by_field_name("argument")?;
                (base.kind() == "identifier").then(|| self.text_of(node))
            }
            _ => None,
        }
    }
}

/// The arguments of a call.
#[must_use]
pub fn arguments<'t>(call: Node<'t>) -> Vec<Node<'t>> {
    call.child_by_field_name("arguments").map(children).unwrap_or_default()
}
