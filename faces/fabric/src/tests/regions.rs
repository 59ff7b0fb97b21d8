//! Memory regions: what is refused, what the MPIs ask for, and that no attribute is read that the
//! application's version does not have.

use super::*;
use crate::info::MR_IOV_LIMIT;
use libc::iovec;

/// What Open MPI and MPICH ask for.
const ACCESS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE | FI_SEND | FI_RECV;

/// A registration with all it may say.
#[derive(Clone, Copy)]
struct Asked {
    base: *const c_void,
    len: usize,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
}

/// Registers in each of the three ways: `fi_mr_reg` where one piece is asked for, `fi_mr_regv`,
/// `fi_mr_regattr`. The answers, and how many regions were made (closed again).
fn register(domain: Handle<FidDomain>, asked: Asked) -> (Vec<i32>, usize) {
    let Asked { base, len, count, access, offset, key, flags } = asked;
    let list = [iovec { iov_base: base.cast_mut(), iov_len: len }; MR_IOV_LIMIT + 1];
    let mr_iov = list.as_ptr();
    // SAFETY: zeros are valid.
    let zeros: FiMrAttr = unsafe { std::mem::zeroed() };
    let attr = FiMrAttr { mr_iov, iov_count: count, access, offset, requested_key: key, ..zeros };
    let none = null_mut();
    let fid: Handle<Fid> = fid_of(domain);
    // SAFETY: an open domain and valid lists; regions are closed before their memory goes.
    unsafe {
        let ops = &*(*domain.raw()).mr;
        let mut results = Vec::new();
        let mut made = 0;
        let mut attempt = |call: &dyn Fn(*mut *mut FidMr) -> i32| {
            let mut mr = null_mut();
            results.push(call(&raw mut mr));
            if !mr.is_null() {
                made += 1;
                assert_eq!(close(handle_of(mr)), 0);
            }
        };
        if count == 1 {
            attempt(&|out| (ops.reg)(fid, base, len, access, offset, key, flags, out, none));
        }
        attempt(&|out| (ops.regv)(fid, mr_iov, count, access, offset, key, flags, out, none));
        attempt(&|out| (ops.regattr)(fid, &raw const attr, flags, out));
        (results, made)
    }
}

#[test]
fn what_is_not_offered_is_refused_in_every_way_of_registering() {
    let world = World::new();
    let (memory, before) = ([0u8; 64], world.state());
    let good = Asked {
        base: memory.as_ptr().cast(),
        len: memory.len(),
        count: 1,
        access: ACCESS,
        offset: 0,
        key: 1,
        flags: 0,
    };
    assert_eq!(register(world.base.domain, good), (vec![0; 3], 3));
    let mut wrong = Vec::new();
    let mut refused = |what: &str, code: i32, asked: Asked| {
        let (answers, made) = register(world.base.domain, asked);
        if made > 0 || answers.iter().any(|a| *a != -code) {
            wrong.push(format!("{what}: {answers:?} instead of -{code}, {made} regions made"));
        }
    };
    for (what, flags) in [
        ("FI_MR_DMABUF", FI_MR_DMABUF),
        ("FI_MR_SINGLE_USE", FI_MR_SINGLE_USE),
        ("FI_HMEM_HOST_ALLOC", FI_HMEM_HOST_ALLOC),
        ("FI_HMEM_DEVICE_ONLY", FI_HMEM_DEVICE_ONLY),
        ("FI_RMA_PMEM", FI_RMA_PMEM),
        ("FI_RMA_EVENT", FI_RMA_EVENT),
        ("FI_AUTH_KEY", FI_AUTH_KEY),
        ("an unknown flag", 1 << 60),
    ] {
        refused(what, FI_EBADFLAGS, Asked { flags, ..good });
    }
    refused("unknown access", FI_EBADFLAGS, Asked { access: 1 << 60, ..good });
    refused("an offset", FI_EINVAL, Asked { offset: 1, ..good });
    refused("no pieces", FI_EINVAL, Asked { count: 0, ..good });
    refused("too many pieces", FI_EINVAL, Asked { count: MR_IOV_LIMIT + 1, ..good });
    refused("null memory", FI_EINVAL, Asked { base: null(), ..good });
    for len in [usize::MAX, 1 << 63, isize::MAX as usize] {
        refused("memory beyond the address space", FI_EINVAL, Asked { len, ..good });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(world.state(), before);
}

#[test]
fn capabilities_among_the_access_bits_are_taken() {
    let world = World::new();
    let (memory, before) = ([0u8; 64], world.state());
    let plain = Asked {
        base: memory.as_ptr().cast(),
        len: memory.len(),
        count: 1,
        access: ACCESS,
        offset: 0,
        key: 1,
        flags: 0,
    };
    for capability in [FI_RMA, FI_MSG, FI_TAGGED, FI_ATOMIC, FI_COLLECTIVE, FI_RMA | FI_MSG | FI_TAGGED | FI_ATOMIC] {
        for access in [capability, ACCESS | capability] {
            let taken = register(world.base.domain, Asked { access, ..plain });
            assert_eq!(taken, (vec![0; 3], 3), "access {access:#x}");
        }
    }
    assert_eq!(world.state(), before);
}

#[test]
fn nulls_and_keys_in_use_are_refused() {
    let world = World::new();
    let (domain, memory) = (world.base.domain, [0u8; 64]);
    let (fid, base): (Handle<Fid>, *const c_void) = (fid_of(domain), memory.as_ptr().cast());
    // SAFETY: nulls where the interface forbids them, else open objects; the region is closed
    // before its memory goes.
    unsafe {
        let ops = &*(*domain.raw()).mr;
        let none = null_mut();
        let reg = |fid, key, out| (ops.reg)(fid, base, 64, ACCESS, 0, key, 0, out, none);
        let mr: Handle<FidMr> = opened(|out| reg(fid, 7, out));
        let before = world.state();
        let mut place = null_mut();
        assert_eq!(reg(fid, 7, &raw mut place), -FI_ENOKEY);
        assert_eq!(reg(fid, 8, null_mut()), -FI_EINVAL);
        assert_eq!(reg(null_handle(), 8, &raw mut place), -FI_EINVAL);
        assert_eq!(reg(fid_of(world.cq), 8, &raw mut place), -FI_EINVAL);
        assert_eq!((ops.regattr)(fid, null(), 0, &raw mut place), -FI_EINVAL);
        assert_eq!((ops.regv)(fid, null(), 1, ACCESS, 0, 8, 0, &raw mut place, none), -FI_EINVAL);
        let fid_ops = &*(*mr.raw()).fid.ops;
        let bind = |other: Handle<Fid>, flags| (fid_ops.bind)(fid_of(mr), other, flags);
        assert_eq!(bind(fid_of(world.ep), 1 << 60), -FI_EBADFLAGS);
        assert_eq!(bind(fid_of(world.cntr), FI_REMOTE_WRITE), -FI_ENOSYS);
        assert_eq!(bind(null_handle(), 0), -FI_EINVAL);
        assert_eq!((fid_ops.control)(fid_of(mr), 99, null_mut()), -FI_ENOSYS);
        assert!(place.is_null());
        assert_eq!(world.state(), before);
        // What MPICH does with every region.
        assert_eq!((bind(fid_of(world.ep), 0), (fid_ops.control)(fid_of(mr), FI_ENABLE, null_mut())), (0, 0));
        assert_eq!(close(mr), 0);
        assert_eq!((fid_ops.close)(null_handle()), -FI_EINVAL);
    }
}

/// What an application of a version says of a region, all fields it knows of set by `change`.
fn answer(version: u32, len: usize, change: impl FnOnce(&mut FiMrAttr)) -> i32 {
    let base = Base::new(version);
    let memory = [0u8; 64];
    let piece = iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: memory.len() };
    // SAFETY: zeros are valid.
    let zeros: FiMrAttr = unsafe { std::mem::zeroed() };
    let mut attr = FiMrAttr { mr_iov: &raw const piece, iov_count: 1, access: ACCESS, requested_key: 1, ..zeros };
    change(&mut attr);
    let (edge, mut mr) = (AtTheEdge::new(), null_mut());
    // SAFETY: an open domain, attributes as long as the version has them; the region is closed
    // before its memory goes.
    let code =
        unsafe { ((*(*base.domain.raw()).mr).regattr)(fid_of(base.domain), edge.put(&attr, len), 0, &raw mut mr) };
    if !mr.is_null() {
        assert_eq!((code, close(handle_of(mr))), (0, 0));
    }
    code
}

/// The length of the attributes in each version that changed it, and the last before.
const LENGTHS: [((u32, u32), usize); 9] = [
    ((1, 0), 48),
    ((1, 4), 48),
    ((1, 5), 64),
    ((1, 8), 64),
    ((1, 9), 80),
    ((1, 18), 80),
    ((1, 19), 88),
    ((1, 22), 96),
    ((2, 0), 112),
];

#[test]
fn no_attribute_is_read_that_the_version_does_not_have() {
    for ((major, minor), len) in LENGTHS {
        assert_eq!(answer(fi_version(major, minor), len, |_| {}), 0, "{major}.{minor}");
    }
}

#[test]
fn what_later_versions_can_ask_for_is_refused_where_they_can() {
    /// What is asked for, the first version that can, and the answer.
    type Case = (&'static str, (u32, u32), i32, fn(&mut FiMrAttr));
    let cases: [Case; 4] = [
        ("a key of its own", (1, 5), FI_EINVAL, |a| a.auth_key_size = 8),
        ("memory of a device", (1, 9), FI_ENOSYS, |a| a.iface = FI_HMEM_CUDA),
        ("memory of an unknown device", (1, 9), FI_ENOSYS, |a| a.iface = 77),
        ("part of a region", (2, 0), FI_ENOSYS, |a| a.base_mr = std::ptr::dangling()),
    ];
    let mut wrong = Vec::new();
    for (what, since, code, change) in cases {
        for (version, len) in LENGTHS {
            let wanted = if version >= since { -code } else { 0 };
            let got = answer(fi_version(version.0, version.1), len, change);
            if got != wanted {
                wrong.push(format!("{what}, {version:?}: {got} instead of {wanted}"));
            }
        }
    }
    // Hints, which may be ignored.
    assert_eq!(answer(V2, 112, |a| (a.page_size, a.sub_mr_cnt) = (4096, 3)), 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
