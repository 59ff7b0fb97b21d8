//! A host as the driver has it: the channel to its end, and who it said it is.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_job::Env;

use crate::channel::Channel;
use crate::words::{Answer, FORMAT, Hello, Question};
use crate::{Error, clean, end, environment, listen};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an agent may take to start an end, a password typed included.
const START: Duration = Duration::from_secs(60);

/// How long the end within this process may take to close its endpoint: it may be in the middle of
/// something.
const GOODBYE: Duration = Duration::from_millis(500);

/// A host.
pub struct Host {
    /// As it was named.
    pub name: String,
    /// Who it is.
    pub hello: Hello,
    channel: Channel,
    child: Option<Child>,
    /// The end within this process, and its side of the channel.
    within: Option<(JoinHandle<()>, UnixStream)>,
}

/// How ends are started on hosts.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What starts a command on a host, such as `ssh`, in words.
    pub command: Vec<String>,
    /// The `weir` there.
    pub weir: String,
}

impl Host {
    /// This host, as an end within this process.
    ///
    /// # Errors
    /// What the end says.
    pub fn here(version: &str) -> Result<Host, Error> {
        let (one, other) = UnixStream::pair().map_err(failed)?;
        let (read, version) = (other.try_clone().map_err(failed)?, version.to_owned());
        let its_side = other.try_clone().map_err(failed)?;
        let thread = std::thread::spawn(move || {
            let _ = end::serve(&mut Channel::new(read, other), &version);
        });
        let read = one.try_clone().map_err(failed)?;
        let (hello, channel, within) = (Hello::default(), Channel::new(read, one), Some((thread, its_side)));
        Host { name: "this host".into(), hello, channel, child: None, within }.greet(None)
    }

    /// A host on which an agent starts the end. What the agent has to say goes to standard error.
    ///
    /// # Errors
    /// The agent cannot be started, or ends, or the end cannot answer.
    pub fn by_agent(name: &str, agent: &Agent) -> Result<Host, Error> {
        let (program, words) = agent.command.split_first().ok_or_else(|| Error::Usage("--agent is empty".into()))?;
        let mut command = Command::new(program);
        command.args(words).arg(name).args(environment::for_host()).arg(&agent.weir).args(["ping", "--serve"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::Failed(format!("cannot start {program}: {error}")))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed(format!("{program} has no pipes")));
        };
        let host = Host {
            name: name.to_owned(),
            hello: Hello::default(),
            channel: Channel::new(from, to),
            child: Some(child),
            within: None,
        };
        // The key itself only where a job's launcher would hand it on too.
        host.greet(Env::from_process().get("WEIR_KEY").map(|key| key.to_string_lossy().into_owned()))
    }

    /// A host on which somebody has started `weir ping --listen`.
    ///
    /// # Errors
    /// It is not reached, or has another key.
    pub fn listening(name: &str, address: &str, key: &weir_job::JobKey) -> Result<Host, Error> {
        let stream: TcpStream = listen::reach(address)?;
        let channel = listen::as_driver(stream, key)?;
        Host { name: name.to_owned(), hello: Hello::default(), channel, child: None, within: None }.greet(None)
    }

    fn greet(mut self, key: Option<String>) -> Result<Host, Error> {
        self.channel.send(&Question::Hello { format: FORMAT, key }).map_err(|error| self.gone(&error))?;
        let answer = self.channel.receive::<Answer>(START);
        match answer {
            Ok(Answer::Hello(hello)) => {
                self.hello = *hello;
                Ok(self)
            }
            Ok(Answer::Failed(text)) => Err(Error::Failed(format!("{}: {}", self.name, clean(&text)))),
            Ok(_) => Err(Error::Failed(format!("{}: another answer than to hello", self.name))),
            Err(error) => Err(self.gone(&error)),
        }
    }

    /// Why nothing is heard: of an agent that has ended, how.
    fn gone(&mut self, error: &Error) -> Error {
        let mut text = format!("{}: {error}", self.name);
        if let Some(child) = &mut self.child {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(1) {
                if let Ok(Some(status)) = child.try_wait() {
                    text = format!(
                        "{}: the agent ended ({status}) before an end answered; what it said is above",
                        self.name
                    );
                    if status.code() == Some(127) {
                        text += "; if there is no weir of that name there, name it: --weir PATH";
                    }
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Error::Failed(text)
    }

    /// Asks; the answer is taken by [`Host::hear`].
    ///
    /// # Errors
    /// The host is gone.
    pub fn ask(&mut self, question: &Question) -> Result<(), Error> {
        self.channel.send(question).map_err(|error| Error::Failed(format!("{}: {error}", self.name)))
    }

    /// Takes the answer to the last question; the inner error is what the end could not do.
    ///
    /// # Errors
    /// The host is gone.
    pub fn hear(&mut self) -> Result<Result<Answer, String>, Error> {
        let heard = self.channel.receive::<Answer>(PATIENCE);
        match heard.map_err(|error| Error::Failed(format!("{}: {error}", self.name)))? {
            Answer::Failed(text) => Ok(Err(clean(&text))),
            answer => Ok(Ok(answer)),
        }
    }

    /// Asks and takes the answer.
    ///
    /// # Errors
    /// The host is gone.
    pub fn say(&mut self, question: &Question) -> Result<Result<Answer, String>, Error> {
        self.ask(question)?;
        self.hear()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Its endpoint says goodbye: of a process that just ends the other host has to think that
        // it died.
        if let Some((thread, its_side)) = self.within.take() {
            let _ = its_side.shutdown(std::net::Shutdown::Both);
            let begun = Instant::now();
            while !thread.is_finished() && begun.elapsed() < GOODBYE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Failed(error.to_string())
}
