//! The page in a real browser: it runs, its controls work, and its policy keeps strangers' scripts
//! out.
//!
//! Without Chromium on PATH this is reported as ignored, which the suite counts as skipped: hence a
//! harness of its own.

mod common;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const NAME: &str = "the_page_works_in_a_browser";

fn main() -> ExitCode {
    println!("\nrunning 1 test");
    let Some(browser) = BROWSERS
        .into_iter()
        .find(|b| Command::new(b).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok())
    else {
        println!("test {NAME} ... ignored, no chromium on PATH");
        println!("\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n");
        return ExitCode::SUCCESS;
    };
    let outcome = std::panic::catch_unwind(|| check(browser));
    let (word, passed, failed) = if outcome.is_ok() { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("test {NAME} ... {word}");
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
    );
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Uses the page as a person would, and leaves what it found in the document.
const PROBE: &str = r"
window.addEventListener('load', function () {
  var said = {};
  var list = function (s, from) { return Array.prototype.slice.call((from || document).querySelectorAll(s)); };
  function seen(e) { return e.getClientRects().length > 0; }
  function shown(s) { return list(s).filter(seen).length; }
  function choose(control, value) { control.value = value; control.dispatchEvent(new Event('change')); }
  said.width = window.innerWidth;
  function closed() { return list('details[data-operation]').filter(function (d) { return !d.open; }).length; }
  said.closed = closed();
  var tile = document.querySelector('a.tile'), target = document.getElementById(tile.getAttribute('href').slice(1));
  tile.click();
  said.opened = target.open && list('table', target).some(seen);
  var all = document.getElementById('open');
  if (closed()) all.click();
  said.closedAfter = closed();
  said.operations = list('[data-operation]').filter(seen).map(function (s) { return s.querySelector('h2').textContent; });
  said.tables = list('[data-operation] table').filter(seen).map(function (t) {
    return [t.caption.textContent, t.rows[0].cells[1].textContent, t.tBodies[0].rows.length];
  });
  said.log = shown('[data-scale=log]'); said.linear = shown('[data-scale=linear]');
  said.wide = document.documentElement.scrollWidth <= window.innerWidth;
  said.sideways = list('main *, header *').filter(function (e) {
    return seen(e) && !e.closest('svg') && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible';
  }).map(function (e) { return e.tagName + ' ' + e.className + ' ' + (e.getAttribute('aria-label') || ''); });
  said.letters = letters();
  var linear = document.querySelector('input[value=linear]');
  linear.checked = true; linear.dispatchEvent(new Event('change'));
  said.logAfter = shown('[data-scale=log]'); said.linearAfter = shown('[data-scale=linear]');
  said.lettersAfter = letters();
  choose(document.querySelector('select.level'), '0');
  said.caption = list('caption').filter(seen).filter(function (c) { return c.closest('[data-operation]'); })[0].textContent;
  var operation = document.getElementById('operation');
  choose(operation, operation.options[1].value);
  said.operationsAfter = shown('[data-operation]');
  var figure = list('figure').filter(function (f) { return seen(f) && f.querySelector('.hit'); })[0];
  figure.focus();
  var tip = document.getElementById('tip'), chart = figure.querySelector('.chart').getBoundingClientRect();
  said.keys = []; said.away = 0;
  do {
    figure.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
    said.keys.push(tip.textContent);
    var ring = figure.querySelector('.lit').getBoundingClientRect();
    if (ring.left < chart.left - 1 || ring.right > chart.right + 1) said.away += 1;
  } while (said.keys.length < figure.steps.length);
  figure.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
  said.again = tip.textContent;
  var svg = figure.querySelector('svg'), box = svg.getBoundingClientRect(), hit = figure.points[1], view = svg.viewBox.baseVal;
  var unit = box.width / view.width;
  function point(kind, type, at) {
    figure.dispatchEvent(new PointerEvent(kind, { pointerType: type,
      clientX: box.left + (at.x - view.x) * unit, clientY: box.top + (at.y - view.y) * unit }));
  }
  point('pointermove', 'mouse', hit);
  said.hover = tip.textContent; said.expected = hit.text;
  point('pointerleave', 'mouse', hit);
  said.left = tip.hidden;
  point('pointerdown', 'touch', figure.points[0]); point('pointerleave', 'touch', figure.points[0]);
  said.tapped = tip.hidden ? '' : tip.textContent; said.first = figure.points[0].text;
  parent.postMessage(JSON.stringify(said), '*');

  // Letters of the charts that are shown: the least size, which of them touch each other, which
  // are cut off.
  function letters() {
    var out = { least: 99, touching: [], cut: [], all: 0 };
    list('figure, a.tile').filter(seen).forEach(function (figure) {
      var svg = figure.querySelector('svg'), whole = svg.getBoundingClientRect();
      var unit = whole.width / svg.viewBox.baseVal.width;
      var texts = list('text', svg).filter(function (t) { return t.textContent.trim() !== ''; }).map(function (t) {
        out.least = Math.min(out.least, parseFloat(getComputedStyle(t).fontSize) * unit);
        return { box: t.getBoundingClientRect(), words: figure.querySelector('strong').textContent + ': ' + t.textContent };
      });
      out.all += texts.length;
      texts.forEach(function (a, i) {
        if (a.box.left < whole.left - 1 || a.box.right > whole.right + 1 || a.box.top < whole.top - 1 || a.box.bottom > whole.bottom + 1) out.cut.push(a.words);
        texts.slice(i + 1).forEach(function (b) {
          // Boxes hold ascenders and descenders: the space between two lines of text is part of
          // both.
          var across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
          var down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
          if (across > 1 * unit && down > 5 * unit) out.touching.push(a.words + ' / ' + b.words);
        });
      });
    });
    return out;
  }
});";

fn check(browser: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let load = |name: &str, shape: &common::Shape| {
        common::write(&dir.path().join(name), shape).expect("written");
        weir_report::load(&dir.path().join(name)).expect("read")
    };
    let small = common::Shape::small();
    let one = load("one", &small);
    let page = weir_report::page::of_run(&one);
    // As it is: a script that the policy does not name must not run.
    let intruder = "<script>document.body.setAttribute('data-intruder', 'ran')</script></body>";
    let dom = dom_of(browser, dir.path(), &page.replace("</body>", intruder), 1280);
    assert!(!dom.contains("data-intruder=\"ran\""), "a stranger's script ran");
    assert!(dom.contains("class=\"js\""), "the page's own script did not run");

    let several = load(
        "several",
        &common::Shape {
            launches: 3,
            launch_spread: 0.1,
            factor: 1.3,
            sizes: common::Shape::typical().sizes,
            seed: 2,
            ..small.clone()
        },
    );
    let comparison = weir_report::compare::compare(&one, &several);
    let two = weir_report::page::of_two(&one, &several, &comparison);
    let several = weir_report::page::of_run(&several);
    let many = load(
        "many",
        &common::Shape { messages: vec!["send", "isend", "sendrecv"], collectives: vec!["bcast", "barrier"], ..small },
    );
    let many = weir_report::page::of_run(&many);
    for width in [WIDE, 1280, PHONE] {
        for (page, case) in
            [(&page, "one launch"), (&several, "several launches"), (&two, "a comparison"), (&many, "many operations")]
        {
            let case = format!("{case} at width {width}");
            let said = said(&framed(browser, dir.path(), &probed(page), width), &case);
            used(&said, width, &case);
            assert_eq!(said["closed"], if page == &many { 5 } else { 0 }, "{case}: closed at first");
        }
        shown(&said(&framed(browser, dir.path(), &probed(&page), width), "tables"));
    }
}

/// The width of a phone, and that of a wide screen.
const PHONE: u32 = 390;
const WIDE: u32 = 1900;

/// What the page of one launch shows at first.
fn shown(said: &serde_json::Value) {
    assert_eq!(said["operations"], serde_json::json!(["send", "barrier"]));
    let expected = serde_json::json!([
        ["send, 4 pairs, 4 × 2", "minimum", 4],
        ["send: fits, 4 pairs, 4 × 2", "chosen family", 4],
        ["barrier, 4 × 4", "minimum", 1],
        ["barrier: fits, 4 × 4", "chosen family", 1],
    ]);
    assert_eq!(
        said["tables"], expected,
        "of each operation the times and the fits of one level: caption, first column, rows"
    );
}

/// The page with the probe, and without the policy, which would keep the probe out.
fn probed(page: &str) -> String {
    let start = page.find("<meta http-equiv").expect("a policy");
    let end = start + page[start..].find('\n').expect("a line");
    format!("{}{}", &page[..start], &page[end..]).replace("</body>", &format!("<script>{PROBE}</script></body>"))
}

/// What the probe left.
fn said(dom: &str, case: &str) -> serde_json::Value {
    let said = dom
        .split("data-said=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_else(|| panic!("the probe did not end, {case}"));
    let said = said.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&said).expect("JSON")
}

fn used(said: &serde_json::Value, width: u32, case: &str) {
    let number = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("{name} in {said}"));
    assert_eq!(number("width"), u64::from(width), "{case}: the window");
    assert!(number("log") > 0 && number("linear") == 0, "{case}: {said}");
    assert!(number("logAfter") == 0 && number("linearAfter") == number("log"), "{case}: {said}");
    let caption = said["caption"].as_str().unwrap_or_default();
    assert!(caption.ends_with("send, 1 pair, 4 × 1"), "{case}: the level that was chosen: {caption}");
    assert_eq!(number("operationsAfter"), 1, "{case}");
    let keys = said["keys"].as_array().expect("a list");
    assert!(keys.len() > 3 && keys.iter().all(|k| k.as_str().is_some_and(|k| k.contains("B: "))), "{case}: {keys:?}");
    let different: std::collections::BTreeSet<&str> = keys.iter().filter_map(|k| k.as_str()).collect();
    assert_eq!(different.len(), keys.len(), "{case}: each value once: {keys:?}");
    assert_eq!(said["again"], keys[0], "{case}: after the last comes the first");
    assert_eq!(number("away"), 0, "{case}: values that keys come to and nobody sees");
    assert_eq!(said["hover"], said["expected"], "{case}: the pointer shows values");
    assert_eq!(said["left"], true, "{case}: and nothing where it is gone");
    assert_eq!(said["tapped"], said["first"], "{case}: a tap shows values, and they stay");
    assert_eq!(said["wide"], true, "{case}: nothing reaches beyond the window");
    assert_eq!(said["sideways"], serde_json::json!([]), "{case}: nothing scrolls sideways");
    assert_eq!(said["opened"], true, "{case}: a picture opens its operation");
    assert_eq!(number("closedAfter"), 0, "{case}: the button opens all");
    for letters in ["letters", "lettersAfter"] {
        let letters = &said[letters];
        assert!(letters["all"].as_u64().is_some_and(|n| n > 30), "{case}: {letters}");
        assert!(letters["least"].as_f64().is_some_and(|px| px >= 10.0), "{case}: letters of {} px", letters["least"]);
        for fault in ["touching", "cut"] {
            assert_eq!(letters[fault], serde_json::json!([]), "{case}: {fault}");
        }
    }
}

/// The document around a page that is shown as wide as asked for, which headless Chromium's own
/// window is not below 500, with what the page's probe found.
fn framed(browser: &str, dir: &Path, page: &str, width: u32) -> String {
    std::fs::write(dir.join("inside.html"), page).expect("written");
    let around = format!(
        "<!DOCTYPE html><body><script>addEventListener('message', function (e) {{ document.body.setAttribute('data-said', e.data); }});</script>\
         <iframe src=\"inside.html\" style=\"border:0;width:{width}px;height:900px\"></iframe></body>"
    );
    dom_of(browser, dir, &around, WIDE + 100)
}

fn dom_of(browser: &str, dir: &Path, page: &str, width: u32) -> String {
    let file = dir.join("page.html");
    std::fs::write(&file, page).expect("written");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args([&format!("--window-size={width},900"), "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
