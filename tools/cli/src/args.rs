//! The command line of `weir`, as clap and the man pages see it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::mpi::Kind;
use crate::shell::Shell;

/// Exit code: something failed, or `doctor` found an error.
pub const EXIT_FAILED: u8 = 1;

const EXIT_CODES: &str = "Exit codes:
  0  done, and nothing wrong
  1  failed; one line on standard error says why. `weir doctor`: it found an error
  2  the command line is wrong

`weir run` and `weir emulate` end with the code of the program they start; `weir emulate` with 125 if it failed itself, 126 if the program \
cannot be started, 127 if there is none. `weir bench` with 130 if it was interrupted. 141: nobody reads any more what is printed.

Environment:
  WEIR_LIB          the folder of libweir-fi.so and, for weir bmi, libweir-bmi.so; each may also be in weir below it or, of a folder named weir, in the one above, so that lib and lib/weir of an installation both do. Else they are looked for beside this program, the former then in FI_PROVIDER_PATH
  WEIR_MPI_LIBRARY  the MPI library that weir bench loads; else the launcher's

The settings of the provider (WEIR_KEY_FILE, WEIR_IFACE, ...) are in fi_weir(7).";

const MAIN_EXAMPLES: &str = "Examples:
  weir run -n 4 ./program           run an MPI program over Weir
  eval $(weir env)                  or set the variables, then use mpiexec as always
  weir doctor                       find what is wrong
  weir ping node2                   try whether messages pass to another host
  weir stat                         who uses Weir here; weir stat 12345: a rank's counters
  weir emulate --hosts 2 --loss 1% -- ./test.sh
  mpiexec -n 4 weir bench -o run1   measure time distributions

";

/// Fast and predictable messages for parallel programs on ordinary networks.
#[derive(Debug, Parser)]
#[command(name = "weir", version = crate::version(), max_term_width = 100, after_help = format!("{MAIN_EXAMPLES}{EXIT_CODES}"))]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the variables that make MPI programs run over Weir
    #[command(after_help = "Examples:
  eval $(weir env)                                  sh, bash, zsh
  weir env --shell fish | source                    fish
  eval `weir env --shell tcsh`                      csh, tcsh
  eval $(weir env --mpi openmpi); mpiexec -n 4 ./program
  weir env --json

Where no key or no provider can be had it says so on standard error, and what it prints makes eval \
fail: eval $(weir env) && mpiexec ... starts nothing then. Without a key the variables are set all the \
same, so that programs fail and say why, instead of running without Weir.

Open MPI hands to ranks on other hosts only the variables that it is told. It is told the provider, the key, and the settings of Weir \
(WEIR_PORT, FI_WEIR_IFACE, ...) that are set now, but for WEIR_ADDR, which names addresses of one host. Name what you set later to its mpiexec: \
-x WEIR_PORT; after unsetting one run weir env again. For Open MPI 4.1 all are named so, for Open MPI 5 those with an equals sign in their value \
(WEIR_FAULTS); the words are printed on standard error, and are launcher_args of --json. A list that is there already \
(OMPI_MCA_mca_base_env_list) is extended; beside one Open MPI 4.1 takes no such words, so there the list has all.")]
    Env(EnvArgs),
    /// Run a program over Weir: an MPI program by its MPI's launcher, a program of Weir's own
    /// interfaces (BSPlib) without any MPI
    #[command(after_help = "Examples:
  weir run -n 4 ./program --its --arguments
  weir run -n 8 --hosts node1,node2 ./program
  weir run -n 4 python3 script.py                   the MPI of that Python's mpi4py
  weir emulate --hosts 2 -- sh -c 'weir run -n 2 --hosts $WEIR_HOSTS ./program'
  weir run -n 2 --launcher-arg=-ppn --launcher-arg=1 ./program
  weir run -n 8 --launcher-arg=--oversubscribe ./program   Open MPI: more ranks than cores
  weir run -n 4 --dry-run ./program                 only show the command
  weir run -n 4 --tag-output ./bsp_program          a program of Weir's own libraries: no MPI is needed

Within an allocation of Slurm, or with --launcher srun, an MPI program is started by srun, with the interface by which ranks of that MPI find each \
other (--mpi=pmi2 for MPICH and Intel MPI, pmix for Open MPI) and, unless WEIR_KEY or WEIR_KEY_FILE names a key, with a key made for this run, in the \
environment of the ranks. Without --launcher the MPI's own is used instead where words for it are given (--launcher-arg), and within a step, which has the \
allocation already.

MPICH, Intel MPI and srun hand all of the environment to other hosts. Open MPI is told to hand on the provider, the key, and every setting of Weir \
(WEIR_PORT, FI_WEIR_IFACE, ...) but WEIR_ADDR, which names addresses of one host. Any other variable name to it: --launcher-arg=-x --launcher-arg=OMP_NUM_THREADS.

A program that is linked with a library of Weir's own interfaces (libweir-bsp.so) and no MPI is started by srun within an allocation of Slurm, by \
whichever mpiexec is on PATH with --hosts, else by weir run itself, on this machine; --local does that with any program that finds its place by such a \
library.

Of what weir run starts itself rank 0 has the standard input. When a rank fails or aborts, all are ended, one line says why, and the exit code is its \
own; 128 plus the signal if it was killed. SIGINT, SIGTERM, SIGHUP and SIGQUIT go to all ranks, which have 10 s to end, SIGUSR1 and SIGUSR2 to all \
ranks too. Whichever process is killed, nothing is left behind. Each such run has a job key of its own unless WEIR_KEY or WEIR_KEY_FILE names one.

Environment of programs of Weir's own interfaces, whoever starts them:
  WEIR_LAUNCH_TIMEOUT  seconds that ranks wait for each other at the start (120)
  WEIR_LAUNCHER        which launcher's variables count, where two left theirs: none (a process alone), local, pmi1, pmi2, pmix
  WEIR_PMIX_LIBRARY    the libpmix.so.2 to load; else the launcher's

Inside weir emulate ranks on --hosts are started by the emulator's agent ($WEIR_LAUNCH_AGENT) instead of ssh, unless \
--launcher-arg or the launcher's variables say how. \
Arguments after the program are the program's; options of weir run (among them -np, as mpiexec has it) come before it.
The exit code is the launcher's; 1 if none was started, 2 if the command line is wrong.")]
    Run(RunArgs),
    /// Start ranks on this machine and serve them
    #[command(hide = true)]
    RunRanks(RanksArgs),
    /// Compile a program for Weir's own interfaces: bsp.h
    #[command(after_help = "Examples:
  weir cc -O2 program.c -o program; weir run -n 4 ./program
  weir cc -c part.c                    without -c, -S or -E it links, too
  weir cc program.cpp -o program       the compiler is that of the files' language: CC, CXX or FC, else cc, c++ or gfortran
  weir cc program.f90 -o program       compiles the module bsp with it; with -c it must be there
  weir cc --show                       the words that are added, for a makefile
  cc program.c $(pkg-config --cflags --libs weir-bsp)   the same without it

All words are handed to the compiler as they are; what is added stands behind them: where the header is, where the library is (also when the \
program runs), and its name; in front of a Fortran program its module, share/weir/bsp.f90. Header and library are looked for beside this program, then in /usr/local and /usr; WEIR_PREFIX names another place, with \
include/bsp.h and lib/libweir-bsp.so. The exit code is the compiler's.")]
    Cc(CcArgs),
    /// Show the provider, the MPIs found, the job's key, the interfaces chosen and what can carry
    /// messages
    #[command(after_help = "Examples:
  weir info
  weir info --json

What can carry messages on this machine is found by trying: two processes share memory, one reads the other's (then large messages are \
copied once, else twice); whether the kernel cuts and joins UDP packets; whether the settings permit TCP connections for large messages. \
Which of them a running program uses for each peer, and why, weir stat tells (carrier, carrier_why).")]
    Info(Output),
    /// Find what keeps programs from running over Weir, or from running well
    #[command(after_help = "Examples:
  weir doctor
  weir doctor ./program        also: which MPI the program needs, and whether mpiexec is that MPI's
  weir doctor --hosts node1,node2,node3    also: whether messages pass between each two of them, as weir ping tries it
  weir doctor --json

Each finding has a severity (ok, info, warning, error), a cause, and where there is one the command that repairs it. \
Processes that use Weir now are asked for their counters: whether their large messages go by TCP, or TCP is not answered.
Exit code 1 if there is an error, else 0.")]
    Doctor(DoctorArgs),
    /// Try whether messages pass between this host and another one, without any MPI
    Ping(weir_ping::command::PingArgs),
    /// Show the counters of a running process, or of one that left them in a file
    #[command(after_help = "Examples:
  weir stat                              the processes that use Weir here, with job, rank, what they sent and by what
  weir stat 12345
  weir stat --job 12300                  all ranks here that mpiexec, process 12300, has started
  weir stat 12345 --every 1              what was counted in each second
  weir stat --job 12300 --every 1        the same of all ranks here
  WEIR_STATS=/tmp/stat.%p mpiexec -n 2 ./program; weir stat --file /tmp/stat.12345

With --every it goes on until the process, or the last one of the job, ends or closes its endpoint, which is told on standard error; the exit code is then 0.

What is counted of each peer (the endpoint's `protocol` has the sums, with those of peers that are gone):
  packets_sent, packets_received   without handshakes
  acks_sent, acks_received         acknowledgements, alone in their packets or not
  packets_lost, losses_spurious    taken for lost, and those that had arrived after all: repaired in vain
  repairs_sent, bytes_resent       pieces of messages sent again, and their payload
  grants_sent, grants_received     leave to send more of a long message, beyond what its first answer gave
  marks_received, marks_told       packets that came marked by a switch (ECN), and ours of which the peer told that
  marks_windows                    windows made smaller for marks, once a round trip; in `protocol` also marks_grants, grant
                                   budgets made smaller, and marks_refused, told by a peer and impossible
  stalls_credit, _window, _pacing  times that sending had to wait: for the receiver's credit, the window, the pace
  failovers                        changes to another of its addresses
  bulk_connections_open            TCP connections that carry large messages now
  carrier, carrier_why             what carries messages to it: shm (shared memory), udp, udp+tcp, self; and why
and of each of its paths, which are its addresses:
  remote, state, mtu, srtt_us, min_rtt_us, noncongestive_us, window_bytes, in_flight_bytes, bytes_sent, bytes_received
  rate_bytes_per_s                 what it was seen to deliver of late, by which long messages are divided; 0: not known, as while it is suspect, and with one path always
and of each of its streams:
  messages_out, bytes_out, messages_in, bytes_in
  expected_short, expected_long, unexpected_short, unexpected_long
                                   messages received, by whether their receive was posted first, and by length (long: more than 64 KiB)

Of the process, all its threads together (processor), where the kernel counts it:
  ran_ms                they ran
  waited_ms             they could have run, and others ran in their place; if that is most of a run's time, the machine was busy, not the network

Some counters of large messages, which go by TCP (bulk connections) where the network allows it, else in packets:
  bulk_connections_opened  TCP connections that were up
  bulk_connections_failed  those that failed, for any reason: segments lost, a peer that told nothing or ended, none to be had
  bulk_connects_failed     of these: not answered or refused, though the peer answers packets; a firewall may drop TCP
  no_tcp_to                where that was so when it was last tried")]
    Stat(StatArgs),
    // With its own words on help: see weir-bench.
    Bench(Box<weir_bench::options::Args>),
    /// Show what a benchmark measured, as tables, plots and one page; or compare two runs
    Report(weir_report::cli::ReportArgs),
    /// Turn a run into CSV, or into the text files of MPIBench
    Export(weir_report::cli::ExportArgs),
    /// Write the directives of a performance model into C source with MPI calls
    Annotate(Box<weir_annotate::cli::AnnotateArgs>),
    /// Record the MPI calls of a small run and write a performance model of them
    Record(Box<weir_record::cli::RecordArgs>),
    /// Predict how long an annotated program runs, how much that varies, and where time is lost
    Predict(Box<weir_predict_tool::args::PredictArgs>),
    /// Emulate a network of hosts and run a command in it
    Emulate(Box<weir_emulate::cli::Args>),
    /// Print the variables for programs with BMI (OrangeFS, Mercury), or ask whether a BMI server
    /// answers
    #[command(after_help = "Examples:
  eval $(weir bmi env); pvfs2-ls /mnt               a client that brings a BMI of its own
  weir bmi ping weir://server:3334                  0: somebody answers
  weir bmi ping --timeout-ms 500 tcp://server:3334

Programs of your own: cc prog.c $(pkg-config --cflags --libs weir-bmi). weir-bmi(7) has the rest.
Exit codes: 1 nobody answers, or something else failed; 2 the command line is wrong.")]
    Bmi(BmiArgs),
    /// Measure what BSP supersteps cost on this machine; show what those of a program cost
    #[command(after_help = "Examples:
  weir bsp params -n 2,4 -o here.json
  WEIR_BSP_LEDGER=run.jsonl weir run -n 4 ./program; weir bsp report run.jsonl --params here.json

weir-bsp(7) tells how such programs are written, compiled and run.")]
    Bsp(weir_bsp_tool::args::BspArgs),
    /// Find the best setting for BSP programs over this network: how much may wait in a host's
    /// interface, or the slot of a medium that all share
    #[command(after_help = "Examples:
  weir run -n 8 --hosts node1,node2,node3,node4 weir tune
  mpiexec -n 8 weir tune --pattern shift -o weir-tune.sh; . ./weir-tune.sh
  weir run -n 8 --hosts node1,node2,node3,node4 weir tune --slots --pattern shift --h 100K
  weir tune -n 4 --json                     processes on this machine; WEIR_CARRIER=udp has them send packets

While a superstep goes by packets, acknowledgements and grants wait behind what this host has put into its own interface. Much there makes each round \
trip long, little lets the interface run dry before the process is called again. WEIR_BSP_QUEUE says how much: auto (what leaves in 250 us at the rate \
that was seen, 32 KiB at least), system, or bytes.

On a medium that all hosts share, as a wireless one, who sends at any time meets others who do. --slots finds how long a slot must be (WEIR_BSP_SLOT): each \
process sends one packet in each cycle of as many slots as there are processes. On a switched network no slots are best.

Supersteps of one kind are measured with each value in turns. Chosen is the smallest whose median is as good as the fastest's and whose times scatter \
little, not the best mean: a superstep waits for the slowest of all processes. The default stays where nothing gains 3 % over it.
Exit codes: 0 done, 1 failed or nothing to tune (the processes share memory), 2 the command line is wrong.")]
    Tune(Box<weir_bsp_tool::args::TuneArgs>),
    /// Hand packets on network interfaces to ranks past the kernel's UDP, by ring buffers or
    /// AF_XDP sockets
    Xdpd(weir_xdpd::XdpdArgs),
    /// Print shell completions
    #[command(after_help = "Examples:
  weir completions bash > ~/.local/share/bash-completion/completions/weir
  weir completions fish > ~/.config/fish/completions/weir.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    #[command(after_help = "Examples:
  weir man | man -l -
  weir man --dir ~/.local/share/man; man weir-run; man fi_weir")]
    Man {
        /// Write all pages into the folders man1 and man7 of this one; else the main page to
        /// standard output
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Share memory with the process named on standard input and print how that went
    #[command(hide = true)]
    ProbeSharedMemory,
    /// Load a provider and print what it says of itself
    #[command(hide = true)]
    ProbeProvider {
        /// The shared library
        file: PathBuf,
    },
}

/// The words of the command line, with the `-np` of launchers as an option that the parser knows:
/// to that, it would be `-n` with the value `p`.
pub fn with_np(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = words.into_iter().collect();
    if all.get(1).is_none_or(|command| command != "run") {
        return all;
    }
    let mut at = 2;
    while let Some(word) = all.get_mut(at) {
        let text = word.to_string_lossy().into_owned();
        if let Some(rest) = text.strip_prefix("-np").filter(|rest| rest.is_empty() || rest.starts_with('=')) {
            *word = format!("--np{rest}").into();
        }
        // The value of an option is no option; what follows the program is the program's.
        at += match text.as_str() {
            "-n" | "-np" | "--np" | "--ranks" | "--hosts" | "--launcher" | "--launcher-arg" => 2,
            "--" => break,
            option if option.starts_with('-') => 1,
            _ => break,
        };
    }
    all
}

/// What `weir bmi` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BmiAction {
    /// Print the variables by which an unmodified client uses Weir
    Env,
    /// Ask whether somebody answers at a URL
    Ping,
}

#[derive(Debug, clap::Args)]
pub struct BmiArgs {
    /// What to do
    #[arg(value_enum)]
    pub action: BmiAction,
    /// ping: whom
    pub url: Option<String>,
    /// ping: how long to wait, ms
    #[arg(long, default_value_t = 5000, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub timeout_ms: u32,
    /// env: whose syntax to print
    #[arg(long, value_enum, default_value = "bash")]
    pub shell: Shell,
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How to answer.
#[derive(Debug, clap::Args)]
pub struct Output {
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct EnvArgs {
    /// Which MPI; else the one whose mpiexec comes first on PATH
    #[arg(long, value_enum)]
    pub mpi: Option<Kind>,
    /// Whose syntax to print; sh, dash, zsh and ksh are as bash, tcsh as csh
    #[arg(long, value_enum, default_value = "bash")]
    pub shell: Shell,
    /// Use Weir between ranks on one machine too, instead of MPICH's shared memory
    #[arg(long)]
    pub no_shm: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", visible_alias = "np", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ranks: u32,
    /// Machines to run on, separated by commas; the ranks are divided among them
    #[arg(long, value_delimiter = ',', value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub hosts: Vec<String>,
    /// Use this mpiexec; or srun, Slurm's launcher
    #[arg(long, value_name = "FILE")]
    pub launcher: Option<PathBuf>,
    /// Hand this argument to the launcher; may be given several times
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub launcher_arg: Vec<OsString>,
    /// Use Weir between ranks on one machine too, instead of MPICH's shared memory
    #[arg(long)]
    pub no_shm: bool,
    /// Start the program by weir run itself on this machine, whatever it is linked with
    #[arg(long, conflicts_with_all = ["hosts", "launcher", "launcher_arg", "no_shm"])]
    pub local: bool,
    /// Begin each line of output with its rank (what weir run starts itself, or by srun)
    #[arg(long)]
    pub tag_output: bool,
    /// Show the command and its environment instead of running it
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: as one JSON document
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

impl RunArgs {
    /// The command up to the program, by whichever name it was called, as it can be typed again.
    pub fn own_words(&self, name: Option<OsString>) -> Vec<OsString> {
        let mut words = vec![name.unwrap_or_else(|| "weir".into()), "run".into()];
        words.extend(["-n".into(), self.ranks.to_string().into()]);
        if !self.hosts.is_empty() {
            words.extend(["--hosts".into(), self.hosts.join(",").into()]);
        }
        if let Some(launcher) = &self.launcher {
            words.extend(["--launcher".into(), launcher.into()]);
        }
        for argument in &self.launcher_arg {
            let mut word = OsString::from("--launcher-arg=");
            word.push(argument);
            words.push(word);
        }
        for (given, flag) in [(self.no_shm, "--no-shm"), (self.local, "--local"), (self.tag_output, "--tag-output")] {
            words.extend(given.then(|| flag.into()));
        }
        words
    }
}

#[derive(Debug, clap::Args)]
pub struct CcArgs {
    /// Show the command instead of running it
    #[arg(long)]
    pub show: bool,
    /// Words for the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct RanksArgs {
    #[arg(short = 'n', value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,
    #[arg(long)]
    pub tag_output: bool,
    #[arg(required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// A program that you want to run
    pub program: Option<PathBuf>,
    /// Hosts to try with each other, separated by commas; one alone is tried with this host
    #[arg(long, value_delimiter = ',', value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub hosts: Vec<String>,
    /// With --hosts: what starts a command on a host [default: $WEIR_LAUNCH_AGENT, else ssh]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub agent: Option<String>,
    /// With --hosts: the weir on the hosts [default: this program's file]
    #[arg(long, value_name = "FILE", requires = "hosts")]
    pub weir: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("whom").args(["pid", "job"])))]
pub struct StatArgs {
    /// The process, which must use Weir; without one, a list of those that do
    pub pid: Option<u32>,
    /// Show all ranks of a job on this host: its launcher's process, or the name that the list has
    #[arg(long, value_name = "JOB", conflicts_with_all = ["pid", "file"])]
    pub job: Option<String>,
    /// Read counters from a file that a process has written (WEIR_STATS)
    #[arg(long, conflicts_with_all = ["pid", "every"])]
    pub file: Option<PathBuf>,
    /// Show again and again what was counted within this many seconds, and of windows, queues and
    /// peaks what they are
    #[arg(long, value_name = "SECONDS", requires = "whom", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: Option<u64>,
    /// Show also what is zero or empty
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let args = Args::try_parse_from(["weir", "run", "-n", "4", "./p", "-n", "7", "--json"]).unwrap();
        let Command::Run(run) = args.command else { panic!("not run") };
        assert_eq!((run.ranks, run.json), (4, false));
        assert_eq!(run.program, ["./p", "-n", "7", "--json"]);
    }

    /// What `weir run` understands of these words.
    fn run_of(words: &[&str]) -> Result<RunArgs, clap::Error> {
        let words = ["weir", "run"].iter().chain(words).map(OsString::from);
        match Args::try_parse_from(with_np(words))?.command {
            Command::Run(run) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_number_of_ranks_may_be_written_as_for_a_launcher() {
        for words in [&["-n", "2"][..], &["-n2"], &["-n=2"], &["-np", "2"], &["-np=2"], &["--np", "2"], &["--ranks=2"]]
        {
            let run = run_of(&[words, &["./p", "-np", "7", "-x"]].concat()).unwrap();
            assert_eq!(
                (run.ranks, run.program),
                (2, ["./p", "-np", "7", "-x"].map(OsString::from).to_vec()),
                "{words:?}"
            );
        }
        let run = run_of(&["--launcher-arg", "-np", "-np", "3", "./p"]).unwrap();
        assert_eq!((run.ranks, run.launcher_arg), (3, vec![OsString::from("-np")]));
        let run = run_of(&["-n", "3", "--", "-np"]).unwrap();
        assert_eq!(run.program, ["-np"]);
    }

    #[test]
    fn a_run_can_be_typed_again() {
        for (line, again) in [
            ("./p -n 7", "-n 1"),
            ("-np 2 --hosts a,b ./p", "-n 2 --hosts a,b"),
            (
                "--launcher srun --launcher-arg -np --launcher-arg=-n --no-shm --ranks=3 -- ./p",
                "-n 3 --launcher srun --launcher-arg=-np --launcher-arg=-n --no-shm",
            ),
            ("--tag-output --local ./p", "-n 1 --local --tag-output"),
        ] {
            let run = run_of(&line.split(' ').collect::<Vec<_>>()).unwrap();
            let words = run.own_words(Some("weir".into()));
            let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(words.join(" "), format!("weir run {again}"));
            let same = run_of(&[&words[2..], &["./p"]].concat()).unwrap();
            assert_eq!(same.own_words(None), run.own_words(None));
        }
    }

    #[test]
    fn an_unknown_option_is_no_program() {
        for (words, named) in [
            (&["--nosuch", "./p"][..], "--nosuch"),
            (&["-x", "./p"], "-x"),
            (&["-n", "2", "--no-shn", "./p"], "--no-shn"),
            (&["--json", "./p"], "--dry-run"),
            (&["--hosts", "", "./p"], "--hosts"),
            (&["--hosts", "a,,b", "./p"], "--hosts"),
            (&["-nx", "./p"], "'x'"),
        ] {
            let error = run_of(words).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    /// A paragraph is one line, which is broken where the terminal ends.
    #[test]
    fn no_paragraph_of_help_is_broken_in_mid_sentence() {
        let is_prose = |line: &str| line.starts_with(|c: char| c.is_ascii_alphabetic() || "(`-".contains(c));
        let main = Args::command();
        let mut all: Vec<&clap::Command> = vec![&main];
        while let Some(command) = all.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for (line, next) in help.lines().zip(help.lines().skip(1)) {
                let ends = line.ends_with(['.', ':', ')']);
                assert!(ends || !is_prose(line) || !is_prose(next), "{}: {line:?}, {next:?}", command.get_name());
            }
            all.extend(command.get_subcommands().filter(|c| !c.is_hide_set()));
        }
    }

    #[test]
    fn every_command_has_examples() {
        let main = Args::command();
        let mut all: Vec<&clap::Command> = vec![&main];
        while let Some(command) = all.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples"), "{} has no examples", command.get_name());
            all.extend(command.get_subcommands().filter(|c| !c.is_hide_set()));
        }
    }
}
