//! Owners as chown(1) takes them.

use nix::unistd::{Group, User};

/// A user, a group, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The number of the user; `None`: it stays as it is.
    pub user: Option<u32>,
    /// The same of the group.
    pub group: Option<u32>,
}

/// `USER`, `USER:GROUP` or `:GROUP`; names or numbers. A number is one also where a user is called so.
///
/// # Errors
/// The system knows no such name, or it is no owner.
pub fn parse(text: &str) -> Result<Owner, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let name = match user {
        "" if group.is_some_and(|group| !group.is_empty()) => None,
        name => Some(name),
    };
    let group = group.filter(|name| !name.is_empty());
    Ok(Owner {
        user: name.map(self::user).transpose()?,
        group: group.map(self::group).transpose()?,
    })
}

/// A user, by name or number.
///
/// # Errors
/// The system knows none of this name.
pub fn user(text: &str) -> Result<u32, String> {
    number(text, "user", |name| User::from_name(name).ok().flatten().map(|it| it.uid.as_raw()))
}

/// A group, by name or number.
///
/// # Errors
/// The system knows none of this name.
pub fn group(text: &str) -> Result<u32, String> {
    number(text, "group", |name| Group::from_name(name).ok().flatten().map(|it| it.gid.as_raw()))
}

fn number(text: &str, what: &str, look_up: impl Fn(&str) -> Option<u32>) -> Result<u32, String> {
    let found = match text.parse() {
        // Which means no user to the kernel.
        Ok(u32::MAX) => None,
        Ok(number) => Some(number),
        Err(_) => look_up(text),
    };
    found.ok_or_else(|| format!("there is no {what} {text:?} here; a number is taken as it is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_mean_owners() {
        let of = |user, group| Ok(Owner { user, group });
        assert_eq!(parse("1000:100"), of(Some(1000), Some(100)));
        assert_eq!(parse("1000"), of(Some(1000), None));
        assert_eq!(parse("1000:"), of(Some(1000), None));
        assert_eq!(parse(":7"), of(None, Some(7)));
        assert_eq!(parse("root:root"), of(Some(0), Some(0)));
        for wrong in
            ["", ":", "no-such-user-here", "1:no-such-group-here", "4294967295", "-1", "1:2:3"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
