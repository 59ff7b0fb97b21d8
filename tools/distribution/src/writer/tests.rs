//! The writer over a file system that fails at a chosen step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::files::Output;
use crate::model::{Configuration, Operation, SummaryRecord};

/// More than the whole of the runs written here takes, so that a writer that never succeeds ends a
/// test.
const MAX_STEPS: i64 = 1000;
/// As much, for bytes.
const MAX_BYTES: i64 = 200_000;

/// What the file system still does.
struct Budget {
    /// Steps (calls) until everything fails, as if the process had been killed.
    steps: AtomicI64,
    /// Bytes until writing fails for want of space; removing goes on.
    bytes: AtomicI64,
}

#[derive(Clone)]
struct Faulty(Arc<Budget>);

impl Faulty {
    fn new(steps: i64, bytes: i64) -> Self {
        Self(Arc::new(Budget { steps: steps.into(), bytes: bytes.into() }))
    }

    fn step(&self) -> io::Result<()> {
        if self.0.steps.fetch_sub(1, Ordering::Relaxed) > 0 { Ok(()) } else { Err(io::Error::other("killed")) }
    }
}

struct FaultyFile(File, Faulty);

impl Write for FaultyFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if let Err(e) = self.1.step() {
            // A kill can come with half of it written; once.
            if self.1.0.steps.load(Ordering::Relaxed) == -1 {
                self.0.write_all(&data[..data.len() / 2])?;
            }
            return Err(e);
        }
        let room = self.1.0.bytes.load(Ordering::Relaxed).max(0);
        let n = data.len().min(usize::try_from(room).unwrap());
        if n == 0 && !data.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all(&data[..n])?;
        self.1.0.bytes.fetch_sub(i64::try_from(n).unwrap(), Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        self.1.step()
    }
}

impl Files for Faulty {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        self.step()?;
        Ok(Box::new(FaultyFile(File::create(path)?, self.clone())))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        self.step()?;
        Ok(Box::new(FaultyFile(File::options().create(true).append(true).open(path)?, self.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        fs::rename(from, to)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.step()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::remove_file(path)
    }
}

fn cell() -> Cell {
    Cell::new(0, 0, Configuration::pair(Operation::PING_PONG, 64))
}

fn samples(n: u32) -> Vec<Sample> {
    (0..n).map(|i| Sample { repetition: i, duration_ns: f64::from(i), ..Sample::default() }).collect()
}

/// Three cells of 0, 10 and 20 samples; returns how many were reported finished, and the first
/// error.
fn write_three(dir: &Path, existing: Existing, files: &Faulty) -> (usize, Option<Error>) {
    let mut writer = match Writer::create_with(dir, Run::new("test"), existing, Box::new(files.clone())) {
        Ok(writer) => writer,
        Err(e) => return (0, Some(e)),
    };
    for i in 0..3_u32 {
        if let Err(e) = writer.write_cell(cell(), &samples(10 * i)) {
            return (i as usize, Some(e));
        }
    }
    match writer.finish(State::Complete) {
        Ok(()) => (3, None),
        Err(e) => (3, Some(e)),
    }
}

#[test]
fn a_kill_at_any_step_leaves_a_run_with_every_finished_cell() {
    let mut whole_runs = 0;
    for steps in 0..MAX_STEPS {
        let dir = tempfile::tempdir().unwrap();
        let (finished, error) = write_three(dir.path(), Existing::Refuse, &Faulty::new(steps, i64::MAX));
        match Reader::open(dir.path()) {
            Ok(reader) => {
                let cells = reader.run().cells.len();
                // The step that failed may have been the one after the rename.
                assert!(cells == finished || cells == finished + 1, "{cells} cells, {finished} finished at {steps}");
                assert!(reader.verify().is_empty(), "{:?} at {steps}", reader.verify());
            }
            Err(Error::NotARun { .. }) if finished == 0 => {
                Writer::create(dir.path(), Run::new("again"), Existing::Refuse).expect("nothing there yet");
            }
            Err(e) => panic!("{e} at {steps}"),
        }
        if error.is_none() {
            whole_runs += 1;
            break;
        }
    }
    assert_eq!(whole_runs, 1);
}

/// Cells enough that most go through the journal, if `run.json` counts as long from the beginning.
const MANY: usize = 14;

/// So many cells by way of the journal; as `write_three`, and whether `run.json` named fewer cells
/// than were finished at any time.
fn write_many(dir: &Path, existing: Existing, files: &Faulty) -> (usize, Option<Error>, bool) {
    let mut writer = match Writer::create_with(dir, Run::new("test"), existing, Box::new(files.clone())) {
        Ok(writer) => writer,
        Err(e) => return (0, Some(e), false),
    };
    writer.whole_below = 0;
    let mut lagged = false;
    for i in 0..MANY {
        if let Err(e) = writer.write_cell(cell(), &samples(i as u32)) {
            return (i, Some(e), lagged);
        }
        lagged |= dir.join(JOURNAL_FILE).exists();
    }
    match writer.finish(State::Complete) {
        Ok(()) => (MANY, None, lagged),
        Err(e) => (MANY, Some(e), lagged),
    }
}

#[test]
fn a_kill_at_any_step_keeps_the_cells_in_the_journal_too_and_they_can_be_gone_on_with() {
    for steps in 0..MAX_STEPS {
        let dir = tempfile::tempdir().unwrap();
        let (finished, error, lagged) = write_many(dir.path(), Existing::Refuse, &Faulty::new(steps, i64::MAX));
        if finished == 0 && matches!(Reader::open(dir.path()), Err(Error::NotARun { .. })) {
            continue;
        }
        let reader = Reader::open(dir.path()).unwrap_or_else(|e| panic!("{e} at {steps}"));
        let cells = reader.run().cells.len();
        assert!(cells == finished || cells == finished + 1, "{cells} cells, {finished} finished at {steps}");
        assert!(reader.verify().is_empty(), "{:?} at {steps}", reader.verify());
        let ids: Vec<u32> = reader.run().cells.iter().map(|c| c.id).collect();
        assert_eq!(ids, (0..cells as u32).collect::<Vec<_>>(), "at {steps}");
        let mut again = Writer::append(dir.path()).unwrap();
        assert_eq!(again.run(), reader.run());
        again.write_cell(cell(), &samples(3)).unwrap();
        drop(again);
        let reader = Reader::open(dir.path()).unwrap();
        assert_eq!((reader.run().cells.len(), reader.has_cut_line()), (cells + 1, false));
        assert!(!dir.path().join(JOURNAL_FILE).exists(), "its cells are in run.json");
        if error.is_none() {
            assert!(lagged, "nothing went through the journal");
            return;
        }
    }
    panic!("never came to its end");
}

#[test]
fn a_full_disk_keeps_the_cells_in_the_journal_too() {
    let mut full = 0;
    for bytes in (0..MAX_BYTES).step_by(997) {
        let dir = tempfile::tempdir().unwrap();
        let (finished, error, _) = write_many(dir.path(), Existing::Refuse, &Faulty::new(i64::MAX, bytes));
        let Some(error) = error else { break };
        full += 1;
        assert!(matches!(error, Error::Full { .. }), "{error}");
        if finished > 0 {
            let reader = Reader::open(dir.path()).unwrap();
            assert_eq!(reader.run().cells.len(), finished, "{error}");
            assert!(reader.verify().is_empty(), "{:?}", reader.verify());
        }
    }
    assert!(full > 20, "{full}");
}

#[test]
fn after_a_line_that_was_not_written_whole_cells_are_kept_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let files = Faulty::new(i64::MAX, i64::MAX);
    let mut writer =
        Writer::create_with(dir.path(), Run::new("test"), Existing::Refuse, Box::new(files.clone())).unwrap();
    writer.whole_below = 0;
    while writer.run().cells.len() < 3 || !writer.goes_to_journal(1000) {
        writer.write_cell(cell(), &samples(1)).unwrap();
    }
    let before = writer.run().cells.len();
    // What the samples take is known from the file of a cell that is like it.
    let bytes = fs::metadata(dir.path().join("samples/00000.parquet")).unwrap().len();
    files.0.bytes.store(i64::try_from(bytes).unwrap() + 40, Ordering::Relaxed);
    assert!(matches!(writer.write_cell(cell(), &samples(1)), Err(Error::Full { cells, .. }) if cells == before));
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!((reader.run().cells.len(), reader.has_cut_line()), (before, true));
    files.0.bytes.store(i64::MAX, Ordering::Relaxed);
    for more in 1..4 {
        writer.write_cell(cell(), &samples(1)).unwrap();
        let reader = Reader::open(dir.path()).unwrap();
        assert_eq!((reader.run().cells.len(), reader.has_cut_line()), (before + more, false));
    }
}

#[test]
fn many_cells_do_not_rewrite_run_json_for_each() {
    /// The file system, counting what is made.
    struct Counting(Arc<AtomicI64>);
    impl Files for Counting {
        fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
            self.0.fetch_add(i64::from(path.ends_with(RUN_TMP)), Ordering::Relaxed);
            RealFiles.create(path)
        }
        fn append(&self, path: &Path) -> io::Result<Box<dyn Output>> {
            RealFiles.append(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealFiles.rename(from, to)
        }
        fn sync_dir(&self, _: &Path) -> io::Result<()> {
            Ok(())
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealFiles.remove(path)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let made = Arc::new(AtomicI64::new(0));
    let files = Box::new(Counting(made.clone()));
    let mut writer = Writer::create_with(dir.path(), Run::new("test"), Existing::Refuse, files).unwrap();
    writer.whole_below = 10_000;
    for _ in 0..400 {
        writer
            .write_record(Cell { summary: Some(SummaryRecord { count: 1, ..Default::default() }), ..cell() })
            .unwrap();
    }
    let made = made.load(Ordering::Relaxed);
    // A dozen while it is short, then with each growth by a quarter: not 400.
    assert!((10..60).contains(&made), "{made}");
    assert_eq!(Reader::open(dir.path()).unwrap().run(), writer.run());
}

#[test]
fn a_kill_while_overwriting_leaves_the_old_run_or_the_new_or_none() {
    for steps in 0..MAX_STEPS {
        let dir = tempfile::tempdir().unwrap();
        let mut old = Writer::create(dir.path(), Run::new("old"), Existing::Refuse).unwrap();
        for _ in 0..4 {
            old.write_cell(cell(), &samples(5)).unwrap();
        }
        drop(old);
        let (finished, error) = write_three(dir.path(), Existing::Overwrite, &Faulty::new(steps, i64::MAX));
        match Reader::open(dir.path()) {
            Ok(reader) => {
                assert!(reader.verify().is_empty(), "{:?} at {steps}", reader.verify());
                let (machine, cells) = (reader.run().machine.as_str(), reader.run().cells.len());
                assert!(machine == "old" && cells == 4 || cells == finished || cells == finished + 1);
            }
            Err(Error::NotARun { .. }) => assert_eq!(finished, 0),
            Err(e) => panic!("{e} at {steps}"),
        }
        if error.is_none() {
            return;
        }
    }
    panic!("never came to its end");
}

#[test]
fn a_full_disk_is_told_in_one_line_and_keeps_finished_cells() {
    let mut full = 0;
    for bytes in (0..MAX_BYTES).step_by(53) {
        let dir = tempfile::tempdir().unwrap();
        let (finished, error) = write_three(dir.path(), Existing::Refuse, &Faulty::new(i64::MAX, bytes));
        let Some(error) = error else { break };
        full += 1;
        let text = error.to_string();
        assert!(matches!(error, Error::Full { .. }), "{text}");
        assert!(text.contains("no space left") && text.lines().count() == 1, "{text}");
        if finished > 0 {
            let reader = Reader::open(dir.path()).expect("the run is there");
            assert_eq!(reader.run().cells.len(), finished);
            assert!(reader.verify().is_empty(), "{:?}", reader.verify());
        }
        let leftovers = fs::read_dir(dir.path().join(SAMPLES_DIR)).unwrap().count();
        assert_eq!(leftovers, finished, "files that no cell names were left at {bytes}");
    }
    assert!(full > 20, "{full}");
}

#[test]
fn the_writer_goes_on_when_there_is_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let files = Faulty::new(i64::MAX, 100_000);
    let mut writer =
        Writer::create_with(dir.path(), Run::new("test"), Existing::Refuse, Box::new(files.clone())).unwrap();
    writer.write_cell(cell(), &samples(10)).unwrap();
    files.0.bytes.store(500, Ordering::Relaxed);
    assert!(matches!(writer.write_cell(cell(), &samples(1000)), Err(Error::Full { cells: 1, .. })));
    files.0.bytes.store(100_000, Ordering::Relaxed);
    assert_eq!(writer.write_cell(cell(), &samples(20)).unwrap(), 1);
    writer.finish(State::Complete).unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.read_samples(&reader.run().cells[1]).unwrap(), samples(20));
}

#[test]
fn a_number_that_json_cannot_hold_is_refused_with_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path(), Run::new("test"), Existing::Refuse).unwrap();
    writer.write_cell(cell(), &samples(1)).unwrap();
    let summary = SummaryRecord { count: 1, mean_ns: f64::NAN, ..SummaryRecord::default() };
    let wrong = Cell { summary: Some(summary), ..cell() };
    let text = writer.write_cell(wrong, &samples(1)).unwrap_err().to_string();
    assert!(text.contains("cells[1].summary.mean_ns"), "{text}");
    let warning = Cell { window_ns: Some(1.0), clock_error_ns: Some(f64::INFINITY), ..cell() };
    // An optional number becomes "not known".
    assert!(writer.write_cell(warning, &samples(1)).is_ok());
    assert_eq!(Reader::open(dir.path()).unwrap().run().cells.len(), 2);
}

#[test]
fn a_finished_run_is_not_overwritten_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (finished, error) = write_three(dir.path(), Existing::Refuse, &Faulty::new(i64::MAX, i64::MAX));
    assert!(finished == 3 && error.is_none());
    let again = |existing| Writer::create(dir.path(), Run::new("new"), existing);
    let text = again(Existing::Refuse).map(drop).unwrap_err().to_string();
    assert!(text.contains("holds a run already") && text.contains("(complete, 3 cells)"), "{text}");
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    again(Existing::Overwrite).unwrap();
    assert!(Reader::open(dir.path()).unwrap().run().cells.is_empty());
    assert!(dir.path().join("notes.txt").exists(), "somebody else's file was removed");
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "mine").unwrap();
    let text = Writer::create(dir.path(), Run::new("new"), Existing::Overwrite).map(drop).unwrap_err().to_string();
    assert!(text.contains("not a run"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn launches_are_added_to_a_run_that_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let mut writer = if number == 0 {
            Writer::create(dir.path(), Run::new("test"), Existing::Refuse).unwrap()
        } else {
            Writer::append(dir.path()).unwrap()
        };
        writer.begin_launch(Launch { number, ..Launch::default() }).unwrap();
        writer.write_cell(Cell { launch: number, ..cell() }, &samples(number + 1)).unwrap();
        writer.finish(State::Complete).unwrap();
    }
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.run().launches.len(), 3);
    for (i, cell) in reader.run().cells.iter().enumerate() {
        assert_eq!((cell.id as usize, cell.launch as usize), (i, i));
        assert_eq!(reader.read_samples(cell).unwrap().len(), i + 1);
    }
    let mut writer = Writer::append(dir.path()).unwrap();
    let text = writer.write_cell(Cell { launch: 7, ..cell() }, &[]).unwrap_err().to_string();
    assert!(text.contains("cells[3].launch"), "{text}");
}

#[test]
fn a_launch_that_is_withdrawn_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (new, there) = (folder.path().join("new"), folder.path().join("there"));
    fs::create_dir(&there).unwrap();
    let begun = |dir: &Path| {
        let mut writer = Writer::create(dir, Run::new("test"), Existing::Refuse).unwrap();
        writer.begin_launch(Launch::default()).unwrap();
        writer
    };
    begun(&new).withdraw(0, State::Complete).unwrap();
    assert!(!new.exists());
    begun(&there).withdraw(0, State::Complete).unwrap();
    assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "the folder is somebody else's");
    // What somebody has put there stays.
    let writer = begun(&new);
    fs::write(new.join("notes.txt"), "mine").unwrap();
    writer.withdraw(0, State::Complete).unwrap();
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
    // A run that has another launch is as before.
    let mut writer = begun(&there);
    writer.write_cell(cell(), &samples(3)).unwrap();
    writer.finish(State::Complete).unwrap();
    let before = Reader::open(&there).unwrap().into_run();
    let mut writer = Writer::append(&there).unwrap();
    writer.begin_launch(Launch { number: 1, ..Launch::default() }).unwrap();
    writer.withdraw(1, State::Complete).unwrap();
    assert_eq!(Reader::open(&there).unwrap().into_run(), before);
}

/// The file system, but for the syncing of one folder.
struct Unsyncable(std::path::PathBuf);

impl Files for Unsyncable {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        RealFiles.create(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        RealFiles.append(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // Only from the second `run.json` on: the first makes the run.
        match path == self.0 && path.join(SAMPLES_DIR).join("00000.parquet").exists() {
            true => Err(io::Error::other("input/output error")),
            false => RealFiles.sync_dir(path),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove(path)
    }
}

#[test]
fn a_cell_that_run_json_names_keeps_its_samples_though_the_folder_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let files = Box::new(Unsyncable(dir.path().to_owned()));
    let mut writer = Writer::create_with(dir.path(), Run::new("test"), Existing::Refuse, files).unwrap();
    let text = writer.write_cell(cell(), &samples(10)).unwrap_err().to_string();
    assert!(text.contains("cannot write: input/output error"), "{text}");
    assert_eq!(writer.run().cells.len(), 1, "the cell is in run.json");
    assert!(writer.update(|run| run.state = State::Stopped).is_err());
    assert_eq!(writer.run().state, State::Stopped);
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!((reader.run().cells.len(), reader.run().state), (1, State::Stopped));
    assert!(reader.verify().is_empty(), "{:?}", reader.verify());
    // The next cell does not take its place.
    assert!(writer.write_cell(cell(), &samples(20)).is_err());
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.run().cells.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1]);
    assert!(reader.verify().is_empty(), "{:?}", reader.verify());
}

#[test]
fn a_run_has_one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Writer::create(dir.path(), Run::new("test"), Existing::Refuse).unwrap();
    for second in [Writer::append(dir.path()), Writer::create(dir.path(), Run::new("other"), Existing::Overwrite)]
        .map(|w| w.map(drop))
    {
        assert!(matches!(second, Err(Error::Busy(_))), "{second:?}");
    }
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.is_being_written(), Some(true));
    first.write_cell(cell(), &samples(3)).unwrap();
    drop(first);
    assert_eq!(reader.is_being_written(), Some(false));
    let mut second = Writer::append(dir.path()).unwrap();
    assert_eq!(second.write_cell(cell(), &samples(3)).unwrap(), 1);
}
