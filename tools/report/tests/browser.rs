//! The page in a real browser: it runs, its controls work, and its policy keeps strangers' scripts out.
//!
//! Without Chromium on PATH this is reported as ignored, which the suite counts as skipped: hence a harness of its own.

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
  function shown(list) { return Array.prototype.filter.call(list, function (e) { return e.getClientRects().length > 0; }).length; }
  var all = function (s) { return document.querySelectorAll(s); };
  said.operations = shown(all('section[data-operation]'));
  said.tables = shown(all('section[data-operation] table'));
  said.log = shown(all('[data-scale=log]')); said.linear = shown(all('[data-scale=linear]'));
  var linear = document.querySelector('input[value=linear]');
  linear.checked = true; linear.dispatchEvent(new Event('change'));
  said.logAfter = shown(all('[data-scale=log]')); said.linearAfter = shown(all('[data-scale=linear]'));
  var level = document.querySelector('select.level');
  level.value = '0'; level.dispatchEvent(new Event('change'));
  said.caption = Array.prototype.filter.call(all('caption'), function (c) { return c.getClientRects().length > 0; })[0].textContent;
  var operation = document.getElementById('operation');
  operation.value = operation.options[1].value; operation.dispatchEvent(new Event('change'));
  said.operationsAfter = shown(all('section[data-operation]'));
  var figure = Array.prototype.filter.call(all('figure'), function (f) { return f.getClientRects().length > 0; })[0];
  figure.focus();
  figure.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
  said.tip = document.getElementById('tip').textContent;
  var svg = figure.querySelector('svg'), box = svg.getBoundingClientRect(), hit = figure.points[1];
  var unit = box.width / svg.viewBox.baseVal.width;
  figure.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + hit.x * unit, clientY: box.top + hit.y * unit }));
  said.hover = document.getElementById('tip').textContent; said.expected = hit.text;
  said.wide = document.documentElement.scrollWidth <= window.innerWidth;
  document.body.setAttribute('data-said', JSON.stringify(said));
});";

fn check(browser: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    common::write(&dir.path().join("run"), &common::Shape::small()).expect("written");
    let digest = weir_report::load(&dir.path().join("run")).expect("read");
    let page = weir_report::page::of_run(&digest);
    // As it is: a script that the policy does not name must not run.
    let intruder = "<script>document.body.setAttribute('data-intruder', 'ran')</script></body>";
    let dom = dom_of(browser, dir.path(), &page.replace("</body>", intruder), 1280);
    assert!(!dom.contains("data-intruder=\"ran\""), "a stranger's script ran");
    assert!(dom.contains("class=\"js\""), "the page's own script did not run");
    for width in [1280, 500] {
        used(&dom_of(browser, dir.path(), &probed(&page), width), &format!("at width {width}"));
    }
}

/// The page with the probe, and without the policy, which would keep the probe out.
fn probed(page: &str) -> String {
    let start = page.find("<meta http-equiv").expect("a policy");
    let end = start + page[start..].find('\n').expect("a line");
    format!("{}{}", &page[..start], &page[end..]).replace("</body>", &format!("<script>{PROBE}</script></body>"))
}

fn used(dom: &str, case: &str) {
    let said = dom
        .split("data-said=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_else(|| panic!("the probe did not end, {case}"));
    let said: serde_json::Value =
        serde_json::from_str(&said.replace("&quot;", "\"").replace("&amp;", "&")).expect("JSON");
    let number = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("{name} in {said}"));
    assert_eq!(
        (number("operations"), number("tables")),
        (2, 4),
        "of each operation the times and the fits of one level are shown, {case}: {said}"
    );
    assert!(number("log") > 0 && number("linear") == 0, "{said}");
    assert!(number("logAfter") == 0 && number("linearAfter") == number("log"), "{said}");
    assert_eq!(said["caption"], "send, 1 pair, 4 × 1", "{case}");
    assert_eq!(number("operationsAfter"), 1);
    assert!(said["tip"].as_str().is_some_and(|t| t.contains("median")), "keys show values: {said}");
    assert_eq!(said["hover"], said["expected"], "the pointer shows values");
    assert_eq!(said["wide"], true, "nothing reaches beyond the window, {case}");
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
