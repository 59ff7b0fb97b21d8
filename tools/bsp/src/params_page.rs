//! The page of `weir bsp params`.

use weir_report::page::{Extra, document_with, figure};
use weir_report::units;

use crate::estimate::Spread;
use crate::params::{Machine, Params};
use crate::params_text::{Prediction, notices as warnings, predictions, rate};
use crate::plots::machine;
use crate::report_page::{footer, notices, table};

/// The page of these machines; `asked` are numbers of processes that are predicted.
#[must_use]
pub fn html(params: &Params, asked: &[u32]) -> String {
    let predicted = predictions(params, asked);
    let mut body = String::from("<header><h1>BSP machine parameters</h1>\n");
    body += &notices(&warnings(params));
    body += "</header>\n<main id=\"content\">\n";
    body += &parameters(params);
    body += "<div class=\"figures\">\n";
    let mut drawn = vec![machine::histograms(params), machine::edges(params)];
    drawn.extend(machine::growth(params, &predicted));
    let shown = machine::shown(params);
    drawn.extend(shown.iter().flat_map(|one| [machine::times(one), machine::blocks(one)]));
    body += &drawn.iter().map(|plot| figure(plot, None, None)).collect::<String>();
    body += "</div>\n";
    if !predicted.is_empty() {
        body += &predictions_table(&predicted);
    }
    body += &shown.iter().map(|one| relations(one)).collect::<String>();
    let left_out = params.machines.len() - shown.len();
    if left_out > 0 {
        body += &format!("<p class=\"muted\">{left_out} other numbers of processes are in the first table only.</p>\n");
    }
    body += "</main>\n";
    body += &footer("params");
    document_with("BSP machine parameters", &body, &Extra::default())
}

fn with_sd(spread: &Spread, words: &dyn Fn(f64) -> String) -> String {
    format!("{} ± {:.0} %", words(spread.mean), spread.sd_percent())
}

fn parameters(params: &Params) -> String {
    let row = |machine: &Machine| {
        let (l, g, s) = (machine.l_ns(), machine.g_ns_per_byte(), machine.s_ops_per_s());
        let operations = machine.in_operations();
        vec![
            machine.p.to_string(),
            machine.hosts.to_string(),
            with_sd(&l, &units::time),
            with_sd(&g, &units::number),
            rate(g.mean),
            with_sd(&s, &|ops| format!("{:.0}", ops / 1e6)),
            format!("{:.0}", operations.l),
            units::number(operations.g),
        ]
    };
    let rows: Vec<Vec<String>> = params.machines.iter().map(row).collect();
    let caption = "A superstep takes w + h g + l. Means with the standard deviation; a word is 32 bits, an operation a multiplication or an addition.";
    table(
        caption,
        &["p", "hosts", "l", "g, ns a byte", "rate", "s, Mop/s", "l, operations", "g, operations a word"],
        &rows,
    )
}

fn predictions_table(all: &[Prediction]) -> String {
    let row = |one: &Prediction| {
        let dash = || "–".to_owned();
        vec![
            one.costs.p.to_string(),
            one.from.to_string(),
            units::time(one.costs.l_ns),
            units::number(one.costs.g_ns_per_byte),
            units::number(one.normal_g),
            one.measured.map_or_else(dash, |m| units::number(m.0)),
            one.measured.map_or_else(dash, |m| format!("{:.2}", m.1)),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let caption = "Larger p from the edges of smaller p: g is the mean of the slowest of p edges; l is by a line through what was measured.";
    table(caption, &["p", "from p", "l", "g, ns a byte", "if normal", "measured", "distance of edges"], &rows)
}

fn relations(machine: &Machine) -> String {
    let rows = machine.relations.iter().map(|relation| {
        let g = Spread::of(&machine.gaps(relation));
        let times: Vec<f64> = relation.samples.iter().map(|sample| sample.1).collect();
        vec![
            relation.pattern.words().to_owned(),
            if relation.pattern.is_balanced() { "balanced" } else { "skewed" }.to_owned(),
            units::size(relation.wanted_bytes),
            format!("{} of {}", relation.by.name(), units::size(relation.block_bytes)),
            relation.samples.len().to_string(),
            with_sd(&Spread::of(&times), &units::time),
            with_sd(&g, &units::number),
            rate(g.mean),
        ]
    });
    let caption = format!("p = {}: g = (time - l) / h", machine.p);
    let heads = ["h-relation", "kind", "h", "by", "supersteps", "time", "g, ns a byte", "rate"];
    table(&caption, &heads, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::tests::machine;

    #[test]
    fn a_page_has_all_drawings() {
        let params = Params { machines: vec![machine(2, 1000.0, 0.5), machine(4, 3000.0, 0.75)] };
        let page = html(&params, &[16]);
        for part in ["Spread of the parameters", ">Edges<", "g of larger machines", "Time against h, p = 4", "</html>"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""));
        // Of one machine nothing is predicted unless it is asked for.
        let alone = Params { machines: vec![machine(2, 1000.0, 0.5)] };
        assert!(!html(&alone, &[]).contains("g of larger machines"));
    }
}
