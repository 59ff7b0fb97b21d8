//! The page of `weir bsp report`.

use weir_report::page::{Extra, document_with, figure};
use weir_report::svg::escape;
use weir_report::units;

use crate::ledger::Profile;
use crate::plots;
use crate::report_text::{EXPLANATION, counters};
use crate::summary::{Row, Summary};

/// The page of these runs.
#[must_use]
pub fn html(runs: &[(Profile, Summary)]) -> String {
    let names: Vec<&str> = runs.iter().map(|(profile, _)| profile.name.as_str()).collect();
    let title = format!("Supersteps of {}", names.join(", "));
    let mut body = format!("<header><h1>{}</h1>\n</header>\n<main id=\"content\">\n", escape(&title));
    for (profile, summary) in runs {
        body += &run(profile, summary);
    }
    body += "</main>\n";
    body += &footer("report");
    document_with(&title, &body, &Extra::default())
}

/// The last line of a page of `weir bsp`.
pub fn footer(command: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("<footer><p>Made by weir bsp {command} {version}. This file needs no network.</p></footer>\n")
}

/// What should be read first.
pub fn notices(all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let items: String = all.iter().map(|notice| format!("<li>{}</li>\n", escape(notice))).collect();
    format!(
        "<section class=\"warnings\" aria-label=\"Warnings\"><h2>Read this first</h2><ul>\n{items}</ul></section>\n"
    )
}

/// A table: the first column are names.
pub fn table(caption: &str, heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escape(head))).collect();
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate().map(|(nth, cell)| match nth {
            0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
            _ => format!("<td>{}</td>", escape(cell)),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\"><table><caption>{}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n",
        escape(caption)
    )
}

fn run(profile: &Profile, summary: &Summary) -> String {
    let mut out = format!(
        "<section><h2>{}: {}, {}, {}</h2>\n",
        escape(&profile.name),
        units::plural_es(u64::from(profile.processes), "process"),
        units::plural(summary.total.supersteps, "superstep"),
        units::time(summary.total.span_ns as f64)
    );
    out += &notices(&summary.notices);
    if !summary.root.is_empty() {
        out += &format!("<p>Lines are of files in {}.</p>\n", escape(&summary.root));
    }
    if let Some(costs) = &summary.costs {
        let (l, g) = (units::time(costs.l_ns), units::number(costs.g_ns_per_byte));
        out += &format!("<p>Predicted with l = {l} and g = {g} ns a byte.</p>\n");
    }
    out += "<div class=\"figures\">\n";
    out += &figure(&plots::profile::profile(profile), None, None);
    out += &figure(&plots::profile::shares(summary), None, None);
    if let Some(costs) = &summary.costs {
        out += &figure(&plots::profile::predicted(profile, costs), None, None);
    }
    out += "</div>\n";
    let rows = || summary.rows.iter().chain([&summary.total]);
    out += &format!("<p class=\"muted\">{}</p>\n", escape(EXPLANATION));
    out += &table("By line of the program.", &HEADS, &rows().map(cells).collect::<Vec<_>>());
    // What was never counted, as packets where all is shared memory, has no column.
    let used = counters(&summary.total.carried).map(|(_, value)| value > 0);
    let names = counters(&summary.total.carried).map(|(name, _)| name.replace('_', " "));
    let names = names.iter().zip(used).filter(|(_, used)| *used).map(|(name, _)| name.as_str());
    let heads: Vec<&str> = ["ended at", "bytes sent", "messages of bsp_send"].into_iter().chain(names).collect();
    out += &table("What went between the processes.", &heads, &rows().map(|row| wire(row, &used)).collect::<Vec<_>>());
    out + "</section>\n"
}

const HEADS: [&str; 10] = [
    "ended at",
    "supersteps",
    "time",
    "computing",
    "balance",
    "waiting",
    "communicating",
    "h",
    "predicted",
    "pred./meas.",
];

fn cells(row: &Row) -> Vec<String> {
    let time = units::time_in_column;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    vec![
        row.place.clone(),
        row.supersteps.to_string(),
        time(row.span_ns as f64),
        time(row.work_ns as f64),
        or_dash(row.balance_percent().map(|percent| format!("{percent:.0} %"))),
        time(row.wait_mean_ns),
        time(row.cost_ns as f64),
        units::size(row.h_bytes),
        or_dash(row.predicted_cost_ns.map(time)),
        or_dash(row.predicted_ratio().map(|ratio| format!("{ratio:.2}"))),
    ]
}

fn wire(row: &Row, used: &[bool]) -> Vec<String> {
    let mut cells = vec![row.place.clone(), row.out_bytes.to_string(), row.letters.to_string()];
    let counted = counters(&row.carried).into_iter().zip(used).filter(|(_, used)| **used);
    cells.extend(counted.map(|((_, value), _)| value.to_string()));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Costs;
    use crate::ledger::Step;
    use crate::summary::summary;

    #[test]
    fn a_page_holds_the_runs_and_what_they_are_called_is_no_markup() {
        let step = |nth: u64| Step {
            place: (nth % 2) as u32,
            work_max_ns: 100 * nth,
            work_sum_ns: 150 * nth,
            span_max_ns: 1000 + 100 * nth,
            out_max_bytes: nth * 64,
            ..Step::default()
        };
        let profile = Profile {
            name: "<run>".into(),
            root: String::new(),
            processes: 2,
            places: vec!["a<b>.c:1".into(), "c.c:2".into()],
            steps: (0..5000).map(step).collect(),
        };
        let costs = Costs { p: 2, l_ns: 900.0, g_ns_per_byte: 0.5 };
        let told = summary(&profile, Some((costs, Some("guessed".into()))));
        let page = html(&[(profile, told)]);
        assert!(page.contains("&lt;run&gt;") && !page.contains("<run>") && !page.contains("a<b>"));
        for part in ["Superstep profile", "Predicted and measured", "guessed", "c.c:2", "</html>"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.len() < 2_000_000, "{}", page.len());
        // An empty run is a page too.
        let empty = Profile { name: "e".into(), processes: 1, ..Profile::default() };
        let told = summary(&empty, None);
        assert!(html(&[(empty, told)]).contains("</html>"));
    }
}
