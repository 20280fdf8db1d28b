//! Errors by the names that manual pages use.

use std::fmt;

macro_rules! errnos {
    ($($name:ident = $number:literal,)*) => {
        /// Why an operation failed, as Linux numbers it on all common machines.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)] // The names are those of errno(3).
        pub enum Errno {
            $($name,)*
            /// Any other number.
            Other(i32),
        }

        impl Errno {
            /// The error with this number.
            pub fn from_raw(number: i32) -> Errno {
                match number {
                    $($number => Errno::$name,)*
                    other => Errno::Other(other),
                }
            }

            /// Its number.
            pub fn raw(self) -> i32 {
                match self {
                    $(Errno::$name => $number,)*
                    Errno::Other(number) => number,
                }
            }
        }

        impl fmt::Display for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno::Other(number) => write!(f, "E{number}"),
                }
            }
        }
    };
}

errnos! {
    EPERM = 1,
    ENOENT = 2,
    EIO = 5,
    ENXIO = 6,
    E2BIG = 7,
    EBADF = 9,
    EACCES = 13,
    EBUSY = 16,
    EEXIST = 17,
    EXDEV = 18,
    ENODEV = 19,
    ENOTDIR = 20,
    EISDIR = 21,
    EINVAL = 22,
    EFBIG = 27,
    ENOSPC = 28,
    ESPIPE = 29,
    EROFS = 30,
    EMLINK = 31,
    ERANGE = 34,
    ENAMETOOLONG = 36,
    ENOSYS = 38,
    ENOTEMPTY = 39,
    ELOOP = 40,
    ENODATA = 61,
    EOVERFLOW = 75,
    EOPNOTSUPP = 95,
    ENOTCONN = 107,
    ESTALE = 116,
    EDQUOT = 122,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_its_name() {
        for number in 1..200 {
            assert_eq!(Errno::from_raw(number).raw(), number);
        }
        assert_eq!(Errno::from_raw(39).to_string(), "ENOTEMPTY");
        assert_eq!(Errno::from_raw(199).to_string(), "E199");
    }
}
