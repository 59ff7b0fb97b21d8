use super::*;

/// A world of folders with made-up libraries.
struct World {
    dir: tempfile::TempDir,
    places: Places,
}

impl World {
    fn new() -> Self {
        let places = Places { beside_launcher: Vec::new(), search_path: Vec::new(), system: Vec::new() };
        Self { dir: tempfile::tempdir().unwrap(), places }
    }

    /// Installs a library under a name; its SONAME is the same.
    fn install(&self, folder: &str, name: &str) -> PathBuf {
        self.install_as(folder, name, &elf::made_up(Some(name), &[]))
    }

    fn install_as(&self, folder: &str, name: &str, bytes: &[u8]) -> PathBuf {
        let folder = self.folder(folder);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(name);
        fs::write(&file, bytes).unwrap();
        file
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn beside_launcher(mut self, folder: &str) -> Self {
        self.places.beside_launcher.push(self.folder(folder));
        self
    }

    fn search_path(mut self, folder: &str) -> Self {
        self.places.search_path.push(self.folder(folder));
        self
    }

    fn system(mut self, folder: &str) -> Self {
        self.places.system.push(self.folder(folder));
        self
    }

    fn find(&self, launch: &Launch) -> Result<Found, Error> {
        find_in(launch, &self.places, &Env::default(), None)
    }
}

fn started_by(family: Family) -> Launch {
    let program = Some(PathBuf::from("/there/bin/launcher"));
    Launch { family: Some(family), program, rank: Some(0), size: Some(2), unclear: false }
}

#[test]
fn the_library_beside_the_launcher_comes_first() {
    let world = World::new().beside_launcher("own/lib").search_path("path").system("usr");
    for folder in ["path", "usr"] {
        world.install(folder, "libmpi.so.12");
    }
    assert_eq!(world.find(&started_by(Family::Mpich)).unwrap().library, world.folder("path/libmpi.so.12"));
    let own = world.install("own/lib", "libmpi.so.12");
    let found = world.find(&started_by(Family::Mpich)).unwrap();
    assert_eq!((found.library, found.why.as_str(), found.named), (own, "beside the launcher", false));
}

#[test]
fn of_two_mpis_in_one_folder_the_launchers_is_taken() {
    let world = World::new().system("usr");
    let open = world.install("usr", "libmpi.so.40");
    let mpich = world.install("usr", "libmpich.so.12");
    assert_eq!(world.find(&started_by(Family::Mpich)).unwrap().library, mpich);
    assert_eq!(world.find(&started_by(Family::OpenMpi)).unwrap().library, open);
}

#[test]
fn an_mpis_own_abi_goes_before_the_standards() {
    let world = World::new().beside_launcher("lib");
    let standard = world.install("lib", "libmpi_abi.so.1");
    assert_eq!(world.find(&started_by(Family::OpenMpi)).unwrap().library, standard);
    let own = world.install("lib", "libmpi.so.40");
    assert_eq!(world.find(&started_by(Family::OpenMpi)).unwrap().library, own);
}

#[test]
fn another_mpis_library_is_refused_with_both_names() {
    let world = World::new().system("usr");
    let open = world.install("usr", "libmpi.so.40");
    let error = world.find(&started_by(Family::Mpich)).unwrap_err();
    assert!(matches!(error, Error::Mixed(_)), "{error:?}");
    let text = error.to_string();
    for part in
        ["MPICH's launcher /there/bin/launcher", &open.display().to_string(), "Open MPI's ABI", LIBRARY_VARIABLE]
    {
        assert!(text.contains(part) && !text.contains('\n'), "{part} is not in: {text}");
    }
}

#[test]
fn where_there_is_no_library_it_is_said_where_was_looked() {
    let world = World::new().system("usr");
    for launch in [Launch::default(), started_by(Family::OpenMpi)] {
        let error = world.find(&launch).unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error:?}");
        assert!(error.to_string().contains("LD_LIBRARY_PATH"), "{error}");
    }
}

#[test]
fn without_a_launcher_the_only_mpi_is_taken_and_two_are_refused() {
    let world = World::new().search_path("path").system("usr");
    let open = world.install("usr", "libmpi.so.40");
    assert_eq!(world.find(&Launch::default()).unwrap().library, open);
    let mpich = world.install("usr", "libmpich.so.12");
    let error = world.find(&Launch::default()).unwrap_err();
    assert!(matches!(error, Error::Ambiguous(_)), "{error:?}");
    assert!([&open, &mpich].iter().all(|file| error.to_string().contains(&*file.to_string_lossy())), "{error}");
    // Whoever sets the path means it.
    let meant = world.install("path", "libmpi.so.12");
    assert_eq!(world.find(&Launch::default()).unwrap().library, meant);
}

#[test]
fn one_mpi_with_both_its_abis_is_one() {
    let world = World::new().search_path("lib");
    world.install("lib", "libmpi_abi.so.1");
    let own = world.install("lib", "libmpi.so.12");
    assert_eq!(world.find(&Launch::default()).unwrap().library, own);
}

#[test]
fn marks_of_two_launchers_are_refused() {
    let world = World::new().system("usr");
    world.install("usr", "libmpi.so.40");
    let launch = Launch { unclear: true, ..Launch::default() };
    assert!(matches!(world.find(&launch), Err(Error::Ambiguous(_))));
}

#[test]
fn what_only_looks_like_a_library_is_passed_over() {
    let world = World::new().search_path("lib");
    world.install_as("lib", "libmpi.so.12", b"INPUT(libmpich.so)");
    world.install_as("lib", "libmpi.so.40", &elf::made_up(Some("libmpi_profile.so.40"), &[]));
    world.install_as("lib", "libmpi.so.40.30.4", &elf::made_up(Some("libmpi.so.40"), &[]));
    world.install("lib", "libmpi_cxx.so.40");
    assert!(matches!(world.find(&Launch::default()), Err(Error::NotFound(_))));
}

#[test]
fn a_named_library_goes_before_everything() {
    let world = World::new().beside_launcher("own").search_path("path");
    world.install("own", "libmpi.so.12");
    let abi = world.install("path", "libmpi_abi.so.1");
    // pip puts a text file for the compiler's linker beside it.
    world.install_as("path", "libmpi_abi.so", b"INPUT(libmpi_abi.so.1)");
    let launch = started_by(Family::Mpich);
    let by_variable = |value: &Path| {
        let env = Env::from_pairs([(LIBRARY_VARIABLE, value)]);
        find_in(&launch, &world.places, &env, None)
    };
    for name in [Path::new("libmpi_abi.so"), Path::new("libmpi_abi.so.1"), &abi] {
        let want = Found { library: abi.clone(), why: "named by the user".into(), named: true };
        assert_eq!(by_variable(name).unwrap(), want);
        assert_eq!(find_in(&launch, &world.places, &Env::default(), Some(name)).unwrap(), want);
    }
    for name in ["libmpi.so.99", "/no/such/libmpi.so.12"] {
        let error = by_variable(Path::new(name)).unwrap_err();
        assert!(matches!(error, Error::NotFound(_)) && error.to_string().contains(name), "{error}");
    }
}

#[test]
fn names_tell_the_abi() {
    for (name, abi) in [
        ("libmpi.so.12", Some(Abi::Mpich)),
        ("libmpich.so.12", Some(Abi::Mpich)),
        ("libmpi_cray.so.12", Some(Abi::Mpich)),
        ("libmpi.so.40", Some(Abi::OpenMpi)),
        ("libmpi_abi.so.0", Some(Abi::Standard)),
        ("libmpi_abi.so.1", Some(Abi::Standard)),
        ("libmpi.so.1", None),
        ("libmpi.so.20", None),
        ("libmpi_cxx.so.40", None),
        ("libmpifort.so.12", None),
        ("libmpi.so", None),
    ] {
        assert_eq!(Abi::of_soname(name), abi, "{name}");
    }
}

#[test]
fn name_and_symbols_must_tell_the_same_abi() {
    use crate::sys::abi::{Symbols, recognise};
    let ask = |soname: &str, ompi_world: bool, abi_version: Option<(i32, i32)>| {
        recognise(Path::new("/x"), soname, &Symbols { ompi_world, abi_version })
    };
    assert_eq!(ask("libmpi.so.12", false, None), Ok(Abi::Mpich));
    // MPICH 5 has the function in both its libraries; in that of its own ABI it says -1.
    assert_eq!(ask("libmpi.so.12", false, Some((-1, -1))), Ok(Abi::Mpich));
    assert_eq!(ask("libmpi.so.40", true, None), Ok(Abi::OpenMpi));
    assert_eq!(ask("libmpi_abi.so.1", false, Some((1, 0))), Ok(Abi::Standard));
    for (soname, ompi_world, abi_version, part) in [
        ("libmpi.so.12", true, None, "ompi_mpi_comm_world"),
        ("libmpi.so.40", false, None, "ompi_mpi_comm_world"),
        ("libmpi_abi.so.1", false, None, "MPI_Abi_get_version"),
        ("libmpi_abi.so.1", false, Some((-1, -1)), "version -1.-1"),
        ("libmpi_abi.so.2", false, Some((2, 0)), "version 2.0"),
        ("libz.so.1", false, None, "libz.so.1"),
    ] {
        let error = ask(soname, ompi_world, abi_version).unwrap_err();
        assert!(error.to_string().contains(part), "{soname}: {error}");
    }
}

const MPICH: &str = "MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:00:00 CDT 2026";
const OPEN_MPI: &str = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11";

#[test]
fn a_library_that_says_it_is_another_mpis_is_refused() {
    let found = |named| Found { library: "/x/libmpi_abi.so.1".into(), why: String::new(), named };
    assert_eq!(must_agree(&started_by(Family::Mpich), &found(false), MPICH), Ok(()));
    assert_eq!(must_agree(&Launch::default(), &found(false), OPEN_MPI), Ok(()));
    let text = must_agree(&started_by(Family::OpenMpi), &found(false), MPICH).unwrap_err().to_string();
    assert!(text.contains("Open MPI's launcher") && text.contains("is MPICH's (MPICH Version: 5.0.2)"), "{text}");
    // Some MPICHs speak PMIx too: who names one may know.
    assert_eq!(must_agree(&started_by(Family::OpenMpi), &found(true), MPICH), Ok(()));
    assert_eq!(family_of_version("Intel(R) MPI Library 2021.5 for Linux* OS"), Some(Family::Mpich));
    assert_eq!(family_of_version("Some MPI 1"), None);
}

#[test]
fn ranks_that_are_alone_are_told_why() {
    let found = Found { library: "/x/libmpi.so.40".into(), why: String::new(), named: true };
    let launch = Launch { size: Some(4), ..started_by(Family::Mpich) };
    let text = is_alone(&launch, &found, OPEN_MPI, 1).unwrap();
    for part in ["launcher started 4 processes", "/x/libmpi.so.40 (Open MPI v5.0.11)"] {
        assert!(text.contains(part) && !text.contains('\n'), "{part} is not in: {text}");
    }
    assert_eq!(is_alone(&launch, &found, OPEN_MPI, 4), None);
    assert_eq!(is_alone(&Launch { size: Some(1), ..launch.clone() }, &found, OPEN_MPI, 1), None);
    assert_eq!(is_alone(&Launch::default(), &found, OPEN_MPI, 1), None);
}
