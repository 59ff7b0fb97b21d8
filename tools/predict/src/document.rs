//! The JSON document (`--json`), described in `spec/prediction.md` 12. It is whole whatever
//! happens: what is not predicted has an `error` in place of its numbers.

use serde_json::{Map, Value, json};
use weir_annotations::{Diagnostic, Place};

use crate::error::Reason;
use crate::show;
use crate::sweep::{Prediction, Row};

/// All of it: a row for each process count, and what should be known about all of them. `failed`:
/// what went wrong behind them.
pub fn document(rows: &[Row], notices: &[String], files: &[String], failed: Option<Value>) -> Value {
    let one = |row: &Row| match row {
        Ok(prediction) => predicted(prediction, files),
        Err(not) => json!({ "numprocs": not.numprocs, "error": error(not.reason, &not.found, files) }),
    };
    let mut out = json!({ "predictions": rows.iter().map(one).collect::<Vec<_>>(), "notices": notices });
    if let Some((map, failed)) = out.as_object_mut().zip(failed) {
        map.insert("error".to_owned(), failed);
    }
    out
}

/// The document of a command that came to no process count.
pub fn without_predictions(error: Value) -> Value {
    json!({ "predictions": [], "notices": [], "error": error })
}

/// The `error` of a command that failed before it knew lines of the source.
pub fn plain_error(kind: &str, exit_code: u8, message: &str) -> Value {
    json!({ "kind": kind, "exit_code": exit_code, "message": message, "diagnostics": [] })
}

/// An `error` with its lines.
pub fn error(reason: Reason, found: &[Diagnostic], files: &[String]) -> Value {
    let message = found.first().map_or("", |first| first.message.as_str());
    let all: Vec<Value> = found.iter().map(|one| diagnostic(one, files)).collect();
    json!({ "kind": reason.name(), "exit_code": reason.code(), "message": message, "diagnostics": all })
}

fn predicted(prediction: &Prediction, files: &[String]) -> Value {
    let loss: Map<String, Value> =
        prediction.losses().into_iter().map(|(c, s)| (c.name().to_owned(), json!(s))).collect();
    let summary = &prediction.summary;
    let mut out = json!({
        "numprocs": prediction.numprocs,
        "median_s": summary.median_s,
        "low_s": summary.band_s.0,
        "high_s": summary.band_s.1,
        "p95_s": summary.p95_s,
        "loss": loss,
    });
    let Some(map) = out.as_object_mut() else { return out };
    if !prediction.changed.is_empty() {
        let changed: Map<String, Value> = prediction.changed.iter().map(|(c, s)| (c.to_string(), json!(s))).collect();
        map.insert("what_if_median_s".to_owned(), Value::Object(changed));
    }
    map.insert("notices".to_owned(), json!(prediction.notices(files)));
    out
}

fn diagnostic(one: &Diagnostic, files: &[String]) -> Value {
    let mut out = placed(one.place, &one.message, files);
    let also: Vec<Value> = one.also.iter().map(|(place, said)| placed(*place, said, files)).collect();
    if let Some(map) = out.as_object_mut() {
        map.insert("code".to_owned(), json!(one.code));
        map.insert("help".to_owned(), json!(one.help));
        map.insert("also".to_owned(), Value::Array(also));
    }
    out
}

/// A message and where: without a line where there is none.
fn placed(place: Place, message: &str, files: &[String]) -> Value {
    let file = files.get(place.file as usize).filter(|_| place.line > 0);
    json!({
        "message": message,
        "file": file,
        "line": (place.line > 0).then_some(place.line),
        "column": (place.line > 0).then_some(place.column),
    })
}

/// A warning as a line.
pub fn warning(one: &Diagnostic, files: &[String]) -> String {
    if one.place.line == 0 { one.message.clone() } else { format!("{}: {}", show::at(one.place, files), one.message) }
}
