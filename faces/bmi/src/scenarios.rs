//! Libraries in this process that talk to each other, or to bytes written here by hand: what no
//! program in C sees.

use crate::addresses::AddrKey;
use crate::codes::{Code, INIT_SERVER};
use crate::library::{Library, Lookup, Wanted};
use crate::memory::Use;
use crate::method::Kind;
use crate::settings::Settings;
use crate::tables::Posted;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_engine::Iov;

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

fn look_up(library: &mut Library, text: &str) -> AddrKey {
    match library.lookup(text).expect("good") {
        Lookup::Known(addr) => addr,
        Lookup::Unresolved(kind, url) => {
            library.looked_up(text, kind, url.resolve().expect("an address")).expect("room")
        }
    }
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

/// M9: short ones and long ones, some of which have to be fetched when others are there.
#[test]
fn unexpected_messages_of_one_client_are_handed_out_as_they_were_sent() {
    const MESSAGES: i32 = 300;
    for (scheme, carrier) in [("tcp", "auto"), ("weir", "udp"), ("weir", "shm")] {
        let vars = [("WEIR_CARRIER", carrier)];
        let (mut server, url) = server(scheme, &vars);
        let mut client = Library::with(settings(&vars), None, None, 0).expect("a client");
        let context = client.t.ops.open_context().expect("room") as i64;
        let addr = look_up(&mut client, &url);
        let mut data = vec![7u8; 16_000];
        for tag in 0..MESSAGES {
            let len = [8, 16_000, 300, 5000][tag as usize % 4];
            let pieces = [Iov { base: data.as_mut_ptr(), len }];
            let size = len as u64;
            let wanted =
                Wanted { addr, tag, unexpected: Some(0), pieces: &pieces, size, is_recv: false, user_ptr: 0, context };
            client.post(&wanted).expect("posted");
        }
        let (mut got, begun) = (Vec::new(), Instant::now());
        while got.len() < MESSAGES as usize {
            assert!(begun.elapsed() < LIMIT, "{scheme} {carrier}: {got:?}");
            client.progress();
            server.progress();
            // (One at a time at first, then as many as there are.)
            let most = if got.len() < 50 { 1 } else { 64 };
            server.take_unexpected(0, most, |_, message| got.push(message.tag));
        }
        assert_eq!(got, (0..MESSAGES).collect::<Vec<_>>(), "{scheme} {carrier}");
    }
}

/// A1, P11.
#[test]
fn a_server_that_names_no_port_listens_at_a_free_one() {
    for scheme in ["tcp", "weir"] {
        let (method, at) = (format!("bmi_{scheme}"), format!("{scheme}://127.0.0.1"));
        let begin = || Library::with(settings(&[]), Some(&method), Some(&at), INIT_SERVER).expect("it listens");
        let both = [begin(), begin()];
        let ports = both.each_ref().map(|library| library.get(None, crate::codes::option::TCP_GET_PORT));
        assert!(ports.iter().all(|port| port.is_ok_and(|port| port > 0)) && ports[0] != ports[1], "{ports:?}");
    }
}

/// P11: an address of no host (RFC 5737), this host by name, and all that it has.
#[test]
fn a_server_told_to_listen_at_an_address_that_is_not_of_this_host_is_refused() {
    for scheme in ["tcp", "weir"] {
        for flags in [INIT_SERVER, INIT_SERVER | crate::codes::BIND_SPECIFIC] {
            let begin = |at: &str| {
                let (method, at) = (format!("bmi_{scheme}"), format!("{scheme}://{at}"));
                Library::with(settings(&[]), Some(&method), Some(&at), flags).map(drop)
            };
            for at in ["203.0.113.1:0", "203.0.113.1", "[2001:db8::1]:0"] {
                let only = flags != INIT_SERVER;
                assert_eq!(begin(at), if only { Err(Code::EADDRNOTAVAIL) } else { Ok(()) }, "{scheme} {at} {flags}");
            }
            for at in ["127.0.0.1:0", "127.9.8.7:0", "localhost:0", "0.0.0.0:0"] {
                assert_eq!(begin(at), Ok(()), "{scheme} {at} {flags}");
            }
        }
    }
}

/// A6, F1: whatever other addresses its host has.
#[test]
fn an_address_that_is_dropped_while_it_is_dialled_ends_what_was_posted_for_it() {
    // It accepts nobody, and has no room for more who wait for that.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    deaf.bind(&anywhere.into()).and_then(|()| deaf.listen(0)).expect("a port");
    let at = deaf.local_addr().expect("bound").as_socket().expect("of IP");
    let waiting: Vec<_> =
        (0..100).map_while(|_| TcpStream::connect_timeout(&at, Duration::from_millis(200)).ok()).collect();
    assert!(waiting.len() < 100, "there is room without end");
    let mut client = Library::with(settings(&[]), None, None, 0).expect("a client");
    let context = client.t.ops.open_context().expect("room") as i64;
    let addr = client.looked_up("tcp://two-addresses:1", Kind::Tcp, vec![at, at]).expect("room");
    let mut data = [7u8; 8];
    let pieces = [Iov { base: data.as_mut_ptr(), len: 8 }];
    let keys = [false, true].map(|is_recv| {
        let wanted = Wanted { addr, tag: 3, unexpected: None, pieces: &pieces, size: 8, is_recv, user_ptr: 0, context };
        let (posted, key) = client.post(&wanted).expect("posted");
        assert_eq!(posted, Posted::Begun);
        key
    });
    client.set(Some(addr), crate::codes::option::DROP_ADDR, None).expect("known");
    let ended = keys.map(|key| client.t.ops.collect(key).map(|ended| ended.error));
    assert_eq!(ended, [Some(-Code::ECONNRESET.0); 2]);
    assert!(client.t.addrs.is_empty());
}

/// F5, F1: what is sent to who listens on this host leaves with its post; where nobody does that is
/// told by tests, and of a receive not before its request can be posted.
#[test]
fn a_receive_waits_for_its_request_before_it_asks_who_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("tcp://{}", listener.local_addr().expect("bound"));
    let mut client = Library::with(settings(&[]), None, None, 0).expect("a client");
    let context = client.t.ops.open_context().expect("room") as i64;
    let mut data = [7u8; 8];
    let mut post = |client: &mut Library, is_recv| {
        let addr = look_up(client, &url);
        let pieces = [Iov { base: data.as_mut_ptr(), len: 8 }];
        let wanted = Wanted { addr, tag: 3, unexpected: None, pieces: &pieces, size: 8, is_recv, user_ptr: 0, context };
        let (posted, key) = client.post(&wanted).expect("posted");
        (addr, posted, key)
    };
    let (addr, posted, _) = post(&mut client, false);
    assert_eq!(posted, Posted::Done(8));
    client.set(Some(addr), crate::codes::option::DROP_ADDR, None).expect("known");
    drop(listener);
    let refused = Some(-crate::codes::Code::ECONNREFUSED.0);
    for sends in [true, false] {
        let (addr, _, receive) = post(&mut client, true);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            client.progress();
            let early = begun.elapsed() < Duration::from_millis(50);
            assert!(!early || client.t.ops.get(receive).is_some_and(|op| op.done.is_none()));
        }
        let send = sends.then(|| post(&mut client, false).2);
        for key in [Some(receive), send].into_iter().flatten() {
            until(&mut client, |c| c.t.ops.get(key).is_none_or(|op| op.done.is_some()));
            assert_eq!(client.t.ops.collect(key).map(|e| e.error), refused);
        }
        client.progress();
        assert_eq!((client.t.ops.len(), client.t.addrs.get(addr).map(|a| a.ops)), (0, Some(0)));
    }
}

/// P7, A2.
#[test]
fn the_library_asks_no_resolver_itself() {
    let (mut server, url) = server("tcp", &[]);
    let Ok(Lookup::Unresolved(kind, url_of_name)) = server.lookup("tcp://no-such-host.invalid:7") else {
        panic!("it is not known, and no resolver was asked")
    };
    assert_eq!((kind.scheme(), url_of_name.host), ("tcp", "no-such-host.invalid"));
    // Whoever comes second finds what the first has found.
    let place = vec!["127.0.0.1:7".parse().expect("address")];
    let first = server.looked_up("tcp://name:7", kind, place).expect("new");
    let other = vec!["127.0.0.2:7".parse().expect("address")];
    assert_eq!(server.looked_up("tcp://name:7", kind, other), Ok(first));
    assert_eq!(server.lookup("tcp://name:7"), Ok(Lookup::Known(first)));
    assert_ne!(look_up(&mut server, &url), first);
}

/// A6: memory of an operation that has ended is the program's, with oneself as with others.
#[test]
fn an_operation_with_oneself_is_over_when_its_address_is_dropped() {
    let (mut server, url) = server("weir", &[]);
    let context = server.t.ops.open_context().expect("room") as i64;
    let (mut first, mut second) = ([0u8; 8], [0u8; 8]);
    let post = |server: &mut Library, memory: &mut [u8; 8], is_recv| {
        let addr = look_up(server, &url);
        let pieces = [Iov { base: memory.as_mut_ptr(), len: 8 }];
        let wanted = Wanted { addr, tag: 3, unexpected: None, pieces: &pieces, size: 8, is_recv, user_ptr: 0, context };
        (addr, server.post(&wanted).expect("begun").1)
    };
    let (addr, key) = post(&mut server, &mut first, true);
    // (Who is there has to be asked first.)
    let begun = Instant::now();
    until(&mut server, |_| begun.elapsed() > Duration::from_millis(200));
    server.set(Some(addr), crate::codes::option::DROP_ADDR, None).expect("known");
    assert_eq!(server.t.ops.collect(key).map(|e| e.error), Some(-crate::codes::Code::ECONNRESET.0));
    let (_, key) = post(&mut server, &mut second, true);
    let mut data = [7; 8];
    let (_, sent) = post(&mut server, &mut data, false);
    until(&mut server, |s| s.t.ops.get(key).is_none_or(|op| op.done.is_some()));
    until(&mut server, |s| s.t.ops.get(sent).is_none_or(|op| op.done.is_some()));
    assert_eq!((first, second, data), ([0; 8], [7; 8], [7; 8]));
}

/// T10: whatever leaves, by whatever way, is looked after until it has arrived.
#[test]
fn what_leaves_is_watched_until_it_has_arrived() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("tcp://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || std::io::copy(&mut listener.accept()?.0, &mut std::io::sink()));
    let (mut client, _) = server("tcp", &[("WEIR_PEER_TIMEOUT_MS", "400"), ("WEIR_CONNECT_TIMEOUT_MS", "2000")]);
    let context = client.t.ops.open_context().expect("room") as i64;
    let mut data = [7u8; 8];
    for _ in 0..2 {
        // The first one waits for its connection, the second one finds it.
        let addr = look_up(&mut client, &url);
        let pieces = [Iov { base: data.as_mut_ptr(), len: 8 }];
        let wanted =
            Wanted { addr, tag: 3, unexpected: None, pieces: &pieces, size: 8, is_recv: false, user_ptr: 0, context };
        let (posted, key) = client.post(&wanted).expect("begun");
        if matches!(posted, Posted::Begun) {
            until(&mut client, |c| c.t.ops.get(key).is_none_or(|op| op.done.is_some()));
        }
        assert!(client.methods()[0].next_timeout(true).is_some());
        until(&mut client, |c| c.methods()[0].next_timeout(true).is_none());
    }
}

/// W8, T12: sends that follow several messages or completions wait for each other, and leave with
/// the next pass; nothing waits where another thread sleeps, or after one completion.
#[test]
fn sends_that_follow_several_completions_leave_together() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("tcp://{}", listener.local_addr().expect("bound"));
    let mut client = Library::with(settings(&[("WEIR_COALESCE_NS", "1000000")]), None, None, 0).expect("a client");
    let context = client.t.ops.open_context().expect("room") as i64;
    let addr = look_up(&mut client, &url);
    let mut data = [7u8; 8];
    let mut post = |client: &mut Library| {
        let pieces = [Iov { base: data.as_mut_ptr(), len: 8 }];
        let wanted =
            Wanted { addr, tag: 3, unexpected: None, pieces: &pieces, size: 8, is_recv: false, user_ptr: 0, context };
        client.post(&wanted).expect("begun")
    };
    let first = post(&mut client).1;
    let (mut stream, _) = listener.accept().expect("it dials");
    until(&mut client, |c| c.t.ops.get(first).is_none_or(|op| op.done.is_some()));
    stream.set_nonblocking(true).expect("set");
    let mut come = move || {
        let mut bytes = [0; 4096];
        std::thread::sleep(Duration::from_millis(2));
        std::io::Read::read(&mut stream, &mut bytes).unwrap_or(0)
    };
    assert_eq!(come(), 32);
    for (handed_out, is_alone) in [(1, true), (2, false)] {
        client.is_alone = is_alone;
        client.hands_out(handed_out);
        assert_eq!((post(&mut client).0, come()), (Posted::Done(8), 32));
    }
    client.is_alone = true;
    for cancels in [false, true] {
        let begun = Instant::now();
        let keys = loop {
            client.hands_out(2);
            let posts = [(); 3].map(|()| post(&mut client));
            if posts.iter().all(|(posted, _)| *posted == Posted::Begun) {
                break posts.map(|(_, key)| key);
            }
            // More than the time lay between two: the first did not wait for the others.
            assert!(begun.elapsed() < LIMIT, "they never wait for each other");
            client.progress();
            assert_eq!(come(), 96);
        };
        assert_eq!(come(), 0);
        // What only waits is not taken back.
        if cancels {
            client.cancel(keys[1], context, crate::codes::Code::ECANCEL).expect("known");
        } else {
            client.progress();
        }
        assert_eq!(come(), 96);
        assert!(keys.iter().all(|key| client.t.ops.collect(*key).is_some_and(|ended| ended.error == 0)));
    }
}

/// T11: messages that came together are read together, to their end also where the pass has had its
/// share; what has no room waits, and goes on.
#[test]
fn messages_that_came_together_are_all_taken_however_they_were_cut() {
    use crate::tcp::codec::{Header, Wire};
    for cut in [1, 23, 100, 2047, 2048, 2049, 100_000] {
        let (mut server, url) = server("tcp", &[("WEIR_BMI_PEER_BYTES", "20000")]);
        let mut stream = TcpStream::connect(url.trim_start_matches("tcp://")).expect("it listens");
        let sizes: Vec<u64> = (0..150).map(|i| [0, 8, 300, 2048, 4000][i % 5]).collect();
        let mut all = Vec::new();
        for (tag, &size) in sizes.iter().enumerate() {
            all.extend(&Header::of(tag as i32, size, Some(0)).encode(Wire::OrangeFs)[..Wire::OrangeFs.header_len()]);
            all.extend((0..size).map(|i| (i + tag as u64) as u8));
        }
        let writer =
            std::thread::spawn(move || all.chunks(cut).try_for_each(|part| stream.write_all(part)).map(|()| stream));
        let mut next = 0;
        until(&mut server, |s| {
            while let Some(message) = s.next_unexpected(0) {
                assert_eq!((message.tag as usize, message.size as u64), (next, sizes[next]));
                // SAFETY: handed out with so many bytes.
                let bytes = unsafe { std::slice::from_raw_parts(message.buffer, message.size) };
                assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == (i + next) as u8), "message {next}");
                assert!(s.give_back(message.buffer, Use::Message));
                next += 1;
            }
            next == sizes.len()
        });
        assert_eq!(server.buffered(), 0);
        drop(writer.join().expect("written"));
    }
}
