//! Whatever stands in a file, it is read or refused; expressions have the values that C gives them.

mod common;

use common::{model, read, walk};
use proptest::prelude::*;
use weir_annotations::Setting;

/// Words from which almost-models are made.
const WORDS: [&str; 64] = [
    "// PEVPM ",
    "\n",
    "\n",
    "\n// PEVPM ",
    "\n// PEVPM & ",
    "{",
    "}",
    "Loop ",
    "iterations = ",
    "while = ",
    "index = i ",
    "Runon ",
    "c1 = ",
    "c2 = ",
    "Condition ",
    "Serial ",
    "on a ",
    "time = ",
    "normal(1, 2)",
    "Message ",
    "type = MPI_Send ",
    "type = MPI_Recv ",
    "type = MPI_Isend ",
    "type = MPI_Wait ",
    "type = MPI_Bcast ",
    "type = MPI_Alltoall ",
    "size = ",
    "from = ",
    "to = ",
    "tag = ANY ",
    "req = r ",
    "bind = tag, x ",
    "carry = x ",
    "root = 0 ",
    "3 ",
    "procnum ",
    "numprocs ",
    "- 1 ",
    "+ ",
    "* ",
    "/ ",
    "% ",
    "== ",
    "(",
    ")",
    "..",
    ", ",
    "x ",
    "job.n ",
    "sizeof(double) ",
    "parameter p ",
    "ms ",
    "Set x = ",
    "Take job\n",
    "Stream job = \"f\"\n",
    "void f(int x) {",
    "f(3);",
    "MPI_Send(a, b);",
    "int x = 3;",
    "#define x y\n",
    "for (;;) ",
    "/* ",
    "*/ ",
    "Call f(1)\n",
];

fn survives(text: &str) {
    let Ok(parsed) = read(text) else { return };
    for numprocs in [1, 3] {
        let setting = Setting { numprocs, ..Setting::default() };
        let Ok(prepared) = parsed.program.model(&setting) else { continue };
        for op in &prepared.model.ops {
            // Every target exists, and only the end of a loop leads back.
            use weir_annotations::OpKind::{Choose, Jump, JumpUnless, LoopBegin};
            let targets = match &op.kind {
                Jump(to) | JumpUnless(_, to) => vec![*to],
                Choose(branches) => branches.iter().map(|(_, to)| *to).collect(),
                LoopBegin(l) => vec![l.exit],
                _ => vec![],
            };
            assert!(targets.iter().all(|to| (*to as usize) < prepared.model.ops.len()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        survives(&text);
        survives(&format!("// PEVPM {text}"));
    }

    #[test]
    fn any_words_of_the_language_are_read_or_refused(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60)) {
        survives(&words.concat());
        survives(&format!("// PEVPM {}", words.concat()));
    }

    #[test]
    fn sums_products_and_brackets_have_their_values(shape in expression()) {
        let (text, value) = shape;
        let model = model(&format!("Message type = MPI_Recv from = 0 size = {text}"), 2, &[], None);
        prop_assert_eq!(walk(&model, 0, 10), [format!("recv {value} from 0")]);
    }

    #[test]
    fn a_list_of_ranks_holds_for_those_in_it(items in prop::collection::vec((0_u32..20, 0_u32..5), 2..8)) {
        let list: Vec<String> = items.iter().map(|(low, n)| format!("{low}..{}", low + n)).collect();
        let text = format!("Runon c1 = {}\n{{\nSerial time = 1\n}}", list.join(","));
        let model = model(&text, 32, &[], None);
        for rank in 0..32 {
            let inside = items.iter().any(|(low, n)| (*low..=low + n).contains(&rank));
            prop_assert_eq!(walk(&model, rank, 10).len(), usize::from(inside));
        }
    }
}

/// Text with C's precedence, few brackets, and its value.
fn expression() -> impl Strategy<Value = (String, i64)> {
    let leaf = (0_i64..100).prop_map(|n| (n.to_string(), n));
    leaf.prop_recursive(4, 24, 2, |inner| {
        (inner.clone(), inner, 0..3).prop_map(|((a, x), (b, y), op)| match op {
            // A negative sum stands in brackets so that it stays one operand.
            0 => (format!("({a} + {b})"), x.saturating_add(y)),
            1 => (format!("({a} - {b})"), x.saturating_sub(y)),
            _ => (format!("{a} * {b}"), x.saturating_mul(y)),
        })
    })
    .prop_filter("sizes are not negative, and no overflow", |(_, value)| (0..1 << 40).contains(value))
}

/// Lines without sense, and functions without statements, take neither memory nor time without end.
#[test]
fn what_is_out_of_all_size_is_refused_early() {
    let told = |text: &str| {
        let found = read(text).map(|_| ()).unwrap_err();
        assert!(found.len() < 1100, "{} are told", found.len());
        assert!(found.iter().any(|d| d.code == "too-large"), "{:?}", found.first());
    };
    told(&"x\n".repeat(8 << 20));
    told(&"x ".repeat(8 << 20));
    told(&"// PEVPM Serial time = 1\n".repeat(250_000));
    told(&format!("// PEVPM Serial time = 1\n{}", "int x;\n".repeat(2 << 20)));
    // 2^60 calls that come to nothing.
    let mut nested = String::from("Subroutine f0 {\n}\n");
    for n in 1..60 {
        nested.push_str(&format!("Subroutine f{n} {{\nCall f{}\nCall f{}\n}}\n", n - 1, n - 1));
    }
    told(&format!("{nested}Call f59\n"));
}

#[test]
fn units_stand_beside_numbers_and_marks_of_byte_order_before_all() {
    let plain = "Serial time = 5 us\nSerial time = 1.5 ms\nMessage type = MPI_Send size = 64 KiB to = 1\n";
    let joined = "\u{feff}Serial time = 5us\nSerial time = 1.5ms\nMessage type = MPI_Send size = 64KiB to = 1\n";
    let times = |text: &str| {
        let ops = model(text, 2, &[], None).ops;
        ops.iter()
            .map(|op| format!("{:?}", op.kind))
            .map(|kind| kind.split("Place").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(times(plain), times(joined));
}
