//! What a server of `bmi_tcp` makes of bytes that no library of ours has written (spec/bmi.md 9).

mod common;

use common::wire::{Server, is_closed};
use common::{LIMIT, preload};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn the_wire_is_that_of_the_originals() {
    for radix in [false, true] {
        let server = Server::start(radix, &[]);
        server.answers(&mut server.connect());
        // F22: a byte at a time.
        let mut slow = server.connect();
        slow.set_nodelay(true).expect("set");
        for byte in server.request(8, 9, 0, 0) {
            slow.write_all(&[byte]).expect("sent");
        }
        let mut header = vec![0; if radix { 25 } else { 24 }];
        slow.read_exact(&mut header).expect("answered");
        assert_eq!(header[..12], server.header(4, 9, 24)[..12]);
    }
}

/// H4, H5, T3, F33.
#[test]
fn a_header_that_lies_closes_its_connection_with_one_line_and_no_memory() {
    for radix in [false, true] {
        let server = Server::start(radix, &[]);
        let mut good = server.connect();
        server.answers(&mut good);
        let mut bad = vec![
            server.header(1, 0, 0),
            server.header(0, 0, 0),
            server.header(2, 0, 16385),
            server.header(4, 0, 16385),
            server.header(8, 0, (16 << 20) + 1),
            server.header(2, 0, i64::MAX),
            server.header(8, 0, -1),
            server.header(2, 0, i64::MIN),
            vec![0; 25],
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        ];
        if !radix {
            bad.push(server.header(4, 1 << 33, 0));
        }
        for (i, header) in bad.iter().enumerate() {
            let mut stream = server.connect();
            stream.write_all(header).expect("sent");
            is_closed(&mut stream);
            // T4: and nobody else notices.
            if i % 4 == 0 {
                server.answers(&mut good);
            }
        }
        let said = server.said();
        let lines = said.lines().filter(|l| l.contains("is not listened to any more")).count();
        assert_eq!(lines, bad.len(), "{said}");
    }
}

/// T5, F6: memory for what has come, not for what was announced.
#[test]
fn messages_that_are_announced_and_do_not_come_cost_next_to_nothing() {
    let server = Server::start(false, &[]);
    server.answers(&mut server.connect());
    let before = server.memory();
    let many: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&server.header(8, 1, 16 << 20)).expect("sent");
            stream
        })
        .collect();
    server.answers(&mut server.connect());
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 16 << 20, "{} connections have cost {grown} bytes", many.len());
}

/// T4, F33.
#[test]
fn a_header_or_a_payload_that_does_not_go_on_closes_its_connection() {
    let server = Server::start(false, &[("WEIR_BMI_HEADER_MS", "200"), ("WEIR_BMI_STALL_MS", "200")]);
    let mut silent = server.connect();
    let mut header = server.connect();
    header.write_all(&server.header(4, 1, 5)[..7]).expect("sent");
    let mut payload = server.connect();
    payload.write_all(&[server.header(4, 1, 5), vec![1, 2]].concat()).expect("sent");
    is_closed(&mut header);
    is_closed(&mut payload);
    // One that has said nothing stays.
    server.answers(&mut silent);
    let said = server.said();
    assert!(said.contains("a header that does not end") && said.contains("a message that does not go on"), "{said}");
}

/// T4: whatever the payload before it was allowed.
#[test]
fn a_header_behind_a_payload_that_went_on_has_its_own_time() {
    let server = Server::start(false, &[("WEIR_BMI_HEADER_MS", "200"), ("WEIR_BMI_STALL_MS", "86400000")]);
    let mut good = server.connect();
    let mut slow = server.connect();
    slow.write_all(&[server.header(4, 1, 1000), vec![1; 500]].concat()).expect("sent");
    // Behind it in turn, so the first half has been read.
    server.answers(&mut good);
    slow.write_all(&[vec![2; 500], server.header(4, 1, 5)[..7].to_vec()].concat()).expect("sent");
    is_closed(&mut slow);
    let said = server.said();
    assert!(said.contains("a header that does not end"), "{said}");
}

/// Repeats a message until the server reads no more and the kernel's buffers are full too: what it
/// takes is bounded, whatever is offered.
fn fill(stream: &mut TcpStream, message: &[u8]) {
    stream.set_nonblocking(true).expect("set");
    let (mut sent, mut refused) = (0u64, 0);
    while refused < 50 && sent < 64 << 20 {
        let at = (sent % message.len() as u64) as usize;
        match stream.write(&message[at..]) {
            Ok(n) => (sent, refused) = (sent + n as u64, 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => panic!("it is read or not, but not closed: {e}"),
        }
    }
    assert!(refused == 50, "{sent} bytes were taken, and it goes on");
}

/// H12, B1, T5, F4.
#[test]
fn a_peer_that_sends_what_nobody_posts_for_is_not_read_beyond_its_budget() {
    let server = Server::start(false, &[("WEIR_BMI_PEER_BYTES", "200000")]);
    let mut good = server.connect();
    server.answers(&mut good);
    let before = server.memory();
    let mut rude: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    let message = [server.header(4, 77, 16000), vec![3; 16000]].concat();
    for stream in &mut rude {
        fill(stream, &message);
    }
    server.answers(&mut good);
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes");
}

/// H12, F6: messages of no bytes take memory too.
#[test]
fn a_peer_that_sends_nothing_but_headers_is_not_read_for_ever() {
    let server = Server::start(false, &[]);
    let mut good = server.connect();
    server.answers(&mut good);
    let before = server.memory();
    let mut rude = server.connect();
    fill(&mut rude, &server.header(4, 77, 0).repeat(1000));
    server.answers(&mut good);
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
}

/// F6.
#[test]
fn who_sends_what_there_is_no_memory_for_is_closed_and_nobody_else_notices() {
    let scarce = preload("scarce");
    let server = Server::start(false, &[("LD_PRELOAD", scarce.to_str().expect("a path"))]);
    let mut good = server.connect();
    server.answers(&mut good);
    let mut long = server.connect();
    // (It may be closed before all of it is sent.)
    let _ = long.write_all(&[server.header(8, 77, 4 << 20), vec![3; 4 << 20]].concat());
    is_closed(&mut long);
    server.answers(&mut good);
    let said = server.said();
    assert!(said.contains("no memory for its message"), "{said}");
}

/// B1, F6: whoever fills what all have in common keeps nobody's requests from being heard.
#[test]
fn long_messages_that_nobody_posts_for_do_not_stop_the_requests_of_others() {
    let server = Server::start(false, &[("WEIR_BMI_BYTES", "1000000")]);
    let mut rude = server.connect();
    // More than the kernel takes for the server.
    fill(&mut rude, &[server.header(8, 77, 16 << 20), vec![3; 16 << 20]].concat());
    server.answers(&mut server.connect());
}

/// T6, F6: whoever connects leaves the program descriptors for files of its own.
#[test]
fn strangers_take_no_more_than_half_of_the_descriptors() {
    let server = Server::with_descriptors(64);
    let mut good = server.connect();
    server.answers(&mut good);
    let mut many: Vec<TcpStream> = (0..50).map(|_| server.connect()).collect();
    many.iter().for_each(|s| s.set_nonblocking(true).expect("set"));
    let begun = Instant::now();
    loop {
        server.answers(&mut good);
        let is_open = |s: &mut TcpStream| matches!(s.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock);
        let open = many.iter_mut().filter_map(|s| is_open(s).then_some(())).count();
        if open == 31 {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{open} are open");
    }
    assert!(server.descriptors() < 48);
    let said = server.said();
    assert_eq!(said.lines().filter(|l| l.contains("turned away")).count(), 1, "{said}");
}

/// T10: a peer that takes nothing for longer than the silence of a dead one is a busy one.
#[test]
fn who_does_not_read_for_a_while_has_all_of_it_in_the_end() {
    let server = Server::start(false, &[("WEIR_PEER_TIMEOUT_MS", "200")]);
    let mut busy = server.connect();
    // More than the kernel takes for a client.
    let (count, size) = (4, 8 << 20);
    busy.write_all(&server.request(2, 5, count, size)).expect("sent");
    std::thread::sleep(Duration::from_secs(2));
    let mut all = vec![0; count as usize * (24 + size as usize)];
    busy.read_exact(&mut all).expect("it is all there");
    assert_eq!(all[..24], server.header(8, 5, size));
}

/// T6, F8.
#[test]
fn ports_that_are_probed_leave_nothing_behind() {
    let server = Server::start(false, &[]);
    let mut good = server.connect();
    server.answers(&mut good);
    let before = server.descriptors();
    for i in 0..500 {
        let mut stream = server.connect();
        match i % 3 {
            0 => {}
            1 => stream.write_all(&[0]).expect("sent"),
            // What it asks for comes too late.
            _ => stream.write_all(&server.request(2, 5, 1, 100_000)).expect("sent"),
        }
    }
    let begun = Instant::now();
    while server.descriptors() > before && begun.elapsed() < LIMIT {
        server.answers(&mut good);
    }
    assert_eq!(server.descriptors(), before);
}
