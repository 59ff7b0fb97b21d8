//! What a C file says, read with tree-sitter: its functions, constants, types, and what is assigned
//! where.
//!
//! The tree may be of any text: what cannot be parsed stands in it as errors, and nothing here
//! recurses along it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tree_sitter::{Node, Parser, Tree};

use crate::error::Error;
use crate::types::Ty;

/// Sources longer than this are refused: no file that people write is.
pub const MOST_BYTES: usize = 4 << 20;

/// The text with each plain `#define NAME value` once more as a variable at its end, so that the
/// parser reads the value.
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
    /// Its calls, in the order in which they begin.
    pub calls: Vec<Call<'t>>,
    /// Fields of variables that are read or written in it, as they are written: `status.MPI_TAG`.
    pub fields: BTreeSet<&'t str>,
}

/// A number of a variable in [`Unit::variables`].
pub type Var = usize;

/// Where a variable lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// It is the argument of this number of its function.
    Formal(usize),
    /// It begins anew where it is declared.
    Local,
    /// It belongs to a function, and stays; or anything may change it (`volatile`).
    Static,
    /// It stands outside of functions.
    File,
    /// It stands in another file.
    Elsewhere,
    /// It is a `#define`.
    Define,
}

/// A variable.
#[derive(Debug, Clone)]
pub struct Variable<'t> {
    /// Its name.
    pub name: &'t str,
    /// Where it means this variable: bytes.
    pub scope: Range<usize>,
    /// Its function; none outside of any.
    pub function: Option<usize>,
    /// Where it lives.
    pub home: Home,
    /// Its type, if that is a number and neither a pointer nor an array.
    pub ty: Option<Ty>,
    /// Its type's words, without stars.
    pub words: &'t str,
    /// How many there are of each, outermost first, of a plain array; none of a plain variable.
    /// Else it is not known.
    pub extents: Option<Vec<Node<'t>>>,
    /// Whether no other file knows it.
    pub own: bool,
}

/// A place where a variable gets a value.
#[derive(Debug, Clone, Copy)]
pub struct Write<'t> {
    /// The value, where it is plainly that of an expression.
    pub value: Option<Node<'t>>,
    /// What writes: `=`, `+=`, `++`, `&` where its address is taken, or the name of the function
    /// that is given its address.
    pub by: &'t str,
    /// The assignment, or the call.
    pub node: Node<'t>,
    /// In which function; none outside of any.
    pub function: Option<usize>,
}

/// A call by name.
#[derive(Debug, Clone, Copy)]
pub struct Call<'t> {
    /// Of which function.
    pub name: &'t str,
    /// The whole call.
    pub node: Node<'t>,
}

/// A macro.
#[derive(Debug, Clone, Copy)]
pub struct Macro<'t> {
    /// What stands in its place.
    pub body: &'t str,
    /// Whether it takes arguments.
    pub takes: bool,
    /// Its line.
    pub line: u32,
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
    /// Its variables.
    pub variables: Vec<Variable<'t>>,
    /// Their numbers, by name.
    by_name: BTreeMap<&'t str, Vec<Var>>,
    /// What is assigned, by the variable or field as it is written, in order.
    writes: BTreeMap<&'t str, Vec<Write<'t>>>,
    /// Constants of `enum`, by name: their value, or that before them with what is to be added.
    pub constants: BTreeMap<&'t str, (Option<Node<'t>>, i64)>,
    /// Types with names that are a structure or another type.
    pub types: BTreeMap<&'t str, Node<'t>>,
    /// Macros, by name.
    pub macros: BTreeMap<&'t str, Macro<'t>>,
    /// Files that are included by `"..."`, with their lines.
    pub includes: Vec<(&'t str, u32)>,
    /// The first line that is no C as the parser knows it.
    pub damaged: Option<u32>,
    /// How many bytes are the file's own; behind them stand its `#define`s once more.
    pub own_bytes: usize,
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

/// How many there are of each, outermost first, of a name that is declared as a variable or an
/// array and nothing else.
fn extents(declarator: Node<'_>) -> Option<Vec<Node<'_>>> {
    let mut at = match declarator.kind() {
        "init_declarator" => declarator.child_by_field_name("declarator"),
        _ => Some(declarator),
    };
    let mut found = Vec::new();
    while let Some(array) = at.filter(|at| at.kind() == "array_declarator") {
        // `int a[] = {..}` does not say how many.
        found.push(array.child_by_field_name("size")?);
        at = array.child_by_field_name("declarator");
    }
    found.reverse();
    at.filter(|at| at.kind() == "identifier").map(|_| found)
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
            variables: Vec::new(),
            by_name: BTreeMap::new(),
            writes: BTreeMap::new(),
            constants: BTreeMap::new(),
            types: BTreeMap::new(),
            macros: BTreeMap::new(),
            includes: Vec::new(),
            damaged: None,
            own_bytes,
            inside_until: 0,
        };
        each(tree.root_node(), |node| unit.declared(node));
        unit.writes.values_mut().for_each(|all| all.sort_by_key(|w| w.node.start_byte()));
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

    /// The variable that a name means at a byte.
    #[must_use]
    pub fn resolve(&self, name: &str, at: usize) -> Option<Var> {
        let all = self.by_name.get(name)?;
        all.iter()
            .copied()
            .filter(|v| self.variables[*v].scope.contains(&at))
            .max_by_key(|v| self.variables[*v].scope.start)
    }

    /// All that is assigned to a variable, or to the field of one, as `written`.
    #[must_use]
    pub fn writes_of(&self, written: &str, var: Var) -> Vec<Write<'t>> {
        let base = base_of(written);
        let own = |w: &&Write<'t>| self.resolve(base, w.node.start_byte()) == Some(var);
        self.writes.get(written).into_iter().flatten().filter(own).copied().collect()
    }

    /// Takes down what stands outside of functions; true: look below it too.
    fn declared(&mut self, node: Node<'t>) -> bool {
        if (node.is_error() || node.is_missing()) && self.damaged.is_none() && node.start_byte() < self.own_bytes {
            self.damaged = Some(line(node));
        }
        match node.kind() {
            // Constants and errors may stand in bodies too: on it goes. A function within a
            // function is no C.
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
            "preproc_def" | "preproc_function_def" => self.macro_of(node),
            "preproc_include" => {
                if let Some(path) = node.child_by_field_name("path").filter(|p| p.kind() == "string_literal") {
                    self.includes.push((self.text_of(path), line(node)));
                }
            }
            "declaration" if !self.is_inside(node) => self.declaration(node, None),
            "init_declarator" if !self.is_inside(node) => self.initialised(node, None),
            _ => {}
        }
        true
    }

    fn is_inside(&self, node: Node<'t>) -> bool {
        node.start_byte() < self.inside_until
    }

    fn macro_of(&mut self, node: Node<'t>) {
        let field = |name: &str| node.child_by_field_name(name);
        let (Some(name), Some(body)) = (field("name"), field("value")) else { return };
        let takes = node.kind() == "preproc_function_def";
        self.macros.insert(self.text_of(name), Macro { body: self.text_of(body), takes, line: line(node) });
    }

    fn initialised(&mut self, node: Node<'t>, function: Option<usize>) {
        if let Some(name) = node.child_by_field_name("declarator").and_then(|d| self.declared_name(d)) {
            let write = Write { value: node.child_by_field_name("value"), by: "=", node, function };
            self.writes.entry(name).or_default().push(write);
        }
    }

    /// Takes down the variables of a declaration.
    fn declaration(&mut self, node: Node<'t>, function: Option<usize>) {
        let words = node.child_by_field_name("type").map_or("", |t| self.text_of(t));
        let has = |word: &str| children(node).iter().any(|c| self.text_of(*c) == word);
        let (fixed, anybody) = (has("static"), has("volatile"));
        let scope = match (function, node.parent()) {
            (Some(_), Some(parent)) => node.start_byte()..parent.end_byte(),
            _ => 0..usize::MAX,
        };
        let home = match function {
            _ if anybody => Home::Static,
            None if node.start_byte() >= self.own_bytes => Home::Define,
            None if has("extern") => Home::Elsewhere,
            None => Home::File,
            Some(_) if fixed || has("extern") => Home::Static,
            Some(_) => Home::Local,
        };
        let mut cursor = node.walk();
        let declarators: Vec<Node<'t>> = node.children_by_field_name("declarator", &mut cursor).collect();
        for declarator in declarators {
            let Some(name) = self.declared_name(declarator).filter(|_| !is_prototype(declarator)) else { continue };
            let scalar = match declarator.kind() {
                "identifier" => true,
                "init_declarator" => {
                    declarator.child_by_field_name("declarator").is_some_and(|d| d.kind() == "identifier")
                }
                _ => false,
            };
            let ty = if scalar { self.type_of(words) } else { None };
            let extents = extents(declarator);
            self.variable_is(Variable { name, scope: scope.clone(), function, home, ty, words, extents, own: fixed });
        }
    }

    fn variable_is(&mut self, variable: Variable<'t>) {
        let all = self.by_name.entry(variable.name).or_default();
        // What is declared twice outside of functions is one.
        let again =
            all.iter().copied().find(|v| self.variables[*v].scope == variable.scope && variable.function.is_none());
        if let Some(known) = again {
            if variable.home == Home::File {
                self.variables[known].home = Home::File;
            }
        } else {
            all.push(self.variables.len());
            self.variables.push(variable);
        }
    }

    /// The number type of these words, by way of the file's typedefs.
    #[must_use]
    pub fn type_of(&self, words: &str) -> Option<Ty> {
        let mut words = words;
        for _ in 0..10 {
            if let Some(ty) = Ty::of(words) {
                return Some(ty);
            }
            words = self.text_of(*self.types.get(words)?);
        }
        None
    }

    /// The type of a variable's field, if the file declares it and it is a number.
    #[must_use]
    pub fn field_type(&self, var: Var, field: &str) -> Option<Ty> {
        let mut words = self.variables[var].words.trim_start_matches("struct ").trim();
        let body = (0..10).find_map(|_| {
            let of = *self.types.get(words)?;
            words = self.text_of(of).trim_start_matches("struct ").trim();
            of.child_by_field_name("body")
        })?;
        let declares = |d: &Node<'t>| {
            let mut cursor = d.walk();
            d.children_by_field_name("declarator", &mut cursor)
                .any(|n| n.kind() == "field_identifier" && self.text_of(n) == field)
        };
        let found = children(body).into_iter().find(|d| d.kind() == "field_declaration" && declares(d))?;
        self.type_of(self.text_of(found.child_by_field_name("type")?))
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
        let number = self.functions.len();
        let list = declarator.child_by_field_name("parameters").map(children).unwrap_or_default();
        let mut parameters = Vec::new();
        for (at, formal) in list.into_iter().filter(|p| p.kind() == "parameter_declaration").enumerate() {
            let declarator = formal.child_by_field_name("declarator");
            let name = declarator.and_then(|d| self.declared_name(d)).unwrap_or("");
            let words = formal.child_by_field_name("type").map_or("", |t| self.text_of(t));
            let ty = if declarator.is_some_and(|d| d.kind() == "identifier") { self.type_of(words) } else { None };
            let (scope, home) = (body.byte_range(), Home::Formal(at));
            // An array in a parameter is a pointer.
            let extents = None;
            self.variable_is(Variable { name, scope, function: Some(number), home, ty, words, extents, own: true });
            parameters.push(name);
        }
        let mut function =
            Function { name: self.text_of(name), parameters, body, calls: Vec::new(), fields: BTreeSet::new() };
        each(body, |inner| {
            self.in_function(inner, &mut function, number);
            true
        });
        function.calls.sort_by_key(|c| c.node.start_byte());
        self.names.entry(function.name).or_insert(number);
        self.functions.push(function);
    }

    /// Takes down what a node in a function declares, writes and calls.
    fn in_function(&mut self, node: Node<'t>, function: &mut Function<'t>, number: usize) {
        let write = |unit: &mut Self, target: Option<Node<'t>>, value: Option<Node<'t>>, by: &'t str| {
            if let Some(name) = target.and_then(|t| unit.variable(t)) {
                unit.writes.entry(name).or_default().push(Write { value, by, node, function: Some(number) });
            }
        };
        match node.kind() {
            "assignment_expression" => {
                let by = node.child_by_field_name("operator").map_or("=", |o| self.text_of(o));
                let value = node.child_by_field_name("right").filter(|_| by == "=");
                write(self, node.child_by_field_name("left"), value, by);
            }
            "update_expression" => write(self, node.child_by_field_name("argument"), None, "++"),
            "init_declarator" => self.initialised(node, Some(number)),
            "pointer_expression" => {
                // The address in a list of arguments is the callee's to write to; anywhere else,
                // anybody's.
                let address = node.child_by_field_name("operator").is_some_and(|o| self.text_of(o) == "&");
                let call = node.parent().filter(|p| p.kind() == "argument_list").and_then(|p| p.parent());
                let by = match call.and_then(|c| c.child_by_field_name("function")) {
                    Some(f) if f.kind() == "identifier" => self.text_of(f),
                    Some(_) => "a call by a pointer",
                    None => "&",
                };
                let first = call.and_then(|c| arguments(c).first().copied());
                let written = address && !(crate::calls::only_reads_first(by) && first == Some(node));
                let (target, node) = (node.child_by_field_name("argument").filter(|_| written), call.unwrap_or(node));
                if let Some(name) = target.and_then(|t| self.variable(t)) {
                    let write = Write { value: None, by, node, function: Some(number) };
                    self.writes.entry(name).or_default().push(write);
                }
            }
            "call_expression" => {
                if let Some(name) = node.child_by_field_name("function").filter(|f| f.kind() == "identifier") {
                    function.calls.push(Call { name: self.text_of(name), node });
                }
            }
            "field_expression" => {
                function.fields.insert(self.text_of(node));
            }
            "declaration" => self.declaration(node, Some(number)),
            _ => {}
        }
    }

    /// The name of a variable, or of a field of one as it is written: `n`, `grid.columns`,
    /// `g->columns`.
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

/// The variable that a field belongs to.
#[must_use]
pub fn base_of(name: &str) -> &str {
    name.split(['.', '-']).next().unwrap_or(name)
}

/// Whether a declarator declares a function, not a pointer to one.
fn is_prototype(node: Node<'_>) -> bool {
    let mut node = node;
    while node.kind() == "pointer_declarator" {
        match node.child_by_field_name("declarator") {
            Some(inner) => node = inner,
            None => return false,
        }
    }
    node.kind() == "function_declarator"
        && node.child_by_field_name("declarator").is_some_and(|d| d.kind() == "identifier")
}

/// The arguments of a call.
#[must_use]
pub fn arguments<'t>(call: Node<'t>) -> Vec<Node<'t>> {
    call.child_by_field_name("arguments").map(children).unwrap_or_default()
}
