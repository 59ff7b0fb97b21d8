//! The page in a real browser: its own script runs, strangers' do not, the diagram shows a run and
//! can be zoomed.
//!
//! Without Chromium on PATH this is reported as ignored, which the suite counts as skipped: hence a
//! harness of its own.

mod common;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const NAME: &str = "the_diagram_works_in_a_browser";

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

/// Uses the diagram as a person would, and leaves what it found in the document.
const PROBE: &str = r"
window.addEventListener('load', function () {
  var canvas = document.getElementById('spacetime'), told = document.getElementById('window'), tip = document.getElementById('tip');
  var said = { whole: told.textContent };
  function painted() {
    var pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, colours = {};
    for (var i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) colours[[pixels[i], pixels[i + 1], pixels[i + 2]]] = 1;
    return Object.keys(colours).length;
  }
  said.colours = painted();
  function key(name) { canvas.dispatchEvent(new KeyboardEvent('keydown', { key: name })); }
  key('+'); key('+'); key('+'); key('+');
  said.zoomed = told.textContent;
  key('ArrowRight');
  said.moved = told.textContent;
  var box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + 22 + (box.height - 22) / 16 }));
  said.tip = tip.hidden ? '' : tip.textContent;
  document.getElementById('whole').click();
  said.back = told.textContent;
  said.wide = document.documentElement.scrollWidth <= window.innerWidth;
  document.body.setAttribute('data-said', JSON.stringify(said));
});";

fn check(browser: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let page = weir_scene::page::html(&common::scene());
    // As it is: a script that the policy does not name must not run, and the page's own must.
    let intruder = "<script>document.body.setAttribute('data-intruder', 'ran')</script></body>";
    let dom = dom_of(browser, dir.path(), &page.replace("</body>", intruder));
    assert!(!dom.contains("data-intruder=\"ran\""), "a stranger's script ran");
    assert!(dom.contains("0 ns to 4 ms, 320 messages</output>"), "the page's own script did not run");
    let start = page.find("<meta http-equiv").expect("a policy");
    let end = start + page[start..].find('\n').expect("a line");
    let probed =
        format!("{}{}", &page[..start], &page[end..]).replace("</body>", &format!("<script>{PROBE}</script></body>"));
    let dom = dom_of(browser, dir.path(), &probed);
    let said = dom.split("data-said=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("the probe ended");
    let said: serde_json::Value = serde_json::from_str(&said.replace("&quot;", "\"")).expect("JSON");
    assert_eq!(said["whole"], "0 ns to 4 ms, 320 messages");
    assert!(said["colours"].as_u64().is_some_and(|n| n >= 4), "{said}");
    assert_eq!(said["zoomed"], "1.875 ms to 2.125 ms, 24 messages");
    assert_eq!(said["moved"], "1.925 ms to 2.175 ms, 24 messages");
    let tip = said["tip"].as_str().unwrap_or("");
    assert!(tip.starts_with("rank 0: ") && tip.contains("jacobi.c:"), "{said}");
    assert_eq!(said["back"], said["whole"]);
    assert_eq!(said["wide"], true, "nothing reaches beyond the window");
}

fn dom_of(browser: &str, dir: &Path, page: &str) -> String {
    let file = dir.join("page.html");
    std::fs::write(&file, page).expect("written");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(["--window-size=1280,900", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
