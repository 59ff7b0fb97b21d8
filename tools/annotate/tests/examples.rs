//! Sources small and large, and what the annotator makes of them.

use weir_annotate::{Annotated, Error, Options, annotate};

fn plain(name: &str) -> String {
    let path = format!("{}/../../examples/predict/plain/{name}.c", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("an example")
}

fn timed(name: &str) -> Annotated {
    annotate(&plain(name), &format!("{name}.c"), &Options { timed: true, ..Options::default() }).expect("annotated")
}

/// The directives alone, one a line, attributes joined to their heads.
fn directives(annotated: &Annotated) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in annotated.text().lines() {
        let Some(directive) = line.trim_start().strip_prefix("// PEVPM ") else { continue };
        match (directive.strip_prefix('&'), out.last_mut()) {
            (Some(more), Some(last)) => *last += &format!(" {}", more.trim()),
            _ => out.push(directive.to_owned()),
        }
    }
    out
}

/// A main around statements.
fn of(statements: &str) -> Annotated {
    with(statements, "")
}

fn with(statements: &str, before: &str) -> Annotated {
    let text = format!(
        "#include <mpi.h>\n{before}\nint main(int argc, char **argv) {{\n int rank, size;\n MPI_Init(&argc, &argv);\n \
         MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n MPI_Comm_size(MPI_COMM_WORLD, &size);\n{statements}\n MPI_Finalize();\n}}\n"
    );
    annotate(&text, "t.c", &Options::default()).expect("annotated")
}

fn parameters(annotated: &Annotated) -> Vec<&str> {
    annotated.unknown.iter().filter_map(|u| u.parameter.as_deref()).collect()
}

/// The text without directives and blanks.
fn bare(text: &str) -> String {
    let lines = text.lines().filter(|l| !l.trim_start().starts_with("// PEVPM"));
    lines.flat_map(|l| l.split_whitespace()).collect()
}

#[test]
fn the_source_stays_as_it_is() {
    for name in ["jacobi", "fft", "farm"] {
        assert_eq!(bare(&timed(name).text()), bare(&plain(name)), "{name}");
    }
}

#[test]
fn jacobi_has_the_messages_of_the_hand_annotation() {
    let messages = |text: &str| -> Vec<String> {
        let words = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ");
        let all = text.lines().filter_map(|l| l.trim_start().strip_prefix("// PEVPM ")).map(words);
        all.filter(|l| ["Message", "& size", "& from", "& to", "Loop"].iter().any(|w| l.starts_with(w))).collect()
    };
    let hand = format!("{}/../../examples/predict/jacobi.c", env!("CARGO_MANIFEST_DIR"));
    let hand = messages(&std::fs::read_to_string(hand).expect("an example"));
    assert_eq!(hand.len(), 4 * 8 + 1);
    assert_eq!(messages(&timed("jacobi").text()), hand);
    assert_eq!(parameters(&timed("jacobi")), ["iterations", "columns", "serial_75"]);
}

#[test]
fn the_farm_follows_who_answers_first() {
    let all = directives(&timed("farm"));
    for expected in [
        "Loop iterations = numprocs-1 index = worker_round",
        "Set next = next+1",
        "Runon c1 = next < jobs c2 = else",
        "Message type = MPI_Recv size = 3*sizeof(long) from = ANY to = procnum tag = DEFN stat = main_status",
        "Loop while = !left_134",
        "Runon c1 = main_status_2.MPI_TAG == DIE",
        "Set left_134 = 1",
        "Runon c1 = !left_134",
    ] {
        assert!(all.iter().any(|d| d == expected), "{expected}\n{}", all.join("\n"));
    }
    assert_eq!(all.iter().filter(|d| *d == "Skip").count(), 2);
}

#[test]
fn neighbours_that_may_be_nobody_are_one_expression() {
    let found = of(
        "int left = rank - 1, right = rank + 1; double a[8];\n if (left < 0) left = MPI_PROC_NULL;\n if (right >= size) right = MPI_PROC_NULL;\n \
         MPI_Sendrecv(a, 8, MPI_DOUBLE, right, 1, a, 8, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);",
    );
    assert_eq!(
        directives(&found),
        ["Message type = MPI_Sendrecv size = 8*sizeof(double) to = procnum+1 >= numprocs ? -1 : procnum+1 \
          recvsize = 8*sizeof(double) from = procnum-1 < 0 ? -1 : procnum-1"]
    );
    assert_eq!(parameters(&found), Vec::<&str>::new());
}

#[test]
fn requests_in_arrays_are_told_apart_where_they_can_be() {
    let each =
        of("MPI_Request r[2]; char b[4];\n MPI_Irecv(b, 4, MPI_CHAR, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &r[0]);\n \
         MPI_Isend(b, 4, MPI_CHAR, 0, 3, MPI_COMM_WORLD, r + 1);\n MPI_Waitall(2, r, MPI_STATUSES_IGNORE);");
    let all = directives(&each).join("\n");
    assert!(all.contains("req = r[0]") && all.contains("req = r[1]") && all.contains("req = r[0], r[1]"), "{all}");
    let counted = of(
        "MPI_Request r[2]; int n = 0; char b[4];\n if (rank > 0) MPI_Irecv(b, 4, MPI_CHAR, 0, 3, MPI_COMM_WORLD, &r[n++]);\n \
         MPI_Waitall(n, r, MPI_STATUSES_IGNORE);",
    );
    let all = directives(&counted).join("\n");
    assert!(all.contains("req = r\n") && all.ends_with("req = r") && !all.contains('['), "{all}");
}

#[test]
fn functions_keep_their_directives_and_are_told_their_arguments() {
    let found = with(
        "int peer; peer = size - 1 - rank;\n for (int i = 0; i < 10; i++) exchange(peer, i);",
        "static void exchange(int whom, int tag) { char c; MPI_Send(&c, 1, MPI_CHAR, whom, tag, MPI_COMM_WORLD); }",
    );
    assert_eq!(
        directives(&found),
        [
            "Message type = MPI_Send size = 1 from = procnum to = exchange_whom tag = exchange_tag",
            "Loop iterations = 10 index = i",
            "{",
            "Set exchange_whom = numprocs-1-procnum",
            "Set exchange_tag = i",
            "}"
        ]
    );
}

#[test]
fn recursion_among_functions_that_communicate_is_refused_with_the_chain() {
    let text = "void b(int n);\nvoid a(int n) { MPI_Barrier(MPI_COMM_WORLD); b(n); }\nvoid b(int n) { if (n) a(n - 1); }\nint main() { a(3); }\n";
    let error = annotate(text, "t.c", &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.c:3: a communicates and calls itself (a -> b -> a); a model has no recursion: make it a loop"
    );
}

#[test]
fn what_decides_a_branch_at_run_time_becomes_a_chance() {
    let found = of("if (tired()) MPI_Barrier(MPI_COMM_WORLD); else MPI_Bcast(argv, 4, MPI_INT, 0, MPI_COMM_WORLD);");
    let all = directives(&found);
    assert_eq!(all[0], "Condition c1 = chance_8 c2 = 1-chance_8");
    assert_eq!(all.iter().filter(|d| *d == "}").count(), 2);
    assert_eq!(parameters(&found), ["chance_8"]);
    assert!(found.unknown.iter().any(|u| u.why.contains("how often (tired()) holds")), "{:?}", found.unknown);
    assert!(found.unknown.iter().any(|u| u.why.starts_with("tired is not in this file")), "{:?}", found.unknown);
}

#[test]
fn loops_without_a_count_are_asked_for() {
    let found = of(
        "double err = 1; while (err > 1e-6) { err = relax(); MPI_Allreduce(&err, &err, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); }",
    );
    assert_eq!(directives(&found)[0], "Loop iterations = iterations_8");
    let polled = of("MPI_Request r; int done = 0; char c;\n MPI_Irecv(&c, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &r);\n \
         while (!done) { MPI_Test(&r, &done, MPI_STATUS_IGNORE); }");
    let all = directives(&polled);
    assert!(
        all.contains(&"Loop while = !done".to_owned())
            && all.contains(&"Message type = MPI_Test req = r bind done = flag".to_owned()),
        "{all:?}"
    );
}

#[test]
fn defines_defaults_and_what_no_directive_can_say() {
    let found = with(
        "int n = 100; if (argc > 1) n = atoi(argv[1]);\n MPI_Bcast(argv, n * WIDTH, MPI_INT, ROOT, MPI_COMM_WORLD);\n MPI_Put(argv, 1, MPI_INT, 0, 0, 1, MPI_INT, 0);",
        "#define WIDTH (4 * 2)\nenum { ROOT = 1 };",
    );
    assert_eq!(
        directives(&found),
        ["Parameter n = 100", "Message type = MPI_Bcast size = n*WIDTH*sizeof(int) root = ROOT", "Skip"]
    );
    assert!(found.unknown.iter().any(|u| u.why.contains("no directive can say MPI_Put")));
}

#[test]
fn a_segment_begins_with_what_takes_time() {
    let found =
        of("int x = 3;\n x = 4;\n for (int i = 0; i < 9; i++) work(i);\n x = 5;\n MPI_Barrier(MPI_COMM_WORLD);");
    assert_eq!(directives(&found), ["Serial time = parameter serial_10", "Message type = MPI_Barrier"]);
}

#[test]
fn statements_on_one_line_get_lines_of_their_own() {
    let found = of("if (rank == 0) MPI_Barrier(MPI_COMM_WORLD); else MPI_Barrier(MPI_COMM_WORLD); int z;");
    let expected = [
        "Runon c1 = procnum == 0 c2 = else",
        "{",
        "Message type = MPI_Barrier",
        "}",
        "{",
        "Message type = MPI_Barrier",
        "}",
    ];
    assert_eq!(directives(&found), expected);
    assert!(found.text().contains("else"));
}

#[test]
fn what_has_no_model_says_so() {
    let of = |text: &str| annotate(text, "t.c", &Options::default()).unwrap_err();
    assert!(matches!(of("int x;"), Error::NoFunction { .. }));
    assert!(matches!(of("int main() { return 0; }"), Error::Nothing { .. }));
    // What hides the calls is named at once.
    let hidden =
        of("#define SEND(p) MPI_Send(x, 1, MPI_INT, p, 0, MPI_COMM_WORLD)\nint main() {\nSEND(1);\n}").to_string();
    assert!(hidden.contains("; line 3: SEND is a macro (line 1) that calls MPI_Send"), "{hidden}");
    assert!(matches!(of("// PEVPM Serial time = 1\nint main() { MPI_Barrier(0); }"), Error::Annotated { line: 1, .. }));
    let timed = Options { timed: true, ..Options::default() };
    assert!(matches!(annotate("int main() { MPI_Barrier(0); }", "t.c", &timed), Err(Error::Usage(_))));
    let deep = format!("int main() {{ {} MPI_Barrier(0); {} }}", "{".repeat(5000), "}".repeat(5000));
    assert!(matches!(of(&deep), Error::TooDeep { .. }));
}

/// What is told that has no parameter, with its line.
fn notes(annotated: &Annotated) -> Vec<String> {
    annotated.unknown.iter().filter(|u| u.parameter.is_none()).map(ToString::to_string).collect()
}

#[test]
fn an_index_has_the_value_that_the_program_gives_it() {
    let found = with(
        "for (int i = 1; i <= 3; i++) { char c; exchange(i); MPI_Send(&c, i, MPI_CHAR, 8 - 2 * i, 0, MPI_COMM_WORLD); }",
        "static void exchange(int whom) { char c; MPI_Send(&c, 1, MPI_CHAR, whom, 0, MPI_COMM_WORLD); }",
    );
    let all = directives(&found);
    for expected in [
        "Loop iterations = 3 index = i_round",
        "Set exchange_whom = i_round+1",
        "Message type = MPI_Send size = i_round+1 from = procnum to = 8-2*(i_round+1)",
    ] {
        assert!(all.iter().any(|d| d == expected), "{expected}\n{}", all.join("\n"));
    }
}

#[test]
fn what_a_process_leaves_it_does_not_go_on_with() {
    let found = of("if (rank > 2) { MPI_Finalize(); return 0; }\n MPI_Barrier(MPI_COMM_WORLD);");
    assert_eq!(
        directives(&found),
        [
            "Set gone_main = 0",
            "Runon c1 = procnum > 2",
            "{",
            "Set gone_main = 1",
            "}",
            "Runon c1 = !gone_main",
            "{",
            "Message type = MPI_Barrier",
            "}"
        ]
    );
    // Where it is not known who leaves, it is said; a program that fails is no model.
    let unknown = of(
        "if (tired()) return 0;\n if (!buffer()) return 1;\n if (!buffer()) MPI_Abort(MPI_COMM_WORLD, 2);\n MPI_Barrier(MPI_COMM_WORLD);",
    );
    let told = notes(&unknown);
    assert!(told.iter().any(|n| n == "8: return 0;: the model goes on as if it were not there"), "{told:?}");
    assert!(!told.iter().any(|n| n.contains("return 1") || n.contains("Abort")), "{told:?}");
    let ended = of("if (rank == 3) MPI_Abort(MPI_COMM_WORLD, 2);\n MPI_Barrier(MPI_COMM_WORLD);");
    assert!(notes(&ended)[0].contains("MPI_Abort(MPI_COMM_WORLD, 2) ends the program here"), "{:?}", notes(&ended));
}

#[test]
fn communication_that_cannot_be_seen_is_told_with_its_line() {
    let before = "#include \"halo.h\"\n#define SEND(x) MPI_Send(&(x), 1, MPI_INT, 0, 0, MPI_COMM_WORLD)\n#define STEP MPI_Barrier(MPI_COMM_WORLD)\n\
                  void exchange(void) { MPI_Barrier(MPI_COMM_WORLD); }\nvoid (*way)(void) = 0;\nvoid apply(void (*f)(void)) { f(); }";
    let found = with(
        "SEND(rank);\n STEP;\n (*way)();\n way();\n apply(exchange);\n relax(3);\n MPI_Barrier(MPI_COMM_WORLD);",
        before,
    );
    let told = notes(&found);
    for (line, expected) in [
        (2, "\"halo.h\" is not read"),
        (13, "SEND is a macro (line 3) that calls MPI_Send"),
        (14, "STEP is a macro (line 4) that calls MPI_Barrier"),
        (15, "called by a pointer"),
        (16, "way is called by a pointer"),
        (17, "exchange is handed on"),
        (18, "relax is not in this file"),
    ] {
        assert!(
            told.iter().any(|n| n.starts_with(&format!("{line}: ")) && n.contains(expected)),
            "{expected}\n{told:#?}"
        );
    }
}

#[test]
fn what_pointers_may_write_is_no_constant() {
    let send = "MPI_Send(argv, n, MPI_INT, 0, 0, MPI_COMM_WORLD);";
    for (statements, why) in [
        ("int n = 5; int *p = &n; *p = 7;", "line 8 changes it"),
        ("int n = 5; configure(&n);", "line 8 changes it"),
        ("int a[2] = {1, 2}; int n = a[1];", "an element of an array"),
        ("struct grid g = {3}; int n = g.columns;", "line 8 sets g"),
        ("struct grid g; g.columns = 4; configure(&g); int n = g.columns;", "line 8 changes it"),
        ("struct grid *g = all(); int n = g->columns;", "reached by a pointer"),
        ("volatile int n = 5; n = 6;", "line 8 changes it"),
    ] {
        let found = with(&format!("{statements}\n{send}"), "struct grid { int columns; };");
        let asked = found.unknown.iter().filter(|u| u.parameter.as_ref().is_some_and(|p| !p.starts_with("serial")));
        let asked: Vec<String> = asked.map(ToString::to_string).collect();
        assert_eq!(asked.len(), 1, "{statements}: {asked:?} {:?}", directives(&found));
        assert!(asked[0].contains(why), "{statements}: {asked:?}");
    }
}

#[test]
fn numbers_are_those_of_their_types() {
    let size = |expression: &str| {
        let found = of(&format!("MPI_Bcast(argv, {expression}, MPI_BYTE, 0, MPI_COMM_WORLD);"));
        directives(&found)[0].split("size = ").nth(1).unwrap_or("").split(" root").next().unwrap_or("").to_owned()
    };
    for (expression, expected) in [
        ("(char)300", "44"),
        ("(unsigned char)-1", "255"),
        ("(int)(rank / 2.0)", "(int)((double)procnum/2.0)"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("(0u - 1) / 2", "2147483647"),
        ("(unsigned)(rank - 1) > 5u", "(unsigned)(procnum-1) > 5"),
        ("(int)2.9 + 1", "(int)2.9+1"),
        ("(rank - 4) / sizeof(int)", "(unsigned long)(procnum-4)/sizeof(int)"),
        ("1 << 4", "1<<4"),
    ] {
        assert_eq!(size(expression), expected, "{expression}");
    }
    let arrays = "char item[4096]; double field[N][3]; int more[] = {1, 2}; char *at = item;";
    for (of_what, expected) in
        [("sizeof item", "4096*sizeof(char)"), ("sizeof(field) / sizeof(double)", "30*sizeof(double)/sizeof(double)")]
    {
        let found = with(&format!("{arrays} MPI_Bcast(argv, {of_what}, MPI_BYTE, 0, MPI_COMM_WORLD);"), "#define N 10");
        assert!(directives(&found)[0].contains(&format!("size = {expected} root")), "{:?}", directives(&found));
    }
    for of_what in ["sizeof more", "sizeof at", "sizeof argv"] {
        let found = with(&format!("{arrays} MPI_Bcast(argv, {of_what}, MPI_BYTE, 0, MPI_COMM_WORLD);"), "");
        assert!(parameters(&found).iter().any(|name| name.starts_with("size_count")), "{of_what}");
    }
    let torn = with("MPI_Bcast(argv, 2 * SUM, MPI_BYTE, 0, MPI_COMM_WORLD);", "#define SUM 1 + 2");
    assert!(torn.unknown.iter().any(|u| u.why.contains("SUM is a macro without brackets")), "{:?}", torn.unknown);
}

#[test]
fn chains_of_definitions_stay_short() {
    let chain: String = (1..200).map(|i| format!("int v{i} = v{0} + v{0};\n", i - 1)).collect();
    let found = of(&format!("int v0 = rank;\n{chain} MPI_Bcast(argv, v199, MPI_INT, 0, MPI_COMM_WORLD);"));
    let all = directives(&found);
    assert_eq!(parameters(&found), Vec::<&str>::new());
    assert!(all.len() < 210 && all.iter().all(|d| d.len() < 200), "{}", all.join("\n"));
}

#[test]
fn calls_that_some_ways_through_an_expression_make_are_made_there() {
    let barrier = "MPI_Barrier(MPI_COMM_WORLD)";
    for (statement, condition) in [
        (format!("rank == 0 && {barrier};"), "procnum == 0"),
        (format!("rank == 0 || {barrier};"), "procnum != 0"),
        (format!("int rc = rank > 1 ? {barrier} : 0;"), "procnum > 1"),
        (format!("(rank > 1 && rank < 4) ? 0 : {barrier};"), "!(procnum > 1 && procnum < 4)"),
    ] {
        let expected = [format!("Runon c1 = {condition}"), "{".into(), "Message type = MPI_Barrier".into(), "}".into()];
        assert_eq!(directives(&of(&statement)), expected, "{statement}");
    }
    // Arguments come before the call that they are for.
    let nested = with(
        "char c; MPI_Send(&c, all(), MPI_CHAR, 0, 3, MPI_COMM_WORLD);",
        "static int all(void) { char c; MPI_Recv(&c, 1, MPI_CHAR, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE); return 1; }",
    );
    let text = nested.text();
    assert!(
        text.find("all()").expect("the call") < text.rfind("Message type = MPI_Send").expect("the message"),
        "{text}"
    );
}
