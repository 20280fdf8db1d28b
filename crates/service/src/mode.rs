//! Permission bits as chmod(1) takes them: octal, or as changes of what is there (`u+rwX,go-w`, `g=u`).

use serde::{Deserialize, Serialize};

const ALL: u32 = 0o7777;
const EXECUTE: u32 = 0o111;
const SET_IDS: u32 = 0o6000;

/// What the bits of something are to become.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// These, whatever they were.
    Bits(u32),
    /// Each of these, one after the other.
    Changes(Vec<Change>),
}

/// One change: `u+rwX`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Change {
    op: Op,
    /// Bits of the users that are named; 0 if none is.
    who: u32,
    /// Bits that can change.
    limit: u32,
    /// Bits that are named.
    value: u32,
    /// Execution, if it is a directory or any user may execute it.
    execute: bool,
    /// The bits of these as they are.
    of: u32,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Add,
    Remove,
    Set,
}

/// Octal permission bits.
///
/// # Errors
/// What is wanted, if it is none.
pub fn octal(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= ALL);
    mode.ok_or_else(|| "it is octal, like 755 or 1777".into())
}

impl Mode {
    /// Reads it. A change that names no user leaves alone what `umask` keeps from new files.
    pub fn parse(text: &str, umask: u32) -> Option<Mode> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return octal(text).ok().map(Mode::Bits);
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '='])?;
            let mut who = 0;
            for letter in clause[..at].chars() {
                who |= match letter {
                    'u' => 0o4700,
                    'g' => 0o2070,
                    'o' => 0o1007,
                    'a' => ALL,
                    _ => return None,
                };
            }
            let limit = if who == 0 { ALL & !umask } else { who };
            let mut rest = &clause[at..];
            while let Some(op) = rest.chars().next() {
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |end| end + 1);
                changes.push(Change::parse(op, &rest[1..end], who, limit)?);
                rest = &rest[end..];
            }
        }
        Some(Mode::Changes(changes))
    }

    /// What becomes of the bits `old`.
    pub(crate) fn of(&self, old: u32, is_dir: bool) -> u32 {
        match self {
            Mode::Bits(bits) => *bits,
            Mode::Changes(changes) => {
                changes.iter().fold(old & ALL, |old, change| change.apply(old, is_dir))
            }
        }
    }
}

impl Change {
    fn parse(op: char, letters: &str, who: u32, limit: u32) -> Option<Change> {
        let op = match op {
            '+' => Op::Add,
            '-' => Op::Remove,
            _ => Op::Set,
        };
        let mut change = Change { op, who, limit, value: 0, execute: false, of: 0 };
        match letters {
            "u" => change.of = 0o700,
            "g" => change.of = 0o070,
            "o" => change.of = 0o007,
            _ => {
                for letter in letters.chars() {
                    match letter {
                        'r' => change.value |= 0o444,
                        'w' => change.value |= 0o222,
                        'x' => change.value |= EXECUTE,
                        'X' => change.execute = true,
                        's' => change.value |= SET_IDS,
                        't' => change.value |= 0o1000,
                        _ => return None,
                    }
                }
            }
        }
        Some(change)
    }

    fn apply(&self, old: u32, is_dir: bool) -> u32 {
        let mut value = self.value;
        if self.of != 0 {
            // One of the three groups of three is not zero, and stands for all.
            let copied = old & self.of;
            let bits = copied >> 6 | copied >> 3 & 7 | copied & 7;
            value |= (bits & 7) * EXECUTE;
        }
        if self.execute && (is_dir || old & EXECUTE != 0) {
            value |= EXECUTE;
        }
        // A directory keeps its set-id bits unless they are named, as with GNU chmod.
        let named = if self.who == 0 { self.value } else { self.value & self.who };
        let kept = if is_dir { SET_IDS & !named } else { 0 };
        value &= self.limit & !kept;
        match self.op {
            Op::Add => old | value,
            Op::Remove => old & !value,
            Op::Set => {
                let others = if self.who == 0 { 0 } else { ALL & !self.who };
                old & (others | kept) | value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!((octal("755"), octal("01777"), octal("0")), (Ok(0o755), Ok(0o1777), Ok(0)));
        for wrong in ["", "8", "10000", "u+x", "-1"] {
            assert!(octal(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn changes_are_what_people_mean() {
        let of = |text: &str, old, is_dir| Mode::parse(text, 0o022).unwrap().of(old, is_dir);
        assert_eq!(of("640", 0o7777, false), 0o640);
        assert_eq!(of("u+rwX,g-w,o=", 0o467, false), 0o740);
        assert_eq!(of("u+rwX", 0o400, false), 0o600);
        assert_eq!(of("a+X", 0o400, true), 0o511);
        assert_eq!(of("a+x", 0o600, false), 0o711);
        assert_eq!(of("+w", 0o400, false), 0o600, "the mask keeps it from others");
        assert_eq!(of("g=u,o=g", 0o750, false), 0o777);
        assert_eq!(of("o=u-w", 0o750, false), 0o755);
        assert_eq!(of("u+s,+t", 0o755, false), 0o5755);
        assert_eq!(of("g=rx", 0o2770, true), 0o2750, "a directory keeps what is not named");
        for wrong in ["", "u", "u+q", "q+r", "u+r,", ",u+r", "u+ug", "8", "10000", "u+rw x"] {
            assert_eq!(Mode::parse(wrong, 0), None, "{wrong}");
        }
    }

    fn clause() -> impl Strategy<Value = String> {
        let letters = prop_oneof!["[rwxXst]{0,4}", "[ugo]"];
        ("[ugoa]{0,3}", proptest::collection::vec(("[+=-]", letters), 1..3)).prop_map(
            |(who, ops)| ops.into_iter().fold(who, |text, (op, letters)| text + &op + &letters),
        )
    }

    /// What chmod(1) makes of files and directories with the bits `old`.
    fn by_chmod(text: &str, umask: u32, old: &[u32]) -> Vec<(u32, u32)> {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {umask:03o}; exec chmod \"$@\""), "sh", "--", text]);
        let paths: Vec<_> = (0..old.len())
            .map(|number| {
                (place.path().join(format!("f{number}")), place.path().join(format!("d{number}")))
            })
            .collect();
        for ((file, dir), old) in paths.iter().zip(old) {
            fs::write(file, "").unwrap();
            fs::create_dir(dir).unwrap();
            for path in [file, dir] {
                fs::set_permissions(path, Permissions::from_mode(*old)).unwrap();
            }
            command.arg(file).arg(dir);
        }
        // It complains where the mask has kept something.
        command.output().unwrap();
        let bits = |path| fs::metadata(path).unwrap().mode() & ALL;
        paths.iter().map(|(file, dir)| (bits(file), bits(dir))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
        #[test]
        fn changes_are_those_of_chmod(
            clauses in proptest::collection::vec(clause(), 1..4),
            umask in 0..=0o777_u32,
            old in proptest::collection::vec(0..=ALL, 8),
        ) {
            let version = Command::new("chmod").arg("--version").output();
            let is_gnu = version.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("GNU"));
            if !is_gnu || !rustix::process::geteuid().is_root() {
                // Others cannot look into a directory that they have closed.
                return Ok(());
            }
            let text = clauses.join(",");
            let mode = Mode::parse(&text, umask).unwrap();
            let ours: Vec<_> = old.iter().map(|old| (mode.of(*old, false), mode.of(*old, true))).collect();
            prop_assert_eq!(ours, by_chmod(&text, umask, &old), "chmod {} of {:?}", text, old);
        }
    }
}
