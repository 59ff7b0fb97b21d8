//! The table of calls in `docs/annotate.md` is what the annotator does.

use std::collections::BTreeMap;

use weir_annotate::{Options, annotate};
use weir_annotations::{Source, parse};

/// Calls between two processes and collectives of MPI 1.3, but for those that a program cannot meet
/// in C.
const MPI_1: [&str; 51] = [
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Allreduce",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Bsend",
    "MPI_Bsend_init",
    "MPI_Buffer_attach",
    "MPI_Buffer_detach",
    "MPI_Cancel",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Get_count",
    "MPI_Ibsend",
    "MPI_Iprobe",
    "MPI_Irecv",
    "MPI_Irsend",
    "MPI_Isend",
    "MPI_Issend",
    "MPI_Op_create",
    "MPI_Probe",
    "MPI_Recv",
    "MPI_Recv_init",
    "MPI_Reduce",
    "MPI_Reduce_scatter",
    "MPI_Request_free",
    "MPI_Rsend",
    "MPI_Rsend_init",
    "MPI_Scan",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Send",
    "MPI_Send_init",
    "MPI_Sendrecv",
    "MPI_Sendrecv_replace",
    "MPI_Ssend",
    "MPI_Ssend_init",
    "MPI_Start",
    "MPI_Startall",
    "MPI_Test",
    "MPI_Test_cancelled",
    "MPI_Testall",
    "MPI_Testany",
    "MPI_Testsome",
    "MPI_Wait",
    "MPI_Waitall",
    "MPI_Waitany",
    "MPI_Waitsome",
    "MPI_Pack",
];

/// The table: each call with its answer.
fn table() -> BTreeMap<String, String> {
    let path = format!("{}/../../docs/annotate.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the document");
    let part = text.split("## Calls of MPI").nth(1).expect("the part on calls");
    let mut out = BTreeMap::new();
    for line in part.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        for call in cells[0].split(',') {
            let name = call.trim().trim_matches('`').to_owned();
            assert!(out.insert(name.clone(), cells[1].trim().to_owned()).is_none(), "{name} stands twice");
        }
    }
    out
}

/// Arguments that fit: names of the binding's parameters are enough for the annotator to look at.
fn arguments(name: &str) -> &'static str {
    match name.trim_start_matches("MPI_") {
        "Sendrecv" => "b, 4, MPI_INT, 1, 0, b, 4, MPI_INT, 1, 0, MPI_COMM_WORLD, &st",
        "Sendrecv_replace" => "b, 4, MPI_INT, 1, 0, 1, 0, MPI_COMM_WORLD, &st",
        "Probe" => "1, 0, MPI_COMM_WORLD, &st",
        "Iprobe" => "1, 0, MPI_COMM_WORLD, &flag, &st",
        "Wait" => "&r, &st",
        "Test" => "&r, &flag, &st",
        "Waitall" => "2, rs, sts",
        "Waitany" => "2, rs, &index, &st",
        "Testall" => "2, rs, &flag, sts",
        "Testany" => "2, rs, &index, &flag, &st",
        "Waitsome" | "Testsome" => "2, rs, &index, ns, sts",
        "Start" | "Request_free" => "&r",
        "Startall" => "2, rs",
        "Barrier" => "MPI_COMM_WORLD",
        "Ibarrier" => "MPI_COMM_WORLD, &r",
        "Bcast" => "b, 4, MPI_INT, 0, MPI_COMM_WORLD",
        "Ibcast" => "b, 4, MPI_INT, 0, MPI_COMM_WORLD, &r",
        "Reduce" => "b, c, 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD",
        "Ireduce" => "b, c, 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &r",
        "Allreduce" | "Scan" | "Exscan" => "b, c, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD",
        "Iallreduce" | "Iscan" | "Iexscan" => "b, c, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r",
        "Gather" | "Scatter" => "b, 4, MPI_INT, c, 4, MPI_INT, 0, MPI_COMM_WORLD",
        "Igather" | "Iscatter" => "b, 4, MPI_INT, c, 4, MPI_INT, 0, MPI_COMM_WORLD, &r",
        "Allgather" | "Alltoall" => "b, 4, MPI_INT, c, 4, MPI_INT, MPI_COMM_WORLD",
        "Iallgather" | "Ialltoall" => "b, 4, MPI_INT, c, 4, MPI_INT, MPI_COMM_WORLD, &r",
        "Gatherv" => "b, 4, MPI_INT, c, ns, ds, MPI_INT, 0, MPI_COMM_WORLD",
        "Scatterv" => "b, ns, ds, MPI_INT, c, 4, MPI_INT, 0, MPI_COMM_WORLD",
        "Allgatherv" => "b, 4, MPI_INT, c, ns, ds, MPI_INT, MPI_COMM_WORLD",
        "Alltoallv" => "b, ns, ds, MPI_INT, c, ns, ds, MPI_INT, MPI_COMM_WORLD",
        "Reduce_scatter" => "b, c, ns, MPI_INT, MPI_SUM, MPI_COMM_WORLD",
        "Isend" | "Issend" | "Ibsend" | "Irsend" | "Irecv" | "Send_init" | "Ssend_init" | "Bsend_init"
        | "Rsend_init" | "Recv_init" => "b, 4, MPI_INT, 1, 0, MPI_COMM_WORLD, &r",
        "Recv" => "b, 4, MPI_INT, 1, 0, MPI_COMM_WORLD, &st",
        "Send" | "Ssend" | "Bsend" | "Rsend" => "b, 4, MPI_INT, 1, 0, MPI_COMM_WORLD",
        _ => "b, 4, MPI_INT",
    }
}

/// What the annotator does with a call, in the words of the table.
fn answer(name: &str) -> String {
    let call = format!("{name}({})", arguments(name));
    let text = format!(
        "int main(void) {{\n MPI_Request r, rs[2]; MPI_Status st, sts[2]; int flag, index, b[4], c[4], ns[4], ds[4];\n {call};\n \
         MPI_Barrier(MPI_COMM_WORLD);\n}}\n"
    );
    let found = annotate(&text, "t.c", &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let annotated = found.text();
    // The language takes what the annotator writes, without a word.
    let parsed = parse(&[Source { name: "t.c", text: &annotated }]);
    let parsed = parsed.unwrap_or_else(|faults| panic!("{name}: {faults:?}\n{annotated}"));
    let said: Vec<_> = parsed.warnings.iter().filter(|w| w.code != "skipped").collect();
    assert!(said.is_empty(), "{name}: {said:?}\n{annotated}");
    let said = annotated.contains(&format!("Message type = {name}\n"));
    let told = found.unknown.iter().find(|u| u.line == 3);
    match (said, told) {
        (true, None) => "followed",
        (true, Some(unknown)) if unknown.parameter.is_some() => "asked",
        (false, Some(unknown)) if unknown.why.contains(name) => "told",
        (false, None) => "nothing travels",
        other => panic!("{name}: {other:?}\n{annotated}"),
    }
    .to_owned()
}

#[test]
fn each_call_has_the_answer_of_the_table() {
    let table = table();
    let missing: Vec<&&str> = MPI_1.iter().filter(|name| !table.contains_key(**name)).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    for (name, expected) in &table {
        assert_eq!(answer(name), *expected, "{name}");
    }
}

/// Among one process nothing travels; taken for the world's it would be a wait for all.
#[test]
fn a_collective_of_a_process_with_itself_is_left_out() {
    let text = "int main(void) {\n int b[4];\n MPI_Bcast(b, 4, MPI_INT, 0, MPI_COMM_SELF);\n MPI_Barrier(MPI_COMM_WORLD);\n}\n";
    let annotated = annotate(text, "t.c", &Options::default()).expect("followed").text();
    assert!(annotated.contains("Skip") && !annotated.contains("type = MPI_Bcast"), "{annotated}");
    assert!(annotated.contains("type = MPI_Barrier"), "{annotated}");
}
