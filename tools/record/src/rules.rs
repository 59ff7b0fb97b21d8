//! Finds rules: a number as an expression of the process, the number of processes and the index of
//! a loop; a set of processes as a condition. Rules are tried in a fixed order, the plainest first,
//! and hold for every point or not at all.

use std::collections::BTreeSet;

/// A number that was recorded, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The number of processes.
    pub n: i64,
    /// The process.
    pub p: i64,
    /// The index of the loop, 0 if there is none.
    pub i: i64,
    /// The number.
    pub v: i64,
}

/// What a rule demands of the number of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// A power of two.
    PowerOfTwo,
    /// A square.
    Square,
    /// Even.
    Even,
}

/// A rule that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As an expression of the language, safe within any other.
    pub text: String,
    /// What it demands.
    pub demands: Option<Demand>,
    /// Whether it names single processes, and so holds for the recorded numbers only.
    pub listed: bool,
}

/// What a candidate says of a point.
type Value = Box<dyn Fn(&Point) -> Option<i64>>;

/// A candidate: its text, its value (none: it has none there), what it demands.
struct Candidate {
    text: String,
    value: Value,
    demands: Option<Demand>,
}

fn candidate(text: impl Into<String>, value: impl Fn(&Point) -> Option<i64> + 'static) -> Candidate {
    Candidate { text: text.into(), value: Box::new(value), demands: None }
}

impl Candidate {
    fn of(mut self, demands: Demand) -> Self {
        self.demands = Some(demands);
        self
    }

    fn holds(&self, points: &[Point]) -> bool {
        points.iter().all(|point| (self.value)(point) == Some(point.v))
    }
}

fn rule(text: String, demands: Option<Demand>) -> Rule {
    Rule { text, demands, listed: false }
}

fn first(candidates: Vec<Candidate>, points: &[Point]) -> Option<Rule> {
    candidates.into_iter().find(|c| c.holds(points)).map(|c| rule(c.text, c.demands))
}

fn log2(value: i64) -> Option<i64> {
    (value > 0).then(|| i64::from(63 - value.leading_zeros()))
}

fn log2_up(value: i64) -> Option<i64> {
    if value <= 1 { (value == 1).then_some(0) } else { log2(value - 1).map(|l| l + 1) }
}

fn power(exponent: i64) -> Option<i64> {
    (0..62).contains(&exponent).then(|| 1i64 << exponent)
}

fn root(n: i64) -> Option<i64> {
    let r = n.isqrt();
    (r * r == n).then_some(r)
}

/// `+ 3`, `- 3` or nothing.
fn plus(c: i64) -> String {
    match c {
        0 => String::new(),
        c if c < 0 => format!(" - {}", -c),
        c => format!(" + {c}"),
    }
}

/// A process that is talked to. `index`: the name of the loop's index, if the number changes with
/// it.
#[must_use]
pub fn process(points: &[Point], index: Option<&str>) -> Option<Rule> {
    let whole = |points: &[Point]| match index {
        None => first(processes(points), points),
        Some(index) => first(indexed_processes(points, index), points),
    };
    if let Some(rule) = whole(points) {
        return Some(rule);
    }
    // The border: there is nobody there.
    let (none, some): (Vec<Point>, Vec<Point>) = points.iter().partition(|point| point.v == -1);
    if none.is_empty() || some.is_empty() {
        return None;
    }
    let inner = whole(&some)?;
    let places = |points: &[Point]| points.iter().map(|p| (p.n, p.p)).collect::<BTreeSet<_>>();
    let (none, some) = (places(&none), places(&some));
    if !none.is_disjoint(&some) {
        return None;
    }
    let all: Vec<(i64, i64)> = none.iter().chain(&some).copied().collect();
    let condition = condition(&all, &none)?;
    Some(Rule {
        text: format!("({} ? -1 : {})", condition.text, inner.text),
        demands: inner.demands.or(condition.demands),
        listed: condition.listed,
    })
}

/// The rules by which a process could find a peer, but for plain numbers.
#[must_use]
pub fn ways(n: i64, p: i64, v: i64) -> BTreeSet<String> {
    let point = [Point { n, p, i: 0, v }];
    let holding = processes(&point).into_iter().filter(|c| c.text.contains("procnum") && c.holds(&point));
    holding.map(|c| c.text).collect()
}

/// Widths of grids to try.
fn widths(points: &[Point]) -> impl Iterator<Item = i64> {
    2..points.iter().map(|p| p.n).max().unwrap_or(0).clamp(2, 64)
}

fn processes(points: &[Point]) -> Vec<Candidate> {
    let Some(point) = points.first() else { return Vec::new() };
    let (c, d) = (point.v, point.v - point.p);
    let wrapped = d.rem_euclid(point.n.max(1));
    let mut all = vec![
        candidate("0", |_| Some(0)),
        candidate("-1", |_| Some(-1)),
        candidate("procnum + 1", |x| (x.p + 1 < x.n).then_some(x.p + 1)),
        candidate("procnum - 1", |x| Some(x.p - 1)),
        candidate("(procnum + 1) % numprocs", |x| Some((x.p + 1) % x.n)),
        candidate("(procnum + numprocs - 1) % numprocs", |x| Some((x.p + x.n - 1) % x.n)),
        candidate("procnum", |x| Some(x.p)),
        candidate("numprocs - 1", |x| Some(x.n - 1)),
        candidate("(procnum ^ 1)", |x| Some(x.p ^ 1)).of(Demand::Even),
        candidate("numprocs - 1 - procnum", |x| Some(x.n - 1 - x.p)),
        candidate(c.to_string(), move |_| Some(c)),
        candidate(format!("procnum{}", plus(d)), move |x| Some(x.p + d)),
        candidate(format!("(procnum + {wrapped}) % numprocs"), move |x| Some((x.p + wrapped) % x.n)),
    ];
    let back = (-d).rem_euclid(point.n.max(1));
    all.push(candidate(format!("(procnum + numprocs - {back}) % numprocs"), move |x| {
        Some((x.p + x.n - back).rem_euclid(x.n))
    }));
    let below = point.n - 1 - point.v;
    all.push(candidate(format!("numprocs - 1{}", plus(-below)), move |x| Some(x.n - 1 - below)));
    let half = |x: &Point| (x.n % 2 == 0).then_some(x.n / 2);
    all.extend([
        candidate("procnum + numprocs/2", move |x| Some(x.p + half(x)?)).of(Demand::Even),
        candidate("procnum - numprocs/2", move |x| Some(x.p - half(x)?)).of(Demand::Even),
        candidate("(procnum + numprocs/2) % numprocs", move |x| Some((x.p + half(x)?) % x.n)).of(Demand::Even),
        candidate("(procnum - 1)/2", |x| Some((x.p - 1) / 2)),
        candidate("procnum/2", |x| Some(x.p / 2)),
        candidate("2*procnum + 1", |x| Some(2 * x.p + 1)),
        candidate("2*procnum + 2", |x| Some(2 * x.p + 2)),
        candidate("(procnum & (procnum - 1))", |x| (x.p > 0).then_some(x.p & (x.p - 1))),
        candidate("procnum - (1 << floor(log2(procnum)))", |x| Some(x.p - power(log2(x.p)?)?)),
    ]);
    let mask = point.v ^ point.p;
    all.push(candidate(format!("(procnum ^ {mask})"), move |x| Some(x.p ^ mask)).of(Demand::PowerOfTwo));
    for w in widths(points) {
        all.extend(in_rows(&w.to_string(), move |_| Some(w)));
    }
    all.extend(in_rows("round(sqrt(numprocs))", root).into_iter().map(|c| c.of(Demand::Square)));
    all
}

/// Neighbours and the like on a grid whose rows are so wide.
fn in_rows(w: &str, width: impl Fn(i64) -> Option<i64> + Copy + 'static) -> Vec<Candidate> {
    vec![
        candidate(format!("procnum + {w}"), move |x| Some(x.p + width(x.n)?)),
        candidate(format!("procnum - {w}"), move |x| Some(x.p - width(x.n)?)),
        candidate(format!("(procnum + {w}) % numprocs"), move |x| Some((x.p + width(x.n)?) % x.n)),
        candidate(format!("(procnum + numprocs - {w}) % numprocs"), move |x| Some((x.p + x.n - width(x.n)?) % x.n)),
        candidate(format!("procnum/{w}*{w}"), move |x| Some(x.p / width(x.n)? * width(x.n)?)),
        candidate(format!("procnum/{w}*{w} + {w} - 1"), move |x| {
            Some(x.p / width(x.n)? * width(x.n)? + width(x.n)? - 1)
        }),
        candidate(format!("procnum/{w}*{w} + (procnum + 1) % {w}"), move |x| {
            Some(x.p / width(x.n)? * width(x.n)? + (x.p + 1) % width(x.n)?)
        }),
        candidate(format!("procnum/{w}*{w} + (procnum + {w} - 1) % {w}"), move |x| {
            Some(x.p / width(x.n)? * width(x.n)? + (x.p + width(x.n)? - 1) % width(x.n)?)
        }),
        candidate(format!("procnum % {w}"), move |x| Some(x.p % width(x.n)?)),
        candidate(format!("procnum % {w}*{w} + procnum/{w}"), move |x| {
            Some(x.p % width(x.n)? * width(x.n)? + x.p / width(x.n)?)
        }),
    ]
}

fn indexed_processes(points: &[Point], i: &str) -> Vec<Candidate> {
    let Some(point) = points.first() else { return Vec::new() };
    let c = point.v - point.i;
    let sum = point.v + point.i;
    let from_end = point.n - 1 - sum;
    let up = (point.v - point.p - point.i).rem_euclid(point.n.max(1));
    let down = (point.p - point.i - point.v).rem_euclid(point.n.max(1));
    let skip = |x: &Point, v: i64| v + i64::from(v >= x.p);
    let low = |x: &Point| if x.p == 0 { x.n } else { x.p & -x.p };
    let mask = point.v ^ point.p ^ point.i;
    vec![
        candidate(format!("{i}{}", plus(c)), move |x| Some(x.i + c)),
        candidate(format!("{i} + ({i} >= procnum)"), move |x| Some(skip(x, x.i))),
        candidate(format!("(procnum + {i}{}) % numprocs", plus(up)), move |x| Some((x.p + x.i + up) % x.n)),
        candidate(format!("(procnum + numprocs - {i}{}) % numprocs", plus(-down)), move |x| {
            (x.p + x.n - x.i - down >= 0).then(|| (x.p + x.n - x.i - down) % x.n)
        }),
        candidate(format!("(procnum ^ (1 << {i}))"), |x| Some(x.p ^ power(x.i)?)).of(Demand::PowerOfTwo),
        candidate(format!("(procnum ^ (numprocs >> ({i} + 1)))"), |x| Some(x.p ^ (x.n >> (x.i + 1).min(62))))
            .of(Demand::PowerOfTwo),
        candidate(format!("procnum + (1 << {i})"), |x| Some(x.p + power(x.i)?)),
        candidate(format!("procnum - (1 << {i})"), |x| Some(x.p - power(x.i)?)),
        candidate(format!("(procnum + (1 << {i})) % numprocs"), |x| Some((x.p + power(x.i)?) % x.n)),
        candidate(format!("(procnum + numprocs - (1 << {i})) % numprocs"), |x| {
            Some((x.p + x.n - power(x.i)?).rem_euclid(x.n))
        }),
        candidate(format!("procnum + (1 << ({i} + ceil(log2(procnum + 1))))"), |x| {
            Some(x.p + power(x.i + log2_up(x.p + 1)?)?)
        }),
        candidate(format!("procnum + ((procnum == 0 ? numprocs : procnum & -procnum) >> ({i} + 1))"), move |x| {
            Some(x.p + (low(x) >> (x.i + 1).min(62)))
        })
        .of(Demand::PowerOfTwo),
        candidate(format!("(procnum ^ ({i}{}))", plus(mask)), move |x| Some(x.p ^ (x.i + mask))).of(Demand::PowerOfTwo),
        candidate(format!("{sum} - {i}"), move |x| Some(sum - x.i)),
        candidate(format!("numprocs - 1{} - {i}", plus(-from_end)), move |x| Some(x.n - 1 - from_end - x.i)),
        candidate(format!("procnum + {i}{}", plus(point.v - point.p - point.i)), {
            let d = point.v - point.p - point.i;
            move |x| Some(x.p + x.i + d)
        }),
    ]
}

/// A size, tag, number of a request or of iterations. `scales`: it may depend on the number of
/// processes though only one was recorded; else a number is a number.
#[must_use]
pub fn number(points: &[Point], index: Option<&str>, scales: bool) -> Option<Rule> {
    let point = points.first()?;
    let c = point.v;
    let mut all = Vec::new();
    if let Some(i) = index {
        let step =
            points.iter().find(|p| (p.n, p.p) == (point.n, point.p) && p.i == point.i + 1).map_or(0, |p| p.v - c);
        let base = c - step * point.i;
        all.push(candidate(format!("{base} + {step}*{i}"), move |x| step.checked_mul(x.i)?.checked_add(base)));
        all.push(candidate(format!("({c} << {i})"), move |x| c.checked_mul(power(x.i)?)));
        all.push(candidate(format!("({c} >> {i})"), move |x| Some(c >> x.i.clamp(0, 62))));
        return first(all, points);
    }
    let one_count = points.iter().all(|p| p.n == point.n);
    let plain = candidate(c.to_string(), move |_| Some(c));
    if !(scales && one_count) && plain.holds(points) {
        return Some(rule(plain.text, None));
    }
    all.extend(counted());
    all.push(plain);
    if !one_count || !points.iter().all(|p| p.v == c) {
        all.extend(proportional(points));
    }
    all.extend(blocks(points));
    let d = c - point.p;
    all.push(candidate(format!("procnum{}", plus(d)), move |x| Some(x.p + d)));
    let e = c - (point.n - point.p);
    all.push(candidate(format!("numprocs - procnum{}", plus(e)), move |x| Some(x.n - x.p + e)));
    first(all, points)
}

/// Numbers of iterations that go with the number of processes.
fn counted() -> Vec<Candidate> {
    vec![
        candidate("numprocs - 1", |x| Some(x.n - 1)),
        candidate("numprocs", |x| Some(x.n)),
        candidate("numprocs - 2", |x| Some(x.n - 2)),
        candidate("floor(log2(numprocs))", |x| log2(x.n).filter(|l| 1 << l == x.n)).of(Demand::PowerOfTwo),
        candidate("ceil(log2(numprocs))", |x| log2_up(x.n)),
        candidate("floor(log2(numprocs)) - ceil(log2(procnum + 1))", |x| Some(log2(x.n)? - log2_up(x.p + 1)?))
            .of(Demand::PowerOfTwo),
        candidate("floor(log2(procnum == 0 ? numprocs : procnum & -procnum))", |x| {
            log2(if x.p == 0 { x.n } else { x.p & -x.p })
        })
        .of(Demand::PowerOfTwo),
        candidate("numprocs/2", |x| (x.n % 2 == 0).then_some(x.n / 2)).of(Demand::Even),
        candidate("round(sqrt(numprocs))", |x| root(x.n)).of(Demand::Square),
        candidate("round(sqrt(numprocs)) - 1", |x| Some(root(x.n)? - 1)).of(Demand::Square),
    ]
}

/// Numbers in proportion to a power of the number of processes.
fn proportional(points: &[Point]) -> Vec<Candidate> {
    let Some(point) = points.first() else { return Vec::new() };
    let (c, n) = (point.v, point.n);
    let mut all = Vec::new();
    // Quotients are cut: what is divided is at least the greatest that any of them shows.
    let whole = |part: &dyn Fn(i64) -> Option<i64>| {
        let each: Option<Vec<i64>> = points.iter().map(|x| x.v.checked_mul(part(x.n)?)).collect();
        each?.into_iter().max()
    };
    if let Some(total) = whole(&Some) {
        all.push(candidate(format!("{total}/numprocs"), move |x| Some(total / x.n)));
    }
    if let Some(total) = whole(&|n| n.checked_mul(n)) {
        all.push(candidate(format!("{total}/(numprocs*numprocs)"), move |x| Some(total / (x.n * x.n))));
    }
    if c % n == 0 {
        let one = c / n;
        all.push(candidate(format!("{one}*numprocs"), move |x| one.checked_mul(x.n)));
    }
    if n > 1 && c % (n - 1) == 0 {
        let one = c / (n - 1);
        all.push(candidate(format!("{one}*(numprocs - 1)"), move |x| one.checked_mul(x.n - 1)));
    }
    if let Some(log) = log2(n).filter(|l| *l > 0 && c % l == 0) {
        let one = c / log;
        all.push(
            candidate(format!("{one}*floor(log2(numprocs))"), move |x| one.checked_mul(log2(x.n)?))
                .of(Demand::PowerOfTwo),
        );
    }
    let square = |x: i64| x.checked_mul(x);
    if let Some(total) = whole(&root) {
        all.push(
            candidate(format!("{total}/round(sqrt(numprocs))"), move |x| Some(total / root(x.n)?)).of(Demand::Square),
        );
    }
    if let Some(one) = square(n).filter(|s| c % s == 0).map(|s| c / s) {
        all.push(candidate(format!("{one}*numprocs*numprocs"), move |x| one.checked_mul(x.n * x.n)));
    }
    all
}

/// Something cut into blocks for all processes, of which some are a little larger.
fn blocks(points: &[Point]) -> Vec<Candidate> {
    let Some(point) = points.first() else { return Vec::new() };
    let n = point.n;
    let own: BTreeSet<(i64, i64)> = points.iter().filter(|p| p.n == n).map(|p| (p.p, p.v)).collect();
    if own.len() as i64 != n || own.iter().map(|(p, _)| p).collect::<BTreeSet<_>>().len() as i64 != n {
        return Vec::new();
    }
    // One number of processes may divide it evenly.
    let unit = points.iter().fold(0, |a, p| gcd(a, p.v));
    let Some(total) = own.iter().try_fold(0i64, |a, (_, v)| a.checked_add(*v)).filter(|_| unit > 0).map(|t| t / unit)
    else {
        return Vec::new();
    };
    vec![
        candidate(format!("{unit}*({total}*(procnum + 1)/numprocs - {total}*procnum/numprocs)"), move |x| {
            let end = |p: i64| total.checked_mul(p).map(|t| t / x.n);
            unit.checked_mul(end(x.p + 1)? - end(x.p)?)
        }),
        candidate(format!("{unit}*({total}/numprocs + (procnum < {total} % numprocs))"), move |x| {
            unit.checked_mul(total / x.n + i64::from(x.p < total % x.n))
        }),
    ]
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// Processes of which pairs of rarer conditions are not tried.
const MANY: usize = 512;

/// Of all (number of processes, process) those in `wanted`, as a condition.
#[must_use]
pub fn condition(all: &[(i64, i64)], wanted: &BTreeSet<(i64, i64)>) -> Option<Rule> {
    let target: Vec<bool> = all.iter().map(|place| wanted.contains(place)).collect();
    let known = |terms: Vec<Term>| -> Vec<(Term, Vec<bool>)> {
        let with = |term: Term| {
            let values = all.iter().map(|(n, p)| (term.holds)(*n, *p)).collect();
            (term, values)
        };
        terms.into_iter().map(with).collect()
    };
    let (plain, more) = (known(plain_terms()), known(grid_terms(all)));
    let same = |values: &[bool]| values == target;
    let single =
        |terms: &[(Term, Vec<bool>)]| terms.iter().find(|(_, v)| same(v)).map(|(t, _)| rule(t.text.clone(), t.demands));
    if let Some(found) = single(&plain) {
        return Some(found);
    }
    let pair = |a: &[(Term, Vec<bool>)], b: &[(Term, Vec<bool>)]| {
        for (s, x) in a {
            for (t, y) in b {
                let both: Vec<bool> = x.iter().zip(y).map(|(a, b)| *a && *b).collect();
                if same(&both) {
                    return Some(rule(format!("{} && {}", s.text, t.text), s.demands.or(t.demands)));
                }
                let either: Vec<bool> = x.iter().zip(y).map(|(a, b)| *a || *b).collect();
                if same(&either) {
                    return Some(rule(format!("({} || {})", s.text, t.text), s.demands.or(t.demands)));
                }
            }
        }
        None
    };
    let both = |all: &[(i64, i64)], terms: &[(Term, Vec<bool>)]| {
        // Some ten thousand pairs: not of very many processes.
        if all.len() > MANY { None } else { pair(terms, terms) }
    };
    if let Some(found) =
        pair(&plain, &plain).or_else(|| single(&more)).or_else(|| pair(&more, &plain)).or_else(|| both(all, &more))
    {
        return Some(found);
    }
    for (s, x) in &plain {
        for (t, y) in &plain {
            for (u, z) in &plain {
                let all_three: Vec<bool> = x.iter().zip(y).zip(z).map(|((a, b), c)| *a && *b && *c).collect();
                if same(&all_three) {
                    return Some(rule(format!("{} && {} && {}", s.text, t.text, u.text), None));
                }
            }
        }
    }
    listed(all, wanted)
}

/// The processes one by one, if the same ones in each run; or, of one run, whichever.
fn listed(all: &[(i64, i64)], wanted: &BTreeSet<(i64, i64)>) -> Option<Rule> {
    let names: BTreeSet<i64> = wanted.iter().map(|(_, p)| *p).collect();
    if names.len() > 64 || !all.iter().all(|place| names.contains(&place.1) == wanted.contains(place)) {
        return None;
    }
    let text = names.iter().map(|p| format!("procnum == {p}")).collect::<Vec<_>>().join(" || ");
    Some(Rule { text: format!("({text})"), demands: None, listed: true })
}

/// A number for each process by name: holds for the recorded number of processes only.
#[must_use]
pub fn table(points: &[Point]) -> Option<Rule> {
    let by_process: BTreeSet<(i64, i64)> = points.iter().map(|x| (x.p, x.v)).collect();
    let processes: BTreeSet<i64> = by_process.iter().map(|(p, _)| *p).collect();
    if processes.len() != by_process.len() || processes.len() > 32 || points.iter().any(|x| x.n != points[0].n) {
        return None;
    }
    let mut rest = by_process.into_iter().rev();
    let mut text = rest.next()?.1.to_string();
    for (p, v) in rest {
        text = format!("procnum == {p} ? {v} : {text}");
    }
    Some(Rule { text: format!("({text})"), demands: None, listed: true })
}

struct Term {
    text: String,
    holds: Box<dyn Fn(i64, i64) -> bool>,
    demands: Option<Demand>,
}

fn term(text: impl Into<String>, holds: impl Fn(i64, i64) -> bool + 'static) -> Term {
    Term { text: text.into(), holds: Box::new(holds), demands: None }
}

fn plain_terms() -> Vec<Term> {
    vec![
        term("1", |_, _| true),
        term("procnum == 0", |_, p| p == 0),
        term("procnum != 0", |_, p| p != 0),
        term("procnum == numprocs - 1", |n, p| p == n - 1),
        term("procnum != numprocs - 1", |n, p| p != n - 1),
        term("procnum % 2 == 0", |_, p| p % 2 == 0),
        term("procnum % 2 == 1", |_, p| p % 2 == 1),
    ]
}

fn grid_terms(all: &[(i64, i64)]) -> Vec<Term> {
    let most = all.iter().map(|(n, _)| *n).max().unwrap_or(0);
    let mut out =
        vec![term("procnum < numprocs/2", |n, p| p < n / 2), term("procnum >= numprocs/2", |n, p| p >= n / 2)];
    out.push(term("(procnum & (procnum - 1)) == 0", |_, p| p > 0 && p & (p - 1) == 0));
    // 2*procnum + 1 is there: the inner ones of a binary tree.
    out.push(term("2*procnum + 1 < numprocs", |n, p| 2 * p + 1 < n));
    out.push(term("2*procnum + 2 < numprocs", |n, p| 2 * p + 2 < n));
    let mut rows = |w: &str, width: Box<dyn Fn(i64) -> i64>, demands: Option<Demand>| {
        let width = std::rc::Rc::new(width);
        let mut add = |text: String, holds: fn(i64, i64, i64) -> bool| {
            let width = std::rc::Rc::clone(&width);
            let holds = move |n: i64, p: i64| {
                let w = width(n);
                w > 0 && holds(n, p, w)
            };
            out.push(Term { text, holds: Box::new(holds), demands });
        };
        add(format!("procnum % {w} == 0"), |_, p, w| p % w == 0);
        add(format!("procnum % {w} != 0"), |_, p, w| p % w != 0);
        add(format!("procnum % {w} == {w} - 1"), |_, p, w| p % w == w - 1);
        add(format!("procnum % {w} != {w} - 1"), |_, p, w| p % w != w - 1);
        add(format!("procnum < {w}"), |_, p, w| p < w);
        add(format!("procnum >= {w}"), |_, p, w| p >= w);
        add(format!("procnum < numprocs - {w}"), |n, p, w| p < n - w);
        add(format!("procnum >= numprocs - {w}"), |n, p, w| p >= n - w);
        add(format!("procnum % (2*{w}) < {w}"), |_, p, w| p % (2 * w) < w);
        add(format!("procnum % (2*{w}) >= {w}"), |_, p, w| p % (2 * w) >= w);
    };
    rows("round(sqrt(numprocs))", Box::new(|n| root(n).unwrap_or(0)), Some(Demand::Square));
    for w in 2..most.clamp(2, 17) {
        rows(&w.to_string(), Box::new(move |_| w), None);
    }
    for c in 1..most.clamp(1, 17) {
        out.push(term(format!("procnum == {c}"), move |_, p| p == c));
        out.push(term(format!("procnum != {c}"), move |_, p| p != c));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(counts: &[i64], of: impl Fn(i64, i64) -> Option<i64>) -> Vec<Point> {
        counts
            .iter()
            .flat_map(|n| (0..*n).map(move |p| (*n, p)))
            .filter_map(|(n, p)| Some(Point { n, p, i: 0, v: of(n, p)? }))
            .collect()
    }

    fn peer(counts: &[i64], of: impl Fn(i64, i64) -> Option<i64>) -> String {
        process(&points(counts, of), None).map_or_else(String::new, |rule| rule.text)
    }

    #[test]
    fn peers_are_said_as_people_would() {
        assert_eq!(peer(&[4], |_, p| (p > 0).then_some(0)), "0");
        assert_eq!(peer(&[4], |n, p| (p < n - 1).then_some(p + 1)), "procnum + 1");
        assert_eq!(peer(&[4], |n, p| Some((p + 1) % n)), "(procnum + 1) % numprocs");
        assert_eq!(peer(&[2, 4], |_, p| Some(p ^ 1)), "(procnum ^ 1)");
        assert_eq!(peer(&[4, 9], |n, p| Some((p + n.isqrt()) % n)), "(procnum + round(sqrt(numprocs))) % numprocs");
        assert_eq!(peer(&[6], |_, p| (p % 3 != 2).then_some(p / 3 * 3 + p % 3 + 1)), "procnum + 1");
        assert_eq!(peer(&[6], |_, p| Some(p / 3 * 3 + (p + 1) % 3)), "procnum/3*3 + (procnum + 1) % 3");
        assert_eq!(peer(&[8], |_, p| (p > 0).then(|| p & (p - 1))), "(procnum & (procnum - 1))");
        assert_eq!(
            peer(&[4], |n, p| Some(if p == n - 1 { -1 } else { p + 1 })),
            "(procnum == numprocs - 1 ? -1 : procnum + 1)"
        );
        // By no rule.
        assert_eq!(peer(&[5], |_, p| [3, 0, 4, 1, 2].get(p as usize).copied()), "");
    }

    #[test]
    fn numbers_depend_on_the_count_where_two_counts_show_it() {
        let text = |counts: &[i64], of: &dyn Fn(i64, i64) -> i64| {
            number(&points(counts, |n, p| Some(of(n, p))), None, false).map_or_else(String::new, |rule| rule.text)
        };
        assert_eq!(text(&[4], &|_, _| 1024), "1024");
        assert_eq!(text(&[2, 4], &|n, _| 4096 / n), "4096/numprocs");
        assert_eq!(text(&[2, 4], &|n, _| 65536 / n / n), "65536/(numprocs*numprocs)");
        assert_eq!(text(&[2, 8], &|n, _| n - 1), "numprocs - 1");
        assert_eq!(
            text(&[3], &|n, p| 8 * (100 * (p + 1) / n - 100 * p / n)),
            "8*(100*(procnum + 1)/numprocs - 100*procnum/numprocs)"
        );
        assert_eq!(text(&[2, 4, 8], &|n, _| [0, 0, 7, 0, 3, 0, 0, 0, 5][n as usize]), "");
    }

    #[test]
    fn sets_of_processes_become_conditions() {
        let of = |counts: &[i64], holds: &dyn Fn(i64, i64) -> bool| {
            let all: Vec<(i64, i64)> = counts.iter().flat_map(|n| (0..*n).map(move |p| (*n, p))).collect();
            let wanted = all.iter().copied().filter(|(n, p)| holds(*n, *p)).collect();
            condition(&all, &wanted).map_or_else(String::new, |rule| rule.text)
        };
        assert_eq!(of(&[4], &|_, p| p == 0), "procnum == 0");
        assert_eq!(of(&[2, 4], &|_, p| p % 2 == 0 && p != 0), "procnum != 0 && procnum % 2 == 0");
        assert_eq!(of(&[2, 4], &|n, p| p % 2 == 1 && p != n - 1), "procnum != numprocs - 1 && procnum % 2 == 1");
        assert_eq!(of(&[9], &|_, p| p % 3 != 2), "procnum % round(sqrt(numprocs)) != round(sqrt(numprocs)) - 1");
        assert_eq!(of(&[2, 4], &|_, p| p == 1), "procnum == 1");
        assert!(of(&[8], &|_, p| [1, 4, 6].contains(&p)).starts_with("(procnum == 1 ||"));
    }
}
