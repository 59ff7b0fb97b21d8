//! What both kinds of page consist of: the bar of choices, the overview, the list of contents,
//! warnings, operations that open, figures.

use weir_distribution::Warning;

use crate::digest::Level;
use crate::frame::{Plot, Sheet};
use crate::order::main_level;
use crate::plots::overview::Overview;
use crate::svg::escape;
use crate::{units, warnings};

/// A drawing in a page; `scale` says of which of two it is, `level` to which level it belongs.
#[must_use]
pub fn figure(plot: &Plot, scale: Option<&str>, level: Option<usize>) -> String {
    let scale_attribute = scale.map_or_else(String::new, |s| format!(" data-scale=\"{s}\""));
    // Without the script the logarithmic one is shown.
    let hidden = if scale == Some("linear") { " hidden" } else { "" };
    let level = level.map_or_else(String::new, |l| format!(" data-level=\"{l}\""));
    let (title, explanation) = (escape(&plot.title), escape(&plot.explanation));
    let note = match plot.note.as_str() {
        "" => String::new(),
        note => format!("<p class=\"note\">{}</p>\n", escape(note)),
    };
    format!(
        "<figure tabindex=\"0\" role=\"group\" aria-label=\"Plot: {title}. Arrow keys go through its values.\"{scale_attribute}{level}{hidden}>\n\
         <figcaption><strong>{title}</strong> {explanation}</figcaption>\n<div class=\"chart\">{}</div>\n{note}</figure>\n",
        plot.svg(Sheet::Page)
    )
}

/// Drawings side by side, as many as there is room for.
pub fn figures(all: &str) -> String {
    if all.is_empty() { String::new() } else { format!("<div class=\"figures\">\n{all}</div>\n") }
}

/// The bar that stays in sight: which operation, which scale.
pub fn controls(operations: &[(String, String)]) -> String {
    let mut out = String::from("<nav class=\"controls\" aria-label=\"What is shown\"><div>");
    out += "<label class=\"pick\"><span>Operation</span> <select id=\"operation\"><option value=\"\">all</option>";
    for (id, title) in operations {
        out += &format!("<option value=\"{}\">{}</option>", escape(id), escape(title));
    }
    out += "</select></label>";
    out += "<fieldset><legend>Scale</legend><label><input type=\"radio\" name=\"scale\" value=\"log\" checked> logarithmic</label><label><input type=\"radio\" name=\"scale\" value=\"linear\"> linear</label></fieldset>";
    out += "<button type=\"button\" class=\"pick\" id=\"open\">open all</button>";
    out + "</div></nav>\n"
}

/// The choice of a level in a section, given the cells of each: [`main_level`] is shown first.
pub fn level_choice(levels: &[Level], cells: &[usize]) -> String {
    if levels.len() < 2 {
        return String::new();
    }
    let word = if levels.iter().any(|l| l.pairs > 0) { "Contention" } else { "Placement" };
    let mut out = format!("<label class=\"pick\"><span>{word}</span> <select class=\"level\">");
    for (i, level) in levels.iter().enumerate() {
        let selected = if i == main_level(cells) { " selected" } else { "" };
        out += &format!("<option value=\"{i}\"{selected}>{}</option>", escape(&level.label()));
    }
    out + "</select></label>\n"
}

pub fn footer() -> String {
    format!(
        "<footer><p>Made by weir report {}. This file needs no network and holds no sample but those drawn; all samples are in the run's folder.</p></footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Ids of sections: unique, and nothing but letters, digits and `-`.
pub fn ids(titles: impl Iterator<Item = String>) -> Vec<String> {
    titles.enumerate().map(|(i, title)| format!("op{i}-{}", crate::frame::slug(&title))).collect()
}

/// Operations from which on all are closed at first: more would bury the overview.
const MANY: usize = 4;

/// Least width of a small picture with the gap beside it, as the style has it.
const TILE_PX: usize = 180;

/// The small pictures of all operations; each leads to its own.
pub fn overview(overview: &Overview, ids: &[String]) -> String {
    if overview.groups.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section id=\"overview\"><h2>Overview</h2>\n");
    out += &format!("<p class=\"muted\">{} A picture leads to its operation.</p>\n", escape(overview.explanation));
    out += "<div class=\"groups\">\n";
    for group in &overview.groups {
        // Small groups stand side by side, each as wide as its pictures ask for.
        let n = group.tiles.len();
        out += &format!(
            "<div class=\"group\" style=\"flex:{n} 1 {}px\"><h3>{}</h3>\n<div class=\"tiles\">\n",
            n * TILE_PX,
            escape(group.title)
        );
        for tile in &group.tiles {
            let Some(id) = ids.get(tile.index) else { continue };
            out += &format!(
                "<a class=\"tile\" href=\"#{id}\" aria-label=\"{0}: {1}\"><strong>{0}</strong>\n{2}</a>\n",
                escape(&tile.title),
                escape(&tile.words),
                tile.svg()
            );
        }
        out += "</div></div>\n";
    }
    out + "</div></section>\n"
}

/// The list of contents: each operation with its numbers in few words, and `more` sections by id
/// and title.
pub fn contents(overview: &Overview, ids: &[String], more: &[(&str, &str)]) -> String {
    let item = |id: &str, title: &str, words: &str| {
        format!("<li><a href=\"#{id}\">{}</a> <span class=\"muted\">{}</span></li>\n", escape(title), unbroken(words))
    };
    let tiles = overview.groups.iter().flat_map(|g| &g.tiles);
    let mut items: String = tiles.filter_map(|t| Some(item(ids.get(t.index)?, &t.title, &t.words))).collect();
    if items.is_empty() {
        return String::new();
    }
    items += &more.iter().map(|(id, title)| item(id, title, "")).collect::<String>();
    format!(
        "<nav class=\"contents\" aria-labelledby=\"contents\"><h2 id=\"contents\">Contents</h2>\n<ul>\n{items}</ul></nav>\n"
    )
}

/// An operation that opens and closes, with its numbers in few words beside its name; `number` of
/// them are on the page.
pub fn operation(id: &str, title: &str, words: &str, number: usize, inside: &str) -> String {
    let open = if number < MANY { " open" } else { "" };
    format!(
        "<details class=\"operation\" data-operation id=\"{id}\"{open}><summary><h2>{}</h2> <span class=\"muted\">{}</span></summary>\n{inside}</details>\n",
        escape(title),
        unbroken(words)
    )
}

/// A list of numbers with their units, of which none breaks over a line's end.
fn unbroken(words: &str) -> String {
    let one = |item: &str| format!("<span class=\"one\">{}</span>", escape(item));
    if words.is_empty() { String::new() } else { words.split(", ").map(one).collect::<Vec<_>>().join(", ") }
}

/// What the line of warnings names, so that it stays one.
const NAMED: usize = 4;

/// Warnings behind one line that says in plain words what they are about.
pub fn folded(all: &[Warning]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let classes = warnings::classes(all);
    let mut about: Vec<String> = classes.iter().take(NAMED).map(|c| c.0.clone()).collect();
    if classes.len() > NAMED {
        about.push(format!("and {} more", classes.len() - NAMED));
    }
    let mut out = format!(
        "<details class=\"warnings\"><summary>{}: {}</summary><ul>\n",
        units::plural(all.len() as u64, "warning"),
        escape(&about.join("; "))
    );
    for (words, warnings) in &classes {
        out += &format!("<li><strong>{}</strong>", escape(&crate::plots::sentence(words)));
        for Warning { message, advice, .. } in warnings {
            let advice = advice
                .as_ref()
                .map_or_else(String::new, |a| format!("<br><span class=\"muted\">To do: {}</span>", escape(a)));
            out += &format!("<p>{}{advice}</p>", escape(message));
        }
        out += "</li>\n";
    }
    out + "</ul></details>\n"
}
