//! The figures of the README's table, and of the guide's, must be those of the laboratory book's
//! pages.
//!
//! Behind the table stands a comment that names for each of its rows the page, the cells there and
//! the columns:
//!
//! ```text
//! <!-- sources: weir-mpich, mpich-tcp-cubic, mpich-rxd
//! 30 KB ping-pong: 2026-11-22-loss-3 loss/30000/1% (MB/s; p99 us)
//! -->
//! ```
//!
//! The first line names the pages' rows that the table's columns show. A column `best` shows the
//! best rival of the page, which its cells name: `` `mpich-rxd`: 115 MB/s ``; best is whose first
//! figure the page says to be 1.00 times the best rival's. A figure of the table is the page's
//! median, rounded to as many places as are shown, in the page's unit or one of the same kind; what
//! stands in brackets behind it is the page's least and greatest.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;

/// The texts with such a table.
pub const TEXTS: [&str; 2] = ["README.md", "docs/guide/src/numbers.md"];
/// How the comment begins.
const BEGIN: &str = "<!-- sources: ";
/// Figures that a cell of the table gives of one more stack: `(BBR 81, 34, 32)`.
const ASIDE: (&str, &str) = ("(BBR ", "mpich-tcp-bbr");
/// The stack was not measured there, and has no row on the page.
const NOT_MEASURED: &str = "-";
/// A launch that was ended has no result, and the page says when.
const NO_RESULT: &str = "more than ";

/// Where the figures of a row come from.
#[derive(Debug, PartialEq)]
struct Source<'a> {
    /// How the row's first cell begins.
    row: &'a str,
    page: &'a str,
    cells: Vec<&'a str>,
    /// Columns of the page; the figures of each are separated by semicolons in the README too.
    columns: Vec<&'a str>,
}

/// What a page says: cell and stack, then column.
type Page = BTreeMap<(String, String), BTreeMap<String, String>>;

/// The column that shows the best rival.
const BEST: &str = "best";

/// Figures of a text, `name`, that are not what the pages say; one line each.
///
/// # Errors
/// If the comment, or a page that it names, cannot be read.
pub fn disagreements(paths: &Paths, name: &str, text: &str) -> Result<Vec<String>> {
    let found = disagreements_of(paths, text).with_context(|| name.to_owned())?;
    Ok(found.into_iter().map(|line| format!("{name}: {line}")).collect())
}

fn disagreements_of(paths: &Paths, readme: &str) -> Result<Vec<String>> {
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    let (stacks, sources) = sources(readme)?;
    let mut found = Vec::new();
    for source in &sources {
        let file = format!("docs/lab/{}.md", source.page);
        if !readme.contains(&format!("lab/{}.md)", source.page)) {
            found.push(format!("figures are taken from {file}, and there is no link to it"));
        }
        if !pages.contains_key(source.page) {
            let text = fs::read_to_string(paths.root.join(&file)).with_context(|| format!("cannot read {file}"))?;
            pages.insert(source.page.to_owned(), page(&text));
        }
    }
    found.extend(compare(readme, &stacks, &sources, &pages)?);
    Ok(found)
}

/// Compares the table, row by row.
fn compare(
    readme: &str,
    stacks: &[&str],
    sources: &[Source<'_>],
    pages: &BTreeMap<String, Page>,
) -> Result<Vec<String>> {
    let rows = table_before_comment(readme)?;
    if rows.len() != sources.len() {
        bail!("there is a table of {} rows and sources for {}", rows.len(), sources.len());
    }
    let mut found = Vec::new();
    for (row, source) in rows.iter().zip(sources) {
        if !row[0].starts_with(source.row) {
            bail!("the sources of '{}' stand where '{}' is expected", source.row, row[0]);
        }
        if row.len() != stacks.len() + 1 {
            bail!("'{}' has not as many columns as there are stacks", row[0]);
        }
        for (text, stack) in row[1..].iter().zip(stacks) {
            if let Err(error) = compare_cell(text, stack, source, &pages[source.page]) {
                found.push(format!("'{}', {stack}: {error:#}", row[0]));
            }
        }
    }
    Ok(found)
}

/// The comment: which rows of the pages the columns show, and a source for each row.
fn sources(readme: &str) -> Result<(Vec<&str>, Vec<Source<'_>>)> {
    let (_, rest) = readme.split_once(BEGIN).context("it is not said where the figures come from")?;
    let (comment, _) = rest.split_once("-->").context("the sources do not end")?;
    let (first, lines) = comment.split_once('\n').context("no sources")?;
    let source = |line| source(line).with_context(|| format!("no source: {line}"));
    let sources = lines.lines().filter(|line| !line.trim().is_empty()).map(source).collect::<Result<_>>()?;
    Ok((first.split(',').map(str::trim).collect(), sources))
}

fn source(line: &str) -> Option<Source<'_>> {
    let (row, rest) = line.rsplit_once(": ")?;
    let (page, rest) = rest.split_once(' ')?;
    let (cells, columns) = rest.strip_suffix(')')?.split_once(" (")?;
    Some(Source { row, page, cells: cells.split(", ").collect(), columns: columns.split("; ").collect() })
}

/// The rows of the table that the comment follows, without its head.
fn table_before_comment(readme: &str) -> Result<Vec<Vec<&str>>> {
    let (before, _) = readme.split_once(BEGIN).context("it is not said where the figures come from")?;
    let lines: Vec<&str> = before.trim_end().lines().rev().take_while(|line| line.starts_with('|')).collect();
    Ok(lines.into_iter().rev().skip(2).map(cells_of).collect())
}

fn cells_of(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Reads a page of `cargo xtask bench mpi`.
fn page(text: &str) -> Page {
    let mut page = Page::new();
    let (mut cell, mut head) = ("", Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            cell = name;
        } else if line.starts_with("| stack |") {
            head = cells_of(line);
        } else if line.starts_with("| ") && !cell.is_empty() {
            let values = cells_of(line);
            let columns = head.iter().zip(&values).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            // Only the first of the columns that are named alike, the ratios, which nobody asks
            // for.
            page.insert((cell.to_owned(), values[0].to_owned()), columns.rev().collect());
        }
    }
    page
}

/// Compares one cell of the table with what the page says of one stack, or of the best rival.
fn compare_cell(text: &str, stack: &str, source: &Source<'_>, page: &Page) -> Result<()> {
    if stack == BEST {
        let named = text.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
        let (stack, figures) = named.with_context(|| format!("'{text}' names no rival"))?;
        for cell in &source.cells {
            let row = page.get(&((*cell).to_owned(), stack.to_owned()));
            let ratio = row.and_then(|row| row.get("ratio")).map_or("", String::as_str);
            if ratio != "1.00" || stack.starts_with("weir") {
                bail!("{stack} is not the best rival in {cell}");
            }
            if let Some(better) = better(page, cell, stack, source.columns.first().copied().unwrap_or_default()) {
                bail!("{better} is better than {stack} in {cell}");
            }
        }
        return compare_cell(figures, stack, source, page);
    }
    if text == NOT_MEASURED {
        let measured = |cell: &&&str| page.contains_key(&((**cell).to_owned(), stack.to_owned()));
        return source.cells.iter().find(measured).map_or(Ok(()), |cell| bail!("{cell} has figures of {stack}"));
    }
    let groups: Vec<&str> = text.split(';').map(str::trim).collect();
    if groups.len() > source.columns.len() {
        bail!("'{text}' has more groups of figures than the source has columns");
    }
    for (group, column) in groups.into_iter().zip(&source.columns) {
        let (own, aside) = group.split_once(ASIDE.0).unwrap_or((group, ""));
        compare_group(own.trim(), stack, column, source, page)?;
        if !aside.is_empty() {
            let unit = own.trim().rsplit(' ').next().unwrap_or("");
            let aside = format!("{} {unit}", aside.trim_end_matches(')'));
            compare_group(&aside, ASIDE.1, column, source, page)?;
        }
    }
    Ok(())
}

/// Another rival that is better by this column, of those whose ratio is rounded to 1.00 too.
fn better<'a>(page: &'a Page, cell: &str, stack: &str, column: &str) -> Option<&'a str> {
    let figure = |row: &BTreeMap<String, String>| row.get(column)?.split(' ').next()?.parse::<f64>().ok();
    let own = figure(page.get(&(cell.to_owned(), stack.to_owned()))?)?;
    let is_time = column == "s" || column.ends_with(" us") || column.ends_with(" ms");
    let is_rival = |name: &str| !name.starts_with("weir") && !name.starts_with("before");
    let of_cell = page.iter().filter(|((at, name), row)| {
        at == cell && is_rival(name) && row.get("ratio").is_some_and(|ratio| ratio == "1.00")
    });
    let mut better = of_cell.filter(|(_, row)| figure(row).is_some_and(|f| if is_time { f < own } else { f > own }));
    better.next().map(|((_, name), _)| name.as_str())
}

/// Compares `78, 70, 53 MB/s` with one column of the source's cells.
fn compare_group(text: &str, stack: &str, column: &str, source: &Source<'_>, page: &Page) -> Result<()> {
    let value = |cell: &str| {
        let row = page.get(&(cell.to_owned(), stack.to_owned())).with_context(|| format!("{cell} has no {stack}"))?;
        let trouble = row.get("trouble").map_or("", String::as_str);
        Ok((row.get(column).with_context(|| format!("{cell} has no column {column}"))?.as_str(), trouble))
    };
    let values: Vec<(&str, &str)> = source.cells.iter().map(|cell| value(cell)).collect::<Result<_>>()?;
    let mut values = values.into_iter().peekable();
    let figures: Vec<&str> = text.split(", ").collect();
    let last_unit = figures.last().and_then(|last| Figure::read(last)).map_or("", |figure| figure.unit);
    for text in figures {
        if let Some(limit) = text.strip_prefix(NO_RESULT) {
            let (mut ended, limit) = (0, limit.trim_end_matches(" s").parse::<f64>()?);
            while let Some((_, trouble)) = values.next_if(|(value, _)| *value == "-") {
                ended += 1;
                if seconds_in(trouble).is_none_or(|seconds| seconds < limit) {
                    bail!("'{text}', the page says: {trouble}");
                }
            }
            if ended == 0 {
                bail!("'{text}', the page has a result");
            }
            continue;
        }
        let figure = Figure::read(text).with_context(|| format!("'{text}' is no figure"))?;
        let (said, _) = values.next().with_context(|| format!("'{text}' is one figure too many"))?;
        let unit = if figure.unit.is_empty() { last_unit } else { figure.unit };
        let scale =
            scale(unit, column).with_context(|| format!("'{text}' is in {unit}, the page's {column} are not"))?;
        figure.compare(said, scale).with_context(|| format!("'{text}', the page says {said} ({column})"))?;
    }
    if values.next().is_some() {
        bail!("'{text}' has too few figures");
    }
    Ok(())
}

/// How many of the unit of the page's column make one of `unit`.
fn scale(unit: &str, column: &str) -> Option<f64> {
    let there = column.rsplit(' ').next().unwrap_or(column);
    match (unit, there) {
        ("GB/s", "MB/s") | ("ms", "us") => Some(1000.0),
        ("/s", "messages/s") | ("ns", "ns/B") => Some(1.0),
        _ => (unit == there).then_some(1.0),
    }
}

/// The last number of seconds in a text.
fn seconds_in(text: &str) -> Option<f64> {
    let words: Vec<&str> = text.split([' ', ')']).collect();
    words.windows(2).rev().find(|two| two[1].trim_end_matches(';') == "s").and_then(|two| two[0].parse().ok())
}

/// A number as it is written.
#[derive(Debug, PartialEq)]
struct Written {
    value: f64,
    /// What one of its last place is worth.
    place: f64,
}

impl Written {
    /// `6.0`, `452` or `1 142 000`, of which the zeros at the end are not meant.
    fn read(text: &str) -> Option<Written> {
        let digits = text.replace(' ', "");
        let value = digits.parse().ok()?;
        let place = match digits.split_once('.') {
            Some((_, places)) => 0.1f64.powi(i32::try_from(places.len()).ok()?),
            None if text.ends_with(" 000") => 1000.0,
            None => 1.0,
        };
        Some(Written { value, place })
    }

    /// Whether `exact`, which itself is rounded, rounds to this.
    fn is(&self, exact: f64) -> bool {
        (self.value - exact).abs() <= self.place * 0.5 * (1.0 + 1e-9)
    }
}

/// A figure: `452 (347 to 478) MB/s` or `452 MB/s (347 to 478)`.
#[derive(Debug, PartialEq)]
struct Figure<'a> {
    median: Written,
    spread: Option<(Written, Written)>,
    unit: &'a str,
}

impl<'a> Figure<'a> {
    fn read(text: &'a str) -> Option<Figure<'a>> {
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == ' ';
        let (number, rest) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
        let (spread, unit) = match rest.split_once('(') {
            Some((before, rest)) => {
                let (spread, after) = rest.split_once(')')?;
                let (least, greatest) = spread.split_once(" to ")?;
                // The unit stands before or behind the brackets.
                let unit = if before.trim().is_empty() { after } else { before };
                (Some((Written::read(least)?, Written::read(greatest)?)), unit)
            }
            None => (None, rest),
        };
        Some(Figure { median: Written::read(number.trim())?, spread, unit: unit.trim() })
    }

    /// With what the page says: `452.2 (347.1-477.9)`.
    fn compare(&self, said: &str, scale: f64) -> Result<()> {
        let (median, spread) = said.split_once(" (").context("no spread")?;
        let (least, greatest) = spread.trim_end_matches(')').split_once('-').context("no spread")?;
        let number = |text: &str| Ok::<f64, anyhow::Error>(text.parse::<f64>()? / scale);
        if !self.median.is(number(median)?) {
            bail!("the median is another");
        }
        if let Some((low, high)) = &self.spread
            && !(low.is(number(least)?) && high.is(number(greatest)?))
        {
            bail!("the spread is another");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "
| work | Weir | `tcp` | `rxd` |
|---|---|---|---|
| 30 KB; p99 | 452 (347 to 478) MB/s; 0.18 ms | 11 MB/s; 103 ms (BBR 12) | 1 142 000/s |
<!-- sources: weir-mpich, mpich-tcp-cubic, mpich-rxd
30 KB: day-loss loss/1% (MB/s; p99 us)
-->";

    const PAGE: &str = "
## loss

### loss/1%

veth; 2 ranks

| stack | MB/s | ratio | p99 us | ratio | trouble |
|---|---:|---:|---:|---:|---|
| weir-mpich | 452.2 (347.1-477.9) | 4.18 | 177.8 (157.3-203.2) | 0.12 |  |
| mpich-tcp-bbr | 11.62 (7.351-17.56) | 0.10 | 102907 (102423-104017) | 67.94 |  |

### loss/2%

| stack | MB/s | ratio | p99 us | ratio | trouble |
|---|---:|---:|---:|---:|---|
| weir-mpich | 53.02 (52.62-53.42) | 1.00 | - | - |  |
| mpich-rxd | - | - | - | - | 2 of 2 launches ended by their time limit of 21 s; not launched again |
| mpich-tcp-bbr | 2 (1-3) | 1.00 | - | - |  |

### loss/3%

| stack | MB/s | ratio | p99 us | ratio | trouble |
|---|---:|---:|---:|---:|---|
| mpich-rxd | 99.9 (99-100) | 1.00 | 7.1 (7-8) | 1.01 |  |
| mpich-tcp-bbr | 100.1 (99-101) | 1.00 | 7.0 (7-8) | 1.00 |  |
";

    fn source_of<'a>(cells: &[&'a str], columns: &[&'a str]) -> Source<'a> {
        Source { row: "30 KB", page: "day-loss", cells: cells.to_vec(), columns: columns.to_vec() }
    }

    #[test]
    fn the_readme_says_what_the_pages_say() {
        let paths = Paths::find();
        for name in TEXTS {
            let text = fs::read_to_string(paths.root.join(name)).unwrap();
            let found = disagreements(&paths, name, &text).unwrap();
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
    }

    #[test]
    fn the_comment_and_the_table_are_read() {
        let (stacks, sources) = sources(README).unwrap();
        assert_eq!(stacks, ["weir-mpich", "mpich-tcp-cubic", "mpich-rxd"]);
        assert_eq!(sources, [source_of(&["loss/1%"], &["MB/s", "p99 us"])]);
        assert_eq!(table_before_comment(README).unwrap()[0][1], "452 (347 to 478) MB/s; 0.18 ms");
    }

    #[test]
    fn figures_that_a_page_has_agree_with_it() {
        let page = page(PAGE);
        let one = source_of(&["loss/1%"], &["MB/s", "p99 us"]);
        let both = source_of(&["loss/1%", "loss/2%"], &["MB/s"]);
        let ended = source_of(&["loss/2%"], &["MB/s"]);
        let ended_bbr = source_of(&["loss/2%"], &["MB/s"]);
        for (text, stack, source) in [
            ("452 (347 to 478) MB/s; 0.18 ms", "weir-mpich", &one),
            ("452 MB/s (347 to 478); 178 us", "weir-mpich", &one),
            ("452 MB/s", "weir-mpich", &one),
            ("0.452 GB/s; 178 us", "weir-mpich", &one),
            ("452, 53 MB/s", "weir-mpich", &both),
            ("452, 53 MB/s (BBR 12, 2)", "weir-mpich", &both),
            ("more than 20 s", "mpich-rxd", &ended),
            ("-", "mpich-ucx", &both),
            ("`mpich-tcp-bbr`: 2 MB/s", BEST, &ended_bbr),
        ] {
            compare_cell(text, stack, source, &page).expect(text);
        }
    }

    #[test]
    fn every_kind_of_disagreement_is_found() {
        let page = page(PAGE);
        let one = source_of(&["loss/1%"], &["MB/s", "p99 us"]);
        let both = source_of(&["loss/1%", "loss/2%"], &["MB/s"]);
        let ended = source_of(&["loss/2%"], &["MB/s"]);
        let [close, close_time] = ["MB/s", "p99 us"].map(|column| source_of(&["loss/3%"], &[column]));
        compare_cell("`mpich-tcp-bbr`: 100 MB/s", BEST, &close, &page).expect("the best of two that are as good");
        for (text, stack, source, why) in [
            ("-", "weir-mpich", &both, "has figures of weir-mpich"),
            ("453 MB/s", "weir-mpich", &one, "the median is another"),
            ("452.1 MB/s", "weir-mpich", &one, "the median is another"),
            ("452 (347 to 479) MB/s", "weir-mpich", &one, "the spread is another"),
            ("452 MB/s; 0.19 ms", "weir-mpich", &one, "the median is another"),
            ("452 GB/s", "weir-mpich", &one, "the median is another"),
            ("452 s", "weir-mpich", &one, "is in s"),
            ("452 MB/s; 0.18 ms; 3 s", "weir-mpich", &one, "more groups"),
            ("452 MB/s", "weir-mpich", &both, "too few"),
            ("452, 53, 53 MB/s", "weir-mpich", &both, "too many"),
            ("53, 452 MB/s", "weir-mpich", &both, "the median is another"),
            ("452, 53 MB/s (BBR 12, 3)", "weir-mpich", &both, "the median is another"),
            ("some MB/s", "weir-mpich", &one, "no figure"),
            ("452 MB/s", "mpich-ucx", &one, "has no mpich-ucx"),
            ("more than 30 s", "mpich-rxd", &ended, "time limit of 21 s"),
            ("more than 20 s", "weir-mpich", &ended, "has a result"),
            ("53 MB/s", "mpich-rxd", &ended, "the page says -"),
            ("`mpich-tcp-bbr`: 12 MB/s", BEST, &one, "not the best rival"),
            ("`weir-mpich`: 53 MB/s", BEST, &ended, "not the best rival"),
            ("`mpich-tcp-bbr`: 3 MB/s", BEST, &ended, "the median is another"),
            ("2 MB/s", BEST, &ended, "names no rival"),
            ("`mpich-rxd`: 100 MB/s", BEST, &close, "mpich-tcp-bbr is better than mpich-rxd"),
            ("`mpich-rxd`: 7 us", BEST, &close_time, "mpich-tcp-bbr is better than mpich-rxd"),
        ] {
            let error = format!("{:#}", compare_cell(text, stack, source, &page).expect_err(text));
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_row_without_a_source_is_found() {
        let pages = BTreeMap::from([("day-loss".to_owned(), page(PAGE))]);
        let (stacks, sources) = sources(README).unwrap();
        let compared = |readme: &str| compare(readme, &stacks, &sources, &pages).map_err(|error| format!("{error:#}"));
        assert_eq!(compared(README).unwrap().len(), 2, "neither tcp nor rxd is on the page");
        let more = README.replace("<!--", "| one more | 1 s | 1 s | 1 s |\n<!--");
        assert!(compared(&more).is_err_and(|error| error.contains("2 rows and sources for 1")));
        assert!(compared(&README.replace("| 30 KB;", "| 40 KB;")).is_err_and(|error| error.contains("'40 KB; p99'")));
    }

    #[test]
    fn thousands_are_rounded_as_they_are_written() {
        let written = |text| Written::read(text).unwrap();
        assert!(written("1 142 000").is(1_142_123.0) && !written("1 142 000").is(1_142_600.0));
        assert!(written("20").is(20.4) && !written("20").is(21.0));
        assert!(written("0.31").is(0.305) && !written("6.0").is(5.9));
    }
}
