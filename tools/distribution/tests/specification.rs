//! The examples of the specification are runs.

use std::fs;
use std::path::Path;

use weir_distribution::*;

/// The fenced JSON blocks of the specification that are whole runs.
fn examples() -> Vec<String> {
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/distribution-format.md");
    let text = fs::read_to_string(spec).unwrap();
    let blocks = text.split("```json\n").skip(1).map(|b| b.split("```").next().unwrap().to_owned());
    blocks.filter(|b| b.contains("\"format\"")).collect()
}

#[test]
fn every_example_is_a_run_without_unknown_fields() {
    let examples = examples();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let (run, unknown) = parse_run(Path::new("example"), example.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(!run.cells.is_empty());
    }
}

#[test]
fn the_hypothetical_machine_can_be_read_exported_and_gone_on_with() {
    let example = examples().into_iter().find(|e| e.contains("hypothetical")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("run.json"), example).unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    assert!(reader.run().cells.iter().all(|c| c.samples.is_none()));
    assert!(reader.read_samples(&reader.run().cells[0]).unwrap().is_empty());
    let out = dir.path().join("out");
    let made = export::classic::write(&reader, &out, &export::classic::Options::default()).unwrap();
    assert!(!made.is_empty());
    export::csv::write(&reader, &out, export::csv::Layout::Flat, export::csv::Packing::Plain).unwrap();
    let cells = reader.run().cells.len();
    let mut writer = Writer::append(dir.path()).unwrap();
    let more = writer.run().cells[0].clone();
    writer.write_record(more).unwrap();
    assert_eq!(Reader::open(dir.path()).unwrap().run().cells.len(), cells + 1);
}

#[test]
fn a_machine_made_twice_as_slow_by_hand_is_read_so() {
    let example = examples().into_iter().find(|e| e.contains("hypothetical")).unwrap();
    assert!(example.contains("\"location_ns\": 900"));
    let slower = example.replace("\"location_ns\": 900", "\"location_ns\": 1800");
    let (run, _) = parse_run(Path::new("example"), slower.as_bytes()).unwrap();
    let fit = run.cells.iter().find_map(Cell::chosen_fit).unwrap();
    assert_eq!(fit.location_ns, 1800.0);
}
