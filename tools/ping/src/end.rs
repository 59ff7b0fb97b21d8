//! An end: answers a driver's questions at its host.

use std::time::Duration;

use weir_bench::sys::port::Port;
use weir_engine::EngineConfig;
use weir_job::Env;
use weir_wire::EndpointName;

use crate::channel::Channel;
use crate::probe::{self, Probes};
use crate::words::{Answer, FORMAT, Hello, Question};
use crate::{Error, flow, hex, unhex};

/// Nothing asked for so long: the driver is gone.
const ABANDONED: Duration = Duration::from_secs(60);
/// Peers count as dead after this time: nobody wants to wait longer for the answer that nothing
/// passes.
const PEER_DEAD: Duration = Duration::from_secs(3);
/// The largest window that is taken, messages.
const MOST_WINDOW: u32 = 1024;
/// The most round trips or windows of one question: both ends make as many of as large a number.
const MOST_COUNT: u32 = 1_000_000;

#[derive(Default)]
struct End {
    version: String,
    port: Option<Port>,
    probes: Option<Probes>,
    own: usize,
    /// The endpoint knows the other one.
    met: bool,
}

/// Answers until the channel ends.
///
/// # Errors
/// What came on the channel is no question.
pub fn serve(channel: &mut Channel, version: &str) -> Result<(), Error> {
    let mut end = End { version: version.to_owned(), ..End::default() };
    loop {
        let question = match channel.receive::<Question>(ABANDONED) {
            Ok(question) => question,
            // A driver that has got its answers hangs up.
            Err(Error::Channel(text)) if text.ends_with("has ended") => return Ok(()),
            Err(error) => return Err(error),
        };
        channel.send(&end.answer(question).unwrap_or_else(Answer::Failed))?;
    }
}

impl End {
    fn answer(&mut self, question: Question) -> Result<Answer, String> {
        let done = |()| Answer::Done;
        match question {
            Question::Hello { format, .. } if format != FORMAT => {
                Err(format!("this is weir {}, which does not know questions of format {format}", self.version))
            }
            Question::Hello { key, .. } => self.hello(key.as_deref()),
            Question::Expect { nonce } => {
                self.probes()?.expect(nonce);
                Ok(Answer::Done)
            }
            Question::Datagrams { to, nonce, sizes, copies } => {
                probe::send(to, nonce, &sizes, copies).map(Answer::Sizes).map_err(|error| error.to_string())
            }
            Question::Heard { nonce } => Ok(Answer::Sizes(self.probes()?.heard(nonce))),
            Question::Connect { to, nonce, timeout_ms } => {
                let limit = Duration::from_millis(timeout_ms.clamp(1, 10_000));
                probe::connect(to, nonce, limit).map(|took| Answer::Took { us: took.as_secs_f64() * 1e6 })
            }
            Question::Meet { names, own } => self.meet(&names, own).map(done),
            Question::Answer { bytes, count } => {
                flow::answer(self.met()?, self.other(), sized(bytes, 1)?, count.min(MOST_COUNT)).map(done)
            }
            Question::RoundTrips { bytes, count } => {
                flow::round_trips(self.met()?, self.other(), sized(bytes, 1)?, count.min(MOST_COUNT))
                    .map(Answer::RoundTrips)
            }
            Question::Take { bytes, window, count } => {
                flow::take(self.met()?, self.other(), sized(bytes, window)?, window, count.min(MOST_COUNT)).map(done)
            }
            Question::Stream { bytes, window, count } => {
                let count = count.min(MOST_COUNT);
                let took = flow::stream(self.met()?, self.other(), sized(bytes, window)?, window, count)?;
                Ok(Answer::Took { us: took.as_secs_f64() * 1e6 })
            }
            Question::Carrier => self.carrier(),
        }
    }

    fn port(&self) -> Result<&Port, String> {
        self.port.as_ref().ok_or_else(|| "there is no endpoint here".to_owned())
    }

    fn met(&self) -> Result<&Port, String> {
        self.port().and_then(|port| self.met.then_some(port).ok_or_else(|| "it has met no other endpoint".to_owned()))
    }

    fn probes(&self) -> Result<&Probes, String> {
        self.probes.as_ref().ok_or_else(|| "nobody has said hello".to_owned())
    }

    fn other(&self) -> usize {
        1 - self.own
    }

    fn hello(&mut self, given: Option<&str>) -> Result<Answer, String> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let mut hello = Hello { format: FORMAT, version: self.version.clone(), host, ..Hello::default() };
        let config = crate::environment::settings()?;
        let probes =
            Probes::open(config.port, config.port_span).map_err(|error| format!("no sockets for probes: {error}"))?;
        (hello.udp_port, hello.tcp_port) = (probes.udp_port, probes.tcp_port);
        self.probes = Some(probes);
        let key = match given {
            Some(text) => {
                weir_job::parse_key(text, "WEIR_KEY").map(|bytes| (bytes, "WEIR_KEY of the command".to_owned()))
            }
            None => weir_job::load_key(&Env::from_process()).map(|key| (key.bytes, key.source.to_string())),
        };
        match key {
            Ok((bytes, source)) => {
                (hello.key, hello.source) = (Some(weir_job::fingerprint(&bytes)), source);
                self.open(config, bytes, &mut hello);
            }
            Err(error) => hello.key_problem = Some(error.to_string()),
        }
        Ok(Answer::Hello(Box::new(hello)))
    }

    fn open(&mut self, config: EngineConfig, key: [u8; 32], hello: &mut Hello) {
        let config = EngineConfig {
            peer_timeout: config.peer_timeout.min(PEER_DEAD),
            connect_timeout: config.connect_timeout.min(PEER_DEAD),
            linger: config.linger.min(Duration::from_millis(100)),
            ..config
        };
        match Port::open_with_key(config, key) {
            Ok(port) => {
                let name = port.name();
                hello.name = Some(hex(&name));
                hello.addresses = EndpointName::decode(&name).map(|name| name.addresses.to_vec()).unwrap_or_default();
                (self.port, self.met) = (Some(port), false);
            }
            Err(error) => hello.problem = Some(error.to_string()),
        }
    }

    fn meet(&mut self, names: &[String; 2], own: usize) -> Result<(), String> {
        let bytes = |text: &String| unhex(text).ok_or_else(|| "that is no name of an endpoint".to_owned());
        let names = [bytes(&names[0])?, bytes(&names[1])?];
        self.own = own.min(1);
        let port = self.port.as_mut().ok_or_else(|| "there is no endpoint here".to_owned())?;
        port.connect(&names).map_err(|error| error.to_string())?;
        self.met = true;
        Ok(())
    }

    /// What the endpoint's own counters say of the other one.
    fn carrier(&self) -> Result<Answer, String> {
        let all: serde_json::Value =
            serde_json::from_str(&self.port()?.counters_json()).map_err(|error| error.to_string())?;
        let peers = all["peers"].as_array().cloned().unwrap_or_default();
        let peer = peers
            .iter()
            .find(|peer| peer["carrier"] != "self")
            .ok_or_else(|| "the endpoint knows no other one".to_owned())?;
        let primary = peer["primary_path"].as_u64().unwrap_or(0) as usize;
        let text = |name: &str| peer[name].as_str().unwrap_or_default().to_owned();
        Ok(Answer::Carrier {
            carrier: text("carrier"),
            why: text("carrier_why"),
            mtu: peer["paths"][primary]["mtu"].as_u64(),
        })
    }
}

/// A size that memory is taken for.
fn sized(bytes: usize, window: u32) -> Result<usize, String> {
    let fits = window <= MOST_WINDOW && bytes.checked_mul(window as usize).is_some_and(|all| all <= flow::MOST_BYTES);
    if fits { Ok(bytes) } else { Err(format!("more than {} bytes at once", flow::MOST_BYTES)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_an_endpoint_that_was_not_met_are_answered_that_it_cannot() {
        let mut end = End::default();
        let key = "07".repeat(32);
        let hello = end.answer(Question::Hello { format: FORMAT, key: Some(key) }).unwrap();
        assert!(matches!(hello, Answer::Hello(hello) if hello.name.is_some()));
        let (bytes, window, count) = (8, 1, u32::MAX);
        for question in [
            Question::Answer { bytes, count },
            Question::RoundTrips { bytes, count },
            Question::Take { bytes, window, count },
            Question::Stream { bytes, window, count },
        ] {
            assert_eq!(end.answer(question).unwrap_err(), "it has met no other endpoint");
        }
        let bad = ["00".to_owned(), "00".to_owned()];
        assert!(end.answer(Question::Meet { names: bad, own: 7 }).is_err());
        assert!(end.answer(Question::Carrier).is_err());
    }
}
