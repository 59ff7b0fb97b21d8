//! The fuzz targets on random inputs, for the ordinary compiler: `cargo test -p weir-fuzz`. Random
//! bytes reach far less than a fuzzer; this shows that the targets themselves work.

use arbitrary::{Arbitrary, Unstructured};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

fn random(seed: u64, max_len: usize) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let len = usize::try_from(rng.next_u32()).expect("32 bits") % max_len;
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Runs on random inputs; returns the sum of what the runs return.
fn each<T: for<'a> Arbitrary<'a>>(runs: u64, max_len: usize, f: impl Fn(&T) -> u64) -> u64 {
    let (mut made, mut sum) = (0, 0);
    for seed in 0..runs {
        let bytes = random(seed, max_len);
        if let Ok(input) = T::arbitrary_take_rest(Unstructured::new(&bytes)) {
            sum += f(&input);
            made += 1;
        }
    }
    assert!(made > runs / 2, "only {made} of {runs} inputs could be made");
    sum
}

#[test]
fn parsers() {
    for seed in 0..20_000 {
        let mut bytes = random(seed, 200);
        weir_fuzz::parsers::packet(&bytes);
        weir_fuzz::parsers::handshake(&bytes);
        weir_fuzz::parsers::envelope(&bytes);
        if let Some(b) = bytes.first_mut() {
            *b = 0x15;
        }
        weir_fuzz::parsers::packet(&bytes);
        bytes.resize(48, 0);
        weir_fuzz::parsers::name(&bytes);
    }
}

#[test]
fn bsp() {
    for seed in 0..20_000 {
        let mut data = random(seed, 400);
        weir_fuzz::bsp::run(&data);
        // With a good head the parts are looked at, too.
        let ends = weir_bsp::head::Ends::Sync;
        let head = weir_bsp::head::Head {
            events: 32,
            letters: 64,
            gets: 16,
            puts: 64,
            places: 24,
            ..weir_bsp::head::Head::empty(ends, seed)
        };
        let bytes = head.encode();
        if data.len() > bytes.len() {
            data[..bytes.len()].copy_from_slice(&bytes);
            weir_fuzz::bsp::run(&data);
        }
    }
}

#[test]
fn bmi() {
    let messages = each(20_000, 400, weir_fuzz::bmi::stream);
    assert!(messages > 2000, "only {messages} messages were read");
    let pieces = [
        "tcp://", "weir://", "bmi_", "tcp", "weir", "mock", ":", ",", "/", "[::1]", "10.0.0.1", "80", " ", ".so",
        "lib", "x",
    ];
    for seed in 0..20_000 {
        let text: String = random(seed, 12).iter().map(|b| pieces[usize::from(*b) % pieces.len()]).collect();
        weir_fuzz::bmi::text(text.as_bytes());
        weir_fuzz::bmi::text(&random(seed, 60));
    }
}

#[test]
fn bmi_tcp() {
    let received = each(400, 2000, weir_fuzz::bmi_tcp::run);
    assert!(received > 100, "only {received} messages were received");
}

#[test]
fn bmi_weir() {
    let received = each(100, 400, weir_fuzz::bmi_weir::run);
    assert!(received > 60, "only {received} messages were received");
}

/// (`cargo xtask test` says where there is no library.)
#[test]
fn sctp() {
    if let Err(why) = weir_engine::sctp_available() {
        eprintln!("IGNORED, not passed: sctp. {why}");
        return;
    }
    let told = each(60, 1500, weir_fuzz::sctp::run);
    assert!(told > 60, "only {told} lies were told");
}

#[test]
fn launch() {
    for seed in 0..20_000 {
        weir_fuzz::launch::run(&random(seed, 200));
    }
    // Random steps seldom complete a round of many ranks; alone a rank does.
    assert!(each(20_000, 200, weir_fuzz::launch::books) > 20);
}

/// Lines of a ledger with a byte changed here and there, and random bytes.
#[test]
fn bsp_files() {
    let line = |step: u64, pid: u64| {
        format!(
            "{{\"superstep\":{step},\"pid\":{pid},\"place\":\"a.c:1\",\"begun_ns\":0,\"called_ns\":1,\"met_ns\":2,\"ended_ns\":3,\"out_bytes\":4,\"in_bytes\":4,\"out_partners\":1,\"in_partners\":1,\"letters\":0}}\n"
        )
    };
    let good = ["{\"weir_bsp_ledger\":1,\"processes\":2}\n".to_owned(), line(0, 0), line(1, 0), line(0, 1), line(1, 1)]
        .concat();
    assert!(weir_fuzz::bsp_files::run(good.as_bytes()));
    let mut read = 0;
    for seed in 0..20_000u64 {
        weir_fuzz::bsp_files::run(&random(seed, 300));
        let mut bytes = good.clone().into_bytes();
        for byte in random(seed, 12).as_chunks::<4>().0 {
            let at = usize::from(u16::from_le_bytes([byte[0], byte[1]])) % bytes.len();
            bytes[at] = byte[2] % 128;
        }
        read += u64::from(weir_fuzz::bsp_files::run(&bytes));
    }
    assert!(read > 1000, "only {read} ledgers were read");
}

#[test]
fn pattern() {
    let mut read = 0;
    for seed in 0..20_000 {
        read += u64::from(weir_fuzz::pattern::run(&random(seed, 12)));
    }
    assert!(read > 50, "only {read} were patterns");
}

#[test]
fn record() {
    let mut models = 0;
    for seed in 0..500 {
        models += u64::from(weir_fuzz::record::run(&random(seed, 60)));
    }
    assert!(models > 250, "only {models} became models");
}

#[test]
fn annotate() {
    let pieces = [
        "int main(){",
        "for(int i=0;i<n;i++)",
        "if(rank==0)",
        "{",
        "}",
        "MPI_Send(b,4,MPI_INT,i,0,MPI_COMM_WORLD);",
        "MPI_Wait(&r,&s);",
        "n++;",
        "else ",
    ];
    let mut annotated = 0;
    for seed in 0..500 {
        let text: String = random(seed, 60).iter().map(|b| pieces[usize::from(*b) % pieces.len()]).collect();
        annotated += u64::from(weir_fuzz::annotate::run(format!("int main(){{MPI_Barrier(0);{text}").as_bytes()));
        weir_fuzz::annotate::run(&random(seed, 200));
    }
    assert!(annotated > 125, "only {annotated} could be annotated");
}

#[test]
fn annotations() {
    let pieces = [
        "// PEVPM ",
        "Loop iterations = 3\n",
        "{\n",
        "}\n",
        "Serial time = procnum\n",
        "Message type = MPI_Barrier\n",
        "& ",
        "Runon c1 = procnum\n",
    ];
    let mut read = 0;
    for seed in 0..2000 {
        let text: String = random(seed, 12).iter().map(|b| pieces[usize::from(*b) % pieces.len()]).collect();
        read += u64::from(weir_fuzz::annotations::run(text.as_bytes()));
        weir_fuzz::annotations::run(&random(seed, 200));
    }
    assert!(read > 20, "only {read} could be read");
}

#[test]
fn matcher() {
    each(1000, 2000, |steps: &weir_fuzz::matching::Steps| {
        weir_fuzz::matching::run(steps);
        0
    });
}

#[test]
fn predict() {
    let received = each(10_000, 300, weir_fuzz::predict::run);
    assert!(received > 10_000, "only {received} messages were received");
    for seed in 0..20_000 {
        weir_fuzz::predict::description(&random(seed, 200));
    }
}

#[test]
fn endpoint_pair() {
    let arrived = each(100, 4000, |input| weir_fuzz::pair::run(input) as u64);
    assert!(arrived > 500, "only {arrived} operations arrived");
}

#[test]
fn endpoint_hostile() {
    let packets = each(300, 8000, weir_fuzz::hostile::run);
    assert!(packets > 1000, "only {packets} packets were accepted as genuine");
}

#[test]
fn bulk() {
    let records = each(400, 4000, weir_fuzz::bulk::run);
    assert!(records > 1000, "only {records} records were read to their end");
}

#[test]
fn engine() {
    let ended = each(150, 3000, weir_fuzz::engine::run);
    assert!(ended > 1500, "only {ended} operations ended well");
}

#[test]
fn engine_bulk() {
    let records = each(100, 3000, weir_fuzz::engine_bulk::run);
    assert!(records > 250, "only {records} records were read to their end");
}

#[test]
fn shm_ring() {
    let received = each(3000, 2000, weir_fuzz::shm::ring);
    assert!(received > 20_000, "only {received} records were received");
}

#[test]
fn shm_handshake() {
    let up = each(3000, 400, weir_fuzz::shm::handshake);
    assert!(up > 200, "only {up} handshakes came to their end");
}

#[test]
fn xdp() {
    let read = each(20_000, 300, |input| u64::from(weir_fuzz::xdp::run(input)));
    assert!(read > 1000, "only {read} frames or messages were read");
}

#[test]
fn distribution() {
    let read = each(3000, 300, weir_fuzz::distribution::run);
    assert!(read > 1000, "only {read} cells and samples were read");
}
