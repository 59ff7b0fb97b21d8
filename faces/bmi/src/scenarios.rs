//! Libraries in this process that talk to each other, or to bytes written here by hand: what no program in C sees.

use crate::codes::INIT_SERVER;
use crate::library::Library;
use crate::settings::Settings;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn settings(vars: &[(&str, &str)]) -> Settings {
    let all = [vars, &[("WEIR_BMI_OPEN", "1"), ("WEIR_LINGER_MS", "10")]].concat();
    Settings::read(&|name| all.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())).expect("valid")
}

/// A server of one method, and where it is.
fn server(scheme: &str, vars: &[(&str, &str)]) -> (Library, String) {
    let at = format!("{scheme}://127.0.0.1:0");
    let method = format!("bmi_{scheme}");
    let library = Library::with(settings(vars), Some(&method), Some(&at), INIT_SERVER).expect("it listens");
    let url = format!("{scheme}://127.0.0.1:{}", library.methods()[0].port());
    (library, url)
}

/// Makes progress until something is so.
fn until(library: &mut Library, mut is_so: impl FnMut(&mut Library) -> bool) {
    let begun = Instant::now();
    while !is_so(library) {
        assert!(begun.elapsed() < LIMIT, "it does not happen");
        library.progress();
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// F6, W4: what nobody looks at wakes nobody, and goes with who sent it.
#[test]
fn a_message_of_a_class_that_nobody_looks_at_is_no_news_and_its_memory_comes_back() {
    let (mut server, url) = server("tcp", &[]);
    let mut rude = TcpStream::connect(url.trim_start_matches("tcp://")).expect("it listens");
    let header = crate::tcp::codec::Header::of(1, 5000, Some(9));
    rude.write_all(&header.encode(crate::tcp::codec::Wire::Radix)).expect("sent");
    rude.write_all(&[0; 5000]).expect("sent");
    until(&mut server, |s| s.buffered() == 5000 && !s.t.inbox.is_empty());
    assert!(!server.t.inbox.is_wanted() && server.next_unexpected(0).is_none());
    drop(rude);
    until(&mut server, |s| s.buffered() == 0 && s.t.inbox.is_empty() && s.t.addrs.is_empty());
}
