//! Names of files, so cheap that a measured loop is about what is done with them.

/// Names that are numbered.
pub(crate) struct Names {
    name: String,
    prefix: usize,
    digits: itoa::Buffer,
}

impl Names {
    /// Names that begin with `prefix`.
    pub(crate) fn new(prefix: &str) -> Names {
        Names { name: prefix.to_owned(), prefix: prefix.len(), digits: itoa::Buffer::new() }
    }

    /// The name with a number.
    pub(crate) fn of(&mut self, number: u64) -> &str {
        self.name.truncate(self.prefix);
        self.name.push_str(self.digits.format(number));
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_prefix_and_the_number() {
        let mut names = Names::new("file-");
        assert_eq!(
            [123_456, 7].map(|number| names.of(number).to_owned()),
            ["file-123456", "file-7"]
        );
    }
}
