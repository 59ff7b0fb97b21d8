//! The numbers of the interface: error codes, options, flags (spec/bmi.md 1).

use std::ffi::c_int;

const ERRNO: i32 = 1 << 30 | 1 << 7;
const OTHER: i32 = ERRNO | 1 << 29;

/// An error code of the interface, positive; functions return it negated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:expr;)*) => {
        impl Code {
            $(#[doc = concat!("`BMI_", stringify!($name), "`.")] pub const $name: Code = Code($number);)*
        }

        /// Name of a code, null-terminated; none of another number.
        #[must_use]
        pub fn name_of(code: i32) -> Option<&'static str> {
            match code.checked_abs()? {
                0 => Some("BMI_SUCCESS\0"),
                $(n if n == $number => Some(concat!("BMI_", stringify!($name), "\0")),)*
                _ => None,
            }
        }
    };
}

codes! {
    EPERM = 1 | ERRNO;
    ENOENT = 2 | ERRNO;
    EINTR = 3 | ERRNO;
    EIO = 4 | ERRNO;
    ENXIO = 5 | ERRNO;
    EBADF = 6 | ERRNO;
    EAGAIN = 7 | ERRNO;
    ENOMEM = 8 | ERRNO;
    EFAULT = 9 | ERRNO;
    EBUSY = 10 | ERRNO;
    EEXIST = 11 | ERRNO;
    ENODEV = 12 | ERRNO;
    ENOTDIR = 13 | ERRNO;
    EISDIR = 14 | ERRNO;
    EINVAL = 15 | ERRNO;
    EMFILE = 16 | ERRNO;
    EFBIG = 17 | ERRNO;
    ENOSPC = 18 | ERRNO;
    EROFS = 19 | ERRNO;
    EMLINK = 20 | ERRNO;
    EPIPE = 21 | ERRNO;
    EDEADLK = 22 | ERRNO;
    ENAMETOOLONG = 23 | ERRNO;
    ENOLCK = 24 | ERRNO;
    ENOSYS = 25 | ERRNO;
    ENOTEMPTY = 26 | ERRNO;
    ELOOP = 27 | ERRNO;
    EWOULDBLOCK = 28 | ERRNO;
    ENOMSG = 29 | ERRNO;
    EUNATCH = 30 | ERRNO;
    EBADR = 31 | ERRNO;
    EDEADLOCK = 32 | ERRNO;
    ENODATA = 33 | ERRNO;
    ETIME = 34 | ERRNO;
    ENONET = 35 | ERRNO;
    EREMOTE = 36 | ERRNO;
    ECOMM = 37 | ERRNO;
    EPROTO = 38 | ERRNO;
    EBADMSG = 39 | ERRNO;
    EOVERFLOW = 40 | ERRNO;
    ERESTART = 41 | ERRNO;
    EMSGSIZE = 42 | ERRNO;
    EPROTOTYPE = 43 | ERRNO;
    ENOPROTOOPT = 44 | ERRNO;
    EPROTONOSUPPORT = 45 | ERRNO;
    EOPNOTSUPP = 46 | ERRNO;
    EADDRINUSE = 47 | ERRNO;
    EADDRNOTAVAIL = 48 | ERRNO;
    ENETDOWN = 49 | ERRNO;
    ENETUNREACH = 50 | ERRNO;
    ENETRESET = 51 | ERRNO;
    ENOBUFS = 52 | ERRNO;
    ETIMEDOUT = 53 | ERRNO;
    ECONNREFUSED = 54 | ERRNO;
    EHOSTDOWN = 55 | ERRNO;
    EHOSTUNREACH = 56 | ERRNO;
    EALREADY = 57 | ERRNO;
    EACCES = 58 | ERRNO;
    ECONNRESET = 59 | ERRNO;
    ECANCEL = 1 | OTHER;
    EDEVINIT = 2 | OTHER;
    EDETAIL = 3 | OTHER;
    EHOSTNTFD = 4 | OTHER;
    EADDRNTFD = 5 | OTHER;
    ENORECVR = 6 | OTHER;
    ETRYAGAIN = 7 | OTHER;
}

impl Code {
    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(self.0).map_or("another error", |name| name.trim_end_matches('\0'))
    }
}

/// The code of an errno; none if it has none of its own.
#[must_use]
pub fn of_errno(errno: c_int) -> Option<Code> {
    Some(match errno {
        libc::EPERM => Code::EPERM,
        libc::ENOENT => Code::ENOENT,
        libc::EINTR => Code::EINTR,
        libc::EIO => Code::EIO,
        libc::ENXIO => Code::ENXIO,
        libc::EBADF => Code::EBADF,
        libc::EAGAIN => Code::EAGAIN,
        libc::ENOMEM => Code::ENOMEM,
        libc::EFAULT => Code::EFAULT,
        libc::EBUSY => Code::EBUSY,
        libc::EEXIST => Code::EEXIST,
        libc::ENODEV => Code::ENODEV,
        libc::ENOTDIR => Code::ENOTDIR,
        libc::EISDIR => Code::EISDIR,
        libc::EINVAL => Code::EINVAL,
        libc::EMFILE => Code::EMFILE,
        libc::EFBIG => Code::EFBIG,
        libc::ENOSPC => Code::ENOSPC,
        libc::EROFS => Code::EROFS,
        libc::EMLINK => Code::EMLINK,
        libc::EPIPE => Code::EPIPE,
        libc::EDEADLK => Code::EDEADLK,
        libc::ENAMETOOLONG => Code::ENAMETOOLONG,
        libc::ENOLCK => Code::ENOLCK,
        libc::ENOSYS => Code::ENOSYS,
        libc::ENOTEMPTY => Code::ENOTEMPTY,
        libc::ELOOP => Code::ELOOP,
        libc::ENOMSG => Code::ENOMSG,
        libc::ENODATA => Code::ENODATA,
        libc::ETIME => Code::ETIME,
        libc::EREMOTE => Code::EREMOTE,
        libc::EPROTO => Code::EPROTO,
        libc::EBADMSG => Code::EBADMSG,
        libc::EOVERFLOW => Code::EOVERFLOW,
        libc::EMSGSIZE => Code::EMSGSIZE,
        libc::EPROTOTYPE => Code::EPROTOTYPE,
        libc::ENOPROTOOPT => Code::ENOPROTOOPT,
        libc::EPROTONOSUPPORT => Code::EPROTONOSUPPORT,
        libc::EOPNOTSUPP => Code::EOPNOTSUPP,
        libc::EADDRINUSE => Code::EADDRINUSE,
        libc::EADDRNOTAVAIL => Code::EADDRNOTAVAIL,
        libc::ENETDOWN => Code::ENETDOWN,
        libc::ENETUNREACH => Code::ENETUNREACH,
        libc::ENETRESET => Code::ENETRESET,
        libc::ENOBUFS => Code::ENOBUFS,
        libc::ETIMEDOUT => Code::ETIMEDOUT,
        libc::ECONNREFUSED => Code::ECONNREFUSED,
        libc::EHOSTDOWN => Code::EHOSTDOWN,
        libc::EHOSTUNREACH => Code::EHOSTUNREACH,
        libc::EALREADY => Code::EALREADY,
        libc::EACCES => Code::EACCES,
        libc::ECONNRESET => Code::ECONNRESET,
        _ => return None,
    })
}

/// The code of an I/O error.
#[must_use]
pub fn of_io(error: &std::io::Error) -> Code {
    error.raw_os_error().and_then(of_errno).unwrap_or(match error.kind() {
        std::io::ErrorKind::AddrInUse => Code::EADDRINUSE,
        std::io::ErrorKind::NotFound => Code::EADDRNOTAVAIL,
        std::io::ErrorKind::TimedOut => Code::ETIMEDOUT,
        _ => Code::EIO,
    })
}

/// `BMI_INIT_SERVER`.
pub const INIT_SERVER: c_int = 1;
/// `BMI_TCP_BIND_SPECIFIC`.
pub const BIND_SPECIFIC: c_int = 2;
/// `BMI_AUTO_REF_COUNT`.
pub const AUTO_REF_COUNT: c_int = 4;

/// Options of `BMI_set_info` and `BMI_get_info`.
pub mod option {
    use std::ffi::c_int;

    /// Close the connection, forget the address.
    pub const DROP_ADDR: c_int = 1;
    /// Is a method active?
    pub const CHECK_INIT: c_int = 2;
    /// Longest message.
    pub const CHECK_MAXSIZE: c_int = 3;
    /// One reference more.
    pub const INC_ADDR_REF: c_int = 5;
    /// One less.
    pub const DEC_ADDR_REF: c_int = 6;
    /// Is the address of no use any more?
    pub const DROP_ADDR_QUERY: c_int = 7;
    /// Cancelling drops connections.
    pub const FORCEFUL_CANCEL_MODE: c_int = 8;
    /// Longest unexpected message.
    pub const GET_UNEXP_SIZE: c_int = 10;
    /// Send buffers of TCP sockets.
    pub const TCP_BUFFER_SEND_SIZE: c_int = 11;
    /// Their receive buffers.
    pub const TCP_BUFFER_RECEIVE_SIZE: c_int = 12;
    /// As the first, for TCP only.
    pub const TCP_CLOSE_SOCKET: c_int = 13;
    /// Whether unexpected messages end the sleep of other tests.
    pub const TCP_CHECK_UNEXPECTED: c_int = 15;
    /// The methods, OrangeFS's number.
    pub const METHODS_ORANGEFS: c_int = 16;
    /// The methods, radix-io's number.
    pub const METHODS_RADIX: c_int = 17;
    /// The port listened at.
    pub const TCP_GET_PORT: c_int = 18;

    /// Whether the library answers to an option itself, whatever the method (spec/bmi.md 13.2). 4
    /// is the option that asks for method addresses.
    #[must_use]
    pub fn is_the_librarys(what: c_int, set: bool) -> bool {
        if set {
            matches!(what, DROP_ADDR | INC_ADDR_REF | DEC_ADDR_REF | FORCEFUL_CANCEL_MODE | TCP_CHECK_UNEXPECTED)
        } else {
            matches!(
                what,
                CHECK_INIT
                    | CHECK_MAXSIZE
                    | 4
                    | DROP_ADDR_QUERY
                    | GET_UNEXP_SIZE
                    | METHODS_ORANGEFS
                    | METHODS_RADIX
                    | TCP_GET_PORT
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_header() {
        let header = include_str!("../../../include/bmi.h");
        let mut seen = 0;
        for line in header.lines().filter_map(|l| l.strip_prefix("#define BMI_E")) {
            let Some((name, rest)) = line.split_once(' ') else { continue };
            let Some(number) = rest.trim().strip_prefix("BMI_CODE_(").and_then(|r| r.strip_suffix(')')) else {
                continue;
            };
            let (number, other) = number.split_once(" |").map_or((number, false), |(n, _)| (n, true));
            let code = number.parse::<i32>().expect("a number") | if other { OTHER } else { ERRNO };
            assert_eq!(name_of(-code), Some(format!("BMI_E{name}\0").as_str()));
            seen += 1;
        }
        assert_eq!(seen, 66);
        assert_eq!(Code::EINVAL.0, 0x4000_008f);
        assert_eq!(name_of(5), None);
        assert_eq!(name_of(i32::MIN), None);
    }
}
