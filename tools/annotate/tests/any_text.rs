//! Whatever the text: no panic, the source stays, brackets pair.

use proptest::prelude::*;
use weir_annotate::{Options, annotate};

const PIECES: [&str; 46] = [
    "int main(int argc, char **argv) {",
    "}",
    "{",
    "(",
    ")",
    ";",
    "if (rank == 0)",
    "else",
    "for (int i = 0; i < n; i++)",
    "for (;;)",
    "while (!flag)",
    "do",
    "while (x);",
    "break;",
    "continue;",
    "return 0;",
    "MPI_Send(b, 4, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);",
    "MPI_Recv(b, n, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);",
    "MPI_Irecv(b, n, t, i, 0, c, &r[i]);",
    "MPI_Waitall(2, r, s);",
    "MPI_Test(&r, &flag, &st);",
    "MPI_Comm_rank(MPI_COMM_WORLD, &rank);",
    "MPI_Barrier(MPI_COMM_WORLD);",
    "MPI_Bcast(",
    "MPI_Sendrecv();",
    "MPI_Put(x);",
    "int n = 10, m = n * n;",
    "n = n + 1;",
    "n++;",
    "i = i;",
    "int rank, size;",
    "f(n, &x);",
    "void f(int a, int *b) {",
    "#define N (4 + N)\n",
    "#define M f(\n",
    "#if X\n",
    "#endif\n",
    "\n",
    "// word\n",
    "/* é */",
    "\"str\"",
    "switch (x) { case 1:",
    "x ? y : z",
    "MPI_Wtime();",
    "st.MPI_TAG",
    "\r\n",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![8 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned), 1 => "\\PC{0,6}"];
    let pieces = prop::collection::vec(piece, 0..60);
    (pieces, any::<bool>()).prop_map(|(all, main)| {
        let lead = if main { "int main(void) { MPI_Barrier(MPI_COMM_WORLD); " } else { "" };
        format!("{lead}{}", all.join(" "))
    })
}

fn bare(text: &str) -> String {
    let lines = text.split('\n').filter(|l| !l.trim_start().starts_with("// PEVPM"));
    lines.flat_map(|l| l.split_whitespace()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_text_is_annotated_or_refused(text in text(), timed in any::<bool>()) {
        if let Ok(found) = annotate(&text, "t.c", &Options { timed, ..Options::default() }) {
            let out = found.text();
            prop_assert_eq!(bare(&out), bare(&text));
            let directives: Vec<&str> = out.lines().filter_map(|l| l.trim_start().strip_prefix("// PEVPM ")).collect();
            let mut open = 0i64;
            for directive in directives {
                open += match directive { "{" => 1, "}" => -1, _ => 0 };
                prop_assert!(open >= 0);
            }
            prop_assert_eq!(open, 0);
            let _ = weir_annotate::measure::instrumented(&text, &found.segments, "t.c");
        }
    }
}
