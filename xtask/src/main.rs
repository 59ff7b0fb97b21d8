//! The project's chores: `cargo xtask <chore>`.

mod agreement;
mod any_mpi;
mod bad_days;
mod bench;
mod carriers;
#[path = "../../job/tests/cluster/mod.rs"]
mod cluster;
mod comments;
mod demo;
mod disk;
mod dist;
mod e2e;
mod figures;
mod guide;
mod interfaces;
mod lab;
mod lab_data;
mod launch;
mod layers;
mod measured;
mod mpi;
mod nas;
mod once;
mod origin;
mod packages;
mod paths;
mod predict;
mod predictions;
mod process;
mod readme;
mod requirements;
mod simgrid;
mod slurm;
mod smpi;
mod stack;
mod suite;
mod test_programs;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use paths::Paths;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The project's chores", max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build the provider, make a network of hosts, run MPI programs over Weir and its rivals,
    /// print one table
    Demo {
        /// Show the provider that is there, without building
        #[arg(long)]
        no_build: bool,
    },
    /// Build the release provider and command into target/weir
    Build,
    /// Build both as they are shipped and install them, with manual pages and completions ($DESTDIR
    /// is honoured)
    #[command(after_help = "Examples:
  cargo xtask install                                     into /usr/local
  cargo xtask install --prefix ~/.local
  DESTDIR=/tmp/stage cargo xtask install --prefix /usr")]
    Install(dist::InstallOptions),
    /// Make what people install, into target/packages: wheel, Debian package, archive, sources,
    /// recipes for Spack and containers
    #[command(after_help = "Examples:
  cargo xtask dist --check
  cargo xtask dist --no-build --check      once more with what was built

For glibc 2.28, that of RHEL 8, by Zig's linker, which is fetched from PyPI into target/zig. The same commit makes the same bytes.")]
    Dist(packages::Options),
    /// Run the tests; ends with a line `N passed, N failed`
    Test {
        /// Without the long tests
        #[arg(long)]
        quick: bool,
        /// With sixty times as many simulated networks, all tests compiled by the oldest Rust, and
        /// the times of BSP programs against their formulas
        #[arg(long, conflicts_with = "quick")]
        long: bool,
    },
    /// Run only what the tests do to MPI jobs on bad days: no key, lost ports, full disks, stopped
    /// and killed ranks
    BadDays {
        /// Only those whose names contain this
        #[arg(default_value = "")]
        only: String,
    },
    /// Run only the tests of MPI programs across hosts
    EndToEnd {
        /// Only those whose names contain this
        #[arg(default_value = "")]
        only: String,
    },
    /// Run only the tests of MPI programs on each carrier: one host by shared memory, packets, TCP;
    /// two hosts with two ranks each
    ByCarrier {
        /// Only those whose titles contain this
        #[arg(default_value = "")]
        only: String,
    },
    /// Run only the tests of clusters: MPI programs started by Slurm, Intel MPI, Fortran under
    /// Debian's Open MPI 4.1, hosts with many interfaces
    #[command(after_help = "Examples:
  cargo xtask clusters
  cargo xtask clusters Slurm
  cargo xtask clusters NAS
  cargo xtask clusters --no-build interfaces     with the provider and command that are there")]
    Clusters {
        /// Only those whose titles contain this
        #[arg(default_value = "")]
        only: String,
        /// With what is in target/weir, without building
        #[arg(long)]
        no_build: bool,
    },
    /// Run only the tests of real launchers: Hydra, PRRTE, and Slurm where it is installed
    Launchers,
    /// Run only the tests of one binary under every MPI
    AnyMpi,
    /// Run only the tests of weir bench under every MPI, and without one
    Measured {
        /// Only those whose names contain this
        #[arg(default_value = "")]
        only: String,
        /// Instead: whether its means agree with those of other benchmarks, by sizes; wants an idle
        /// machine
        #[arg(long)]
        agreement: bool,
        /// This weir instead of the one that is built for it
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Run only the tests of packages of what `cargo xtask build` made: installed where there is no
    /// compiler
    Packaged,
    /// Run only the tests of predictions against real MPIs: programs that end or hang, models of
    /// recorded runs
    Predictions {
        /// Only those whose names contain this
        #[arg(default_value = "")]
        only: String,
        /// This weir instead of the one that is built for it
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Measure
    Bench {
        #[command(subcommand)]
        what: What,
    },
    /// Raw numbers of docs/lab, which stay out of the repository: pack them for a release, or put
    /// them back
    LabData {
        #[command(subcommand)]
        what: lab_data::What,
    },
    /// Run the example programs of examples/predict on emulated hosts and predict them from a
    /// benchmark of the same hosts; wants an idle machine
    Predict(predict::Options),
    /// Fetch the pinned MPICH, Open MPI and mpi4py, and compile the MPI test programs
    SetupMpi,
    /// Run one of the MPI programs of tests/mpi across emulated hosts
    #[command(after_help = "Examples:
  cargo xtask mpirun pingpong --size 30000
  cargo xtask mpirun --stack mpich-tcp-cubic,weir-mpich --loss 0.01 -n 4 farm --tasks 1000
  cargo xtask mpirun --rate-mbit 1000 --delay-us 1000 --env WEIR_TRACE=1 --show order
  cargo xtask mpirun --stack mpich-tcp-cubic,weir-mpich -n 4 --bus --rate-mbit 10 --queue 64 ring")]
    Mpirun(RunArgs),
}

#[derive(Subcommand)]
enum What {
    /// Weir and its rivals under MPI, side by side, written down in docs/lab
    Mpi(bench::Options),
    /// Supersteps of BSPlib beside the same written with MPI, on one host, around a switch with
    /// short queues and on a shared bus
    Bsp(bench::bsp::Options),
    /// The NAS kernels LU, BT, SP and MG in Fortran over Weir and over TCP, beside the same with
    /// BSPlib, with and without loss
    Nas(bench::nas::Options),
    /// Requests and answers over BMI beside raw sockets, and beside the original libraries where
    /// they are
    Bmi(bench::bmi::Options),
    /// A ping-pong over two links of which one is cut, over Weir and over what else may use both
    Cut(bench::cut::Options),
    /// Start of many ranks on a few hosts: time, memory and descriptors, over Weir and over tcp
    Ranks(bench::ranks::Options),
    /// Instructions of one MPI_Send and of one MPI_Recv that finds its message
    Counts(bench::counts::Options),
    /// How fast the emulator's switch forwards 1500-byte packets, written down in docs/lab
    Emulator(bench::emulator::Options),
}

#[derive(clap::Args)]
struct RunArgs {
    /// The stacks, such as weir-mpich, mpich-tcp-cubic or weir-impi; `all` for all but Intel MPI's
    #[arg(long, value_delimiter = ',', default_value = "weir-mpich")]
    stack: Vec<String>,
    /// Ranks, one on each host if not said otherwise
    #[arg(short, default_value_t = 2)]
    n: usize,
    /// Hosts, over which the ranks are spread
    #[arg(long)]
    hosts: Option<usize>,
    /// Probability that a packet is lost, each way
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Rate of the hosts' links
    #[arg(long)]
    rate_mbit: Option<u32>,
    /// Time of flight, one way
    #[arg(long, default_value_t = 0)]
    delay_us: u32,
    /// Up to so much more, each packet another time, in order
    #[arg(long, default_value_t = 0)]
    jitter_us: u32,
    /// All hosts share one half-duplex medium of that rate: one frame at a time, with its preamble,
    /// checksum and gap, the hosts in turn
    #[arg(long, requires = "rate_mbit")]
    bus: bool,
    /// With --bus: they collide and back off instead, as on a half-duplex Ethernet (CSMA/CD)
    #[arg(long, requires = "bus")]
    collisions: bool,
    /// Queue of the switch's ports, packets; of each host with --bus
    #[arg(long)]
    queue: Option<u32>,
    /// What waits at such a port, packets, when it marks ECN-capable ones (`--env WEIR_ECN=on`)
    #[arg(long)]
    mark: Option<u32>,
    /// Without segmentation and receive offload, as with loss
    #[arg(long)]
    no_offload: bool,
    /// A second network beside the first
    #[arg(long)]
    two_networks: bool,
    /// Rate of its links, if it is another
    #[arg(long, requires = "two_networks")]
    second_rate_mbit: Option<u32>,
    /// Time of flight on it, one way, if it is another
    #[arg(long, requires = "two_networks")]
    second_delay_us: Option<u32>,
    /// Longest packet in bytes
    #[arg(long)]
    mtu: Option<u32>,
    /// Longest packet on the second network, if it is another
    #[arg(long, requires = "two_networks")]
    second_mtu: Option<u32>,
    /// The first host's link to the first network is cut this long after the launch
    #[arg(long, requires = "two_networks")]
    cut_after_ms: Option<u64>,
    /// Environment for the ranks, as NAME=VALUE
    #[arg(long)]
    env: Vec<String>,
    /// The run is ended after this many seconds
    #[arg(long, default_value_t = 30)]
    limit: u64,
    /// Show the launcher's command and everything the ranks print
    #[arg(long)]
    show: bool,
    /// The program, by name in tests/mpi or by path
    program: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    weir_emulate::process::quietly(chore)
}

fn chore() -> ExitCode {
    let paths = Paths::find();
    let result = match Args::parse().chore {
        Chore::Demo { no_build } => demo::run(&paths, no_build).map(|()| true),
        Chore::Build => dist::build(&paths).map(|()| {
            println!("built into {}", paths.dist().display());
            true
        }),
        Chore::Install(options) => dist::install(&paths, &options).map(|()| true),
        Chore::Dist(options) => packages::run(&paths, &options),
        Chore::Test { quick, long } => suite::run(&paths, quick, long),
        Chore::BadDays { only } => suite::bad_days(&paths, &only),
        Chore::EndToEnd { only } => suite::e2e(&paths, &only),
        Chore::ByCarrier { only } => suite::by_carrier(&paths, &only),
        Chore::Clusters { only, no_build } => suite::clusters(&paths, &only, !no_build),
        Chore::AnyMpi => suite::any_mpi(&paths),
        Chore::Launchers => suite::launchers_alone(&paths),
        Chore::Measured { agreement: true, .. } => agreement::run(&paths),
        Chore::Measured { only, program, .. } => suite::measured(&paths, program, &only),
        Chore::Packaged => suite::packaged(&paths),
        Chore::Predictions { only, program } => suite::predictions(&paths, program, &only),
        Chore::Bench { what: What::Mpi(options) } => bench::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Bsp(options) } => bench::bsp::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Nas(options) } => bench::nas::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Bmi(options) } => bench::bmi::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Cut(options) } => bench::cut::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Ranks(options) } => bench::ranks::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Counts(options) } => bench::counts::run(&paths, &options).map(|()| true),
        Chore::Bench { what: What::Emulator(options) } => bench::emulator::run(&paths, &options).map(|()| true),
        Chore::LabData { what } => lab_data::run(&paths, &what).map(|()| true),
        Chore::Predict(options) => predict::run(&paths, &options).map(|()| true),
        Chore::SetupMpi => mpi::set_up(&paths).and_then(|()| mpi::compile(&paths)).map(|()| true),
        Chore::Mpirun(run) => mpirun(&paths, &run),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn mpirun(paths: &Paths, run: &RunArgs) -> Result<bool> {
    // What is there and up to date is left as it is.
    mpi::set_up(paths)?;
    mpi::compile(paths)?;
    lab::acquire()?;
    let mut all = stack::Stack::all(&["cubic".into(), "bbr".into()]);
    // Those of Intel MPI only by name: it is fetched by whoever asks for it.
    all.extend(stack::Stack::of_intel(&[]));
    let intel = |s: &stack::Stack| s.mpi == mpi::Mpi::Intel;
    let asked = |s: &stack::Stack| run.stack.iter().any(|name| (name == "all" && !intel(s)) || *name == s.name);
    let wanted: Vec<_> = all.iter().filter(|s| asked(s)).collect();
    if wanted.iter().any(|s| intel(s)) {
        mpi::set_up_one(paths, mpi::Mpi::Intel)?;
        if !run.program.contains('/') {
            mpi::compile_these(paths, mpi::Mpi::Intel, &[&run.program])?;
        }
    }
    if wanted.iter().any(|s| s.name.starts_with("weir")) && !paths.provider().exists() {
        bail!("there is no provider yet: cargo xtask build");
    }
    if wanted.is_empty() {
        bail!("no such stack; there are: {}", all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "));
    }
    let mut env = Vec::new();
    for text in &run.env {
        let Some((name, value)) = text.split_once('=') else { bail!("--env wants NAME=VALUE, not {text}") };
        env.push((name.to_owned(), value.to_owned()));
    }
    let wire = lab::Wire {
        loss: run.loss,
        rate_mbit_per_s: run.rate_mbit,
        delay_us: run.delay_us,
        jitter_us: run.jitter_us,
        bus: run.bus,
        collisions: run.collisions,
        queue_packets: run.queue,
        mark_packets: run.mark,
        no_offload: run.no_offload,
        two_networks: run.two_networks,
        second: lab::Second {
            rate_mbit_per_s: run.second_rate_mbit,
            delay_us: run.second_delay_us,
            mtu_bytes: run.second_mtu,
        },
        mtu_bytes: run.mtu,
        two_cables: false,
    };
    let lab = lab::Lab::start(run.hosts.unwrap_or(run.n), &wire)?;
    let mut good = true;
    for stack in wanted {
        lab.set_congestion(stack.congestion.as_deref())?;
        let program = if run.program.contains('/') {
            run.program.clone().into()
        } else {
            mpi::program(paths, stack.mpi, &run.program)
        };
        let job = launch::Job {
            stack,
            ranks: run.n,
            program: &program,
            args: &run.args,
            limit: Duration::from_secs(run.limit),
            env: &env,
        };
        if run.show {
            println!("{}", process::line_of(&job.command(paths, Some(&lab))?));
        }
        let before = lab.counts()?;
        let outcome = std::thread::scope(|scope| {
            if let Some(ms) = run.cut_after_ms {
                let lab = &lab;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(ms));
                    if let Err(error) = lab.cut(lab::DATA_IFACE) {
                        eprintln!("xtask: the link is not cut: {error:#}");
                    }
                });
            }
            job.run(paths, Some(&lab))
        })?;
        if run.cut_after_ms.is_some() {
            lab.heal(lab::DATA_IFACE)?;
        }
        let counts = lab.counts()?.since(before);
        if run.show {
            print!("{}{}", outcome.stdout, outcome.stderr);
        }
        good &= outcome.ok();
        match launch::result_of(&outcome).filter(|_| outcome.ok()) {
            Some(value) => println!("{}: {value}", stack.name),
            None => println!("{}: {}", stack.name, outcome.cause()),
        }
        println!(
            "{}: {} packets, {} lost on purpose, {} by full queues, {:.1} s",
            stack.name,
            counts.sent,
            counts.lost,
            counts.queue_full,
            outcome.elapsed.as_secs_f64()
        );
    }
    Ok(good)
}
