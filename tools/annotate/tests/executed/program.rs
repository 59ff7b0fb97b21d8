//! Random C programs of what the annotator says it follows.

use std::fmt::Write as _;

/// Numbers that are the same on every machine (Vigna's splitmix64, 2015).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Names of variables: words of the directive language among them, and the same in several
/// functions.
const NAMES: [&str; 16] =
    ["n", "k", "m", "index", "c1", "from", "tag", "req", "time", "s", "B", "unit", "peer", "count", "min_", "left"];
const TYPES: [&str; 8] = ["int", "int", "int", "long", "unsigned", "short", "char", "size_t"];

/// Programs from this number on have persistent requests and waits for some, too; those before stay
/// as they were.
pub const LATER: u64 = 10_000;

struct Maker {
    chance: Chance,
    later: bool,
    out: String,
    /// Variables that may be read, then those that may be written.
    known: Vec<String>,
    writable: Vec<String>,
    /// Functions that may be called, with how many arguments.
    functions: Vec<(String, usize)>,
    /// How many loops are around, of the function's own.
    loops: usize,
    /// How many statements there are.
    statements: usize,
    fresh: usize,
}

/// A program.
pub fn program(seed: u64) -> String {
    let mut maker = Maker {
        chance: Chance::new(seed),
        later: seed >= LATER,
        out: String::from("#include <mpi.h>\n#define WIDTH 3\n#define WIDE (WIDTH * 2)\nenum { ROOT = 1 };\n"),
        known: Vec::new(),
        writable: Vec::new(),
        functions: Vec::new(),
        loops: 0,
        statements: 0,
        fresh: 0,
    };
    maker.out += "static char buffer[4096];\nstatic int shared = 2;\nstatic int rounds;\n";
    for number in 0..maker.chance.below(3) {
        maker.function(number);
    }
    maker.main();
    maker.out
}

impl Maker {
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(depth));
    }

    fn function(&mut self, number: usize) {
        let arguments = self.chance.below(3);
        let mut names = Vec::new();
        for at in 0..arguments {
            names.push(NAMES[(self.chance.below(5) + at * 5) % NAMES.len()].to_owned());
        }
        let list: Vec<String> = names.iter().map(|n| format!("{} {n}", self.chance.of(&TYPES))).collect();
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        let _ = writeln!(self.out, "static int f{number}({list}) {{");
        self.known = names.clone();
        self.writable = names;
        self.line(1, "int rank, size;");
        self.line(1, "MPI_Comm_rank(MPI_COMM_WORLD, &rank);");
        self.line(1, "MPI_Comm_size(MPI_COMM_WORLD, &size);");
        self.known.extend(["rank".to_owned(), "size".to_owned(), "shared".to_owned()]);
        self.loops = 0;
        self.statements = 0;
        self.message(1);
        self.list(1, 4);
        self.line(1, "return 0;");
        self.line(0, "}");
        self.functions.push((format!("f{number}"), arguments));
    }

    fn main(&mut self) {
        self.line(0, "int main(int argc, char **argv) {");
        self.line(1, "int rank, size;");
        self.line(1, "MPI_Init(&argc, &argv);");
        self.line(1, "MPI_Comm_rank(MPI_COMM_WORLD, &rank);");
        self.line(1, "MPI_Comm_size(MPI_COMM_WORLD, &size);");
        self.known = ["rank", "size", "shared", "rounds"].map(str::to_owned).to_vec();
        self.writable = vec!["shared".to_owned(), "rounds".to_owned()];
        self.loops = 0;
        self.statements = 0;
        // One tag alone would say nothing, and be left out.
        self.line(1, "MPI_Send(buffer, 1, MPI_CHAR, 0, 77, MPI_COMM_WORLD);");
        self.line(1, "MPI_Send(buffer, 1, MPI_CHAR, 0, 78, MPI_COMM_WORLD);");
        self.list(1, 7);
        self.message(1);
        self.line(1, "MPI_Finalize();");
        self.line(1, "return 0;");
        self.line(0, "}");
    }

    /// Statements in a scope of their own.
    fn list(&mut self, depth: usize, most: usize) {
        let (known, writable) = (self.known.len(), self.writable.len());
        for _ in 0..1 + self.chance.below(most) {
            self.statement(depth);
        }
        self.known.truncate(known);
        self.writable.truncate(writable);
    }

    fn block(&mut self, depth: usize) {
        self.list(depth + 1, 3);
    }

    fn statement(&mut self, depth: usize) {
        self.statements += 1;
        let deep = depth > 4 || self.statements > 25;
        match self.chance.below(if deep { 12 } else { 24 }) {
            0..4 => self.message(depth),
            4..6 => self.declaration(depth),
            6..8 => self.assignment(depth),
            8 => self.short(depth),
            9 => self.call(depth),
            10 => self.leaving(depth),
            11 => self.received(depth),
            12..15 => {
                let condition = self.condition();
                self.line(depth, &format!("if ({condition}) {{"));
                self.block(depth);
                if self.chance.below(2) == 0 {
                    self.line(depth, "} else {");
                    self.block(depth);
                }
                self.line(depth, "}");
            }
            15..19 => self.counting(depth),
            19..21 => self.waiting(depth),
            21 => self.endless(depth),
            22 => {
                self.line(depth, "{");
                self.block(depth);
                self.line(depth, "}");
            }
            _ => self.polled(depth),
        }
    }

    fn name(&mut self) -> String {
        self.fresh += 1;
        match self.chance.below(3) {
            0 => format!("v{}", self.fresh),
            _ => self.chance.of(&NAMES).to_owned(),
        }
    }

    fn declaration(&mut self, depth: usize) {
        let (ty, value) = (self.chance.of(&TYPES), self.number(2));
        // A scope has each name once.
        self.fresh += 1;
        let name = if self.chance.below(2) == 0 { format!("v{}", self.fresh) } else { self.name() };
        let name = if self.known.contains(&name) { format!("v{}", self.fresh) } else { name };
        self.line(depth, &format!("{ty} {name} = {value};"));
        self.known.push(name.clone());
        self.writable.push(name);
    }

    fn assignment(&mut self, depth: usize) {
        if self.writable.is_empty() {
            return self.declaration(depth);
        }
        let name = self.writable[self.chance.below(self.writable.len())].clone();
        let value = self.number(2);
        let text = match self.chance.below(6) {
            0 => format!("{name}++;"),
            1 => format!("{name} -= {};", 1 + self.chance.below(3)),
            2 => format!("{name} += ({value}) & 15;"),
            _ => format!("{name} = {value};"),
        };
        self.line(depth, &text);
    }

    fn datatype(&mut self) -> &'static str {
        self.chance.of(&["MPI_CHAR", "MPI_SHORT", "MPI_INT", "MPI_DOUBLE"])
    }

    fn call_of_mpi(&mut self) -> String {
        let (count, ty) = (format!("({}) & 63", self.number(2)), self.datatype());
        let (peer, tag) = (format!("({}) & 7", self.number(1)), format!("({}) & 15", self.number(1)));
        match self.chance.below(7) {
            0..3 => format!("MPI_Send(buffer, {count}, {ty}, {peer}, {tag}, MPI_COMM_WORLD)"),
            3 => format!("MPI_Recv(buffer, {count}, {ty}, {peer}, {tag}, MPI_COMM_WORLD, MPI_STATUS_IGNORE)"),
            4 => format!("MPI_Bcast(buffer, {count}, {ty}, {peer}, MPI_COMM_WORLD)"),
            5 => format!("MPI_Allreduce(buffer, buffer, {count}, {ty}, MPI_SUM, MPI_COMM_WORLD)"),
            _ => format!(
                "MPI_Sendrecv(buffer, {count}, {ty}, {peer}, {tag}, buffer, 64, MPI_INT, rank, {tag}, MPI_COMM_WORLD, MPI_STATUS_IGNORE)"
            ),
        }
    }

    fn message(&mut self, depth: usize) {
        let call = self.call_of_mpi();
        self.line(depth, &format!("{call};"));
    }

    /// Calls that only some ways through an expression make.
    fn short(&mut self, depth: usize) {
        let (a, b, condition) = (self.call_of_mpi(), self.call_of_mpi(), self.condition());
        let text = match self.chance.below(5) {
            0 => format!("({condition}) && {a};"),
            1 => format!("({condition}) || {a};"),
            2 => format!("({condition}) ? {a} : {b};"),
            3 => format!("{a}, {b};"),
            _ => format!("if (({condition}) && {a} == MPI_SUCCESS) ;"),
        };
        self.line(depth, &text);
    }

    fn call(&mut self, depth: usize) {
        if self.functions.is_empty() {
            return self.message(depth);
        }
        let (name, arguments) = self.functions[self.chance.below(self.functions.len())].clone();
        let values: Vec<String> = (0..arguments).map(|_| self.number(2)).collect();
        self.line(depth, &format!("{name}({});", values.join(", ")));
    }

    fn leaving(&mut self, depth: usize) {
        let condition = self.condition();
        let way = match (self.loops > 0, self.chance.below(4)) {
            (true, 0..2) => "break",
            (true, 2) => "continue",
            _ => "return 0",
        };
        self.line(depth, &format!("if ({condition}) {way};"));
    }

    /// What a message brings decides.
    fn received(&mut self, depth: usize) {
        self.fresh += 1;
        let (status, tag) = (format!("st{}", self.fresh), self.chance.below(8));
        self.line(depth, &format!("MPI_Status {status};"));
        self.line(depth, &format!("MPI_Recv(buffer, 8, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &{status});"));
        self.line(depth, &format!("if ({status}.MPI_TAG < {tag}) {{"));
        self.message(depth + 1);
        self.line(depth, "}");
    }

    fn counting(&mut self, depth: usize) {
        let own = self.chance.below(3) > 0;
        self.fresh += 1;
        let name = if own { self.chance.of(&["i", "j", "k"]).to_owned() } else { format!("i{}", self.fresh) };
        let from = self.number(1);
        let (from, rounds) = (format!("({from}) % 4"), self.chance.below(4));
        let head = match self.chance.below(8) {
            0 => format!("{name} = 0; {name} < {rounds}; {name}++"),
            1 => format!("{name} = 1; {name} <= {rounds}; ++{name}"),
            2 => format!("{name} = {from}; {name} < 5; {name} += 2"),
            3 => format!("{name} = {rounds}; {name} > 0; {name}--"),
            4 => format!("{name} = {rounds}; {name} >= 0; {name} -= 2"),
            5 => format!("{name} = 1; {name} < size; {name} *= 2"),
            6 => format!("{name} = 3; {name} != 6; {name}++"),
            _ => format!("{name} = rank & 3; {rounds} > {name}; {name}++"),
        };
        if own {
            self.line(depth, &format!("for (int {head}) {{"));
        } else {
            self.line(depth, &format!("int {name};"));
            self.line(depth, &format!("for ({head}) {{"));
        }
        self.known.push(name.clone());
        self.loops += 1;
        self.block(depth);
        self.loops -= 1;
        self.known.pop();
        self.line(depth, "}");
    }

    fn waiting(&mut self, depth: usize) {
        self.fresh += 1;
        let (name, condition) = (format!("w{}", self.fresh), self.condition());
        self.line(depth, &format!("int {name} = 0;"));
        let ended = self.chance.below(2) == 0;
        let head = match (ended, self.chance.below(2)) {
            (true, _) => "do {".to_owned(),
            (false, 0) => format!("while ({name} < 3) {{"),
            (false, _) => format!("while ({name} < 3 && ({condition})) {{"),
        };
        self.line(depth, &head);
        self.line(depth + 1, &format!("{name}++;"));
        self.known.push(name.clone());
        self.loops += 1;
        self.block(depth);
        self.loops -= 1;
        self.known.pop();
        self.line(depth, &if ended { format!("}} while ({name} < 3);") } else { "}".to_owned() });
    }

    fn endless(&mut self, depth: usize) {
        self.fresh += 1;
        let name = format!("e{}", self.fresh);
        let last = self.number(1);
        self.line(depth, &format!("int {name} = 0;"));
        self.line(depth, "for (;;) {");
        self.line(depth + 1, &format!("if ({name}++ >= (({last}) & 3)) break;").replace("++ >=", " >="));
        self.line(depth + 1, &format!("{name} = {name} + 1;"));
        self.known.push(name);
        self.loops += 1;
        self.block(depth);
        self.loops -= 1;
        self.known.pop();
        self.line(depth, "}");
    }

    /// Until a test says that something is done, or a message that it was the last.
    fn polled(&mut self, depth: usize) {
        self.fresh += 1;
        let number = self.fresh;
        match if self.later { self.chance.below(3) } else { 2 } {
            0 => return self.persistent(depth, number),
            1 => return self.some(depth, number),
            _ => {}
        }
        if self.chance.below(2) == 0 {
            self.line(depth, &format!("int done{number} = 0;"));
            self.line(depth, &format!("MPI_Request r{number};"));
            self.line(depth, &format!("MPI_Irecv(buffer, 9, MPI_INT, 0, 1, MPI_COMM_WORLD, &r{number});"));
            self.line(depth, &format!("while (!done{number}) {{"));
            self.line(depth + 1, &format!("MPI_Test(&r{number}, &done{number}, MPI_STATUS_IGNORE);"));
            if self.chance.below(2) == 0 {
                self.message(depth + 1);
            }
            self.line(depth, "}");
        } else {
            self.line(depth, &format!("MPI_Status last{number};"));
            self.line(depth, "for (;;) {");
            self.line(
                depth + 1,
                &format!("MPI_Recv(buffer, 9, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &last{number});"),
            );
            let tag = self.chance.below(8);
            self.line(depth + 1, &format!("if (last{number}.MPI_TAG == {tag}) break;"));
            self.message(depth + 1);
            self.line(depth, "}");
        }
    }

    /// Requests that are made once and started several times.
    fn persistent(&mut self, depth: usize, number: usize) {
        let (ty, peer, tag) = (self.datatype(), self.chance.below(3), self.chance.below(8));
        let (times, size) = (1 + self.chance.below(4), self.chance.below(50));
        let (r, i) = (format!("p{number}"), format!("i{number}"));
        self.line(depth, &format!("MPI_Request {r}[2];"));
        self.line(depth, &format!("MPI_Send_init(buffer, {size}, {ty}, {peer}, {tag}, MPI_COMM_WORLD, &{r}[0]);"));
        self.line(depth, &format!("MPI_Recv_init(buffer, 9, MPI_INT, {peer}, MPI_ANY_TAG, MPI_COMM_WORLD, &{r}[1]);"));
        self.line(depth, &format!("for (int {i} = 0; {i} < {times}; {i}++) {{"));
        if self.chance.below(2) == 0 {
            self.line(depth + 1, &format!("MPI_Startall(2, {r});"));
        } else {
            self.line(depth + 1, &format!("MPI_Start(&{r}[1]);"));
            self.line(depth + 1, &format!("if ({i} % 2 == 0) MPI_Start({r});"));
        }
        if self.chance.below(2) == 0 {
            self.message(depth + 1);
        }
        self.line(depth + 1, &format!("MPI_Waitall(2, {r}, MPI_STATUSES_IGNORE);"));
        self.line(depth, "}");
        self.line(depth, &format!("MPI_Request_free(&{r}[0]);"));
        self.line(depth, &format!("MPI_Request_free({r} + 1);"));
    }

    /// As many times as it takes until so many are complete.
    fn some(&mut self, depth: usize, number: usize) {
        let (left, wait) = (2 + self.chance.below(5), self.chance.of(&["MPI_Waitsome", "MPI_Testsome"]));
        self.line(depth, &format!("int left{number} = {left}, got{number}, at{number}[4];"));
        self.line(depth, &format!("MPI_Request q{number}[4];"));
        self.line(depth, &format!("while (left{number} > 0) {{"));
        self.line(depth + 1, &format!("{wait}(4, q{number}, &got{number}, at{number}, MPI_STATUSES_IGNORE);"));
        if self.chance.below(2) == 0 {
            self.line(depth + 1, &format!("if (got{number} == 0 || got{number} == MPI_UNDEFINED) continue;"));
        }
        self.line(depth + 1, &format!("left{number} -= got{number};"));
        if self.chance.below(2) == 0 {
            self.message(depth + 1);
        }
        self.line(depth, "}");
    }

    fn atom(&mut self) -> String {
        match self.chance.below(6) {
            0 => self.chance.below(9).to_string(),
            1 => self.chance.of(&["WIDTH", "WIDE", "ROOT", "sizeof(int)", "7u", "300", "-5", "'c'"]).to_owned(),
            2 => "rank".to_owned(),
            3 => "size".to_owned(),
            _ if self.known.is_empty() => "rank".to_owned(),
            _ => self.known[self.chance.below(self.known.len())].clone(),
        }
    }

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.atom();
        }
        let (a, b) = (self.number(depth - 1), self.number(depth - 1));
        let by = 1 + self.chance.below(5);
        match self.chance.below(20) {
            0..3 => format!("({a} + {b})"),
            3..5 => format!("({a} - {b})"),
            5 => format!("({a} * {by})"),
            6 => format!("({a} / {by})"),
            7 => format!("({a} / -{by})"),
            8 => format!("({a} % {by})"),
            9 => format!("(({a} & 31) << {by})"),
            10 => format!("({a} >> {by})"),
            11 => format!("({} ? {a} : {b})", self.condition()),
            12 => format!("({})({a})", self.chance.of(&["char", "unsigned char", "short", "unsigned", "long", "int"])),
            13 => format!("(int)({a} / 2.0)"),
            14 => format!("({a} ^ {b})"),
            15 => format!("({a} < {b})"),
            16 => format!("-{a}").replace("--", "- -"),
            17 => format!("~({a})"),
            _ => a,
        }
    }

    fn condition(&mut self) -> String {
        let (a, b) = (self.atom(), self.atom());
        let small = self.chance.below(4);
        match self.chance.below(7) {
            0 => format!("rank == {small}"),
            1 => format!("rank % 2 == {}", small % 2),
            2 => format!("{a} < {b}"),
            3 => format!("{a} != {small}"),
            4 => format!("rank > 0 && {a} > {small}"),
            5 => format!("!({a} > {b}) || rank == {small}"),
            _ => format!("{a} >= {small}"),
        }
    }
}
