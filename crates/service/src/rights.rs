//! Which callers of a daemon get what they ask for. What is at rest the kernel guards, by the file.

use crate::branches::Ask;

/// What a request needs of its caller, and of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// To read the volume.
    Read,
    /// To read it where it is open to be read alone: then nothing is written.
    Unwritten,
    /// To write it: something of the volume is another one behind the request.
    Write,
    /// To write it while no daemon has it, and why.
    AtRest(&'static str),
}

impl Requirement {
    /// Whether something of the volume is another one behind it.
    pub fn changes(self) -> bool {
        matches!(self, Requirement::Write | Requirement::AtRest(_))
    }
}

impl From<&Ask> for Requirement {
    fn from(ask: &Ask) -> Requirement {
        if ask.only_looks() { Requirement::Read } else { Requirement::Write }
    }
}

/// Judges a caller that has proven that it may write the volume, or only read it, or nothing (`None`).
///
/// # Errors
/// Why it does not get what it asks for.
pub fn judge(
    needs: Requirement,
    may_write: Option<bool>,
    is_read_only: bool,
) -> Result<(), &'static str> {
    match (needs, may_write) {
        (_, None) => Err("nothing proves that you may open the volume"),
        (Requirement::AtRest(why), _) => Err(why),
        (Requirement::Unwritten, _) if !is_read_only => Err(
            "the volume is open for writing, and a scrub of it writes what it finds: scrub it without -n",
        ),
        (Requirement::Write, Some(false)) => Err("nothing proves that you may write the volume"),
        (Requirement::Write, _) if is_read_only => Err("the volume is open read-only"),
        (Requirement::Read | Requirement::Unwritten | Requirement::Write, Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_proves_less_gets_no_more() {
        let all = [
            Requirement::Read,
            Requirement::Unwritten,
            Requirement::Write,
            Requirement::AtRest("it is in use"),
        ];
        let allowed = |may_write, is_read_only| {
            all.map(|needs| judge(needs, may_write, is_read_only).is_ok())
        };
        assert_eq!(allowed(None, false), [false; 4]);
        assert_eq!(allowed(Some(false), false), [true, false, false, false]);
        assert_eq!(allowed(Some(true), false), [true, false, true, false]);
        assert_eq!(allowed(Some(true), true), [true, true, false, false]);
    }
}
