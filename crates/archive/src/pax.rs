//! The records of a pax header: `LENGTH KEY=VALUE\n`, the value any bytes.

/// Bytes of records before one member that are kept, or of a long name. 64 KiB for the value of one extended attribute,
/// and a file has few.
pub(crate) const BYTES_MAX: u64 = 8 << 20;

/// Begins the keys of extended attributes.
pub(crate) const XATTR: &[u8] = b"SCHILY.xattr.";

/// Appends a record.
pub(crate) fn put(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(len.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// The key of an extended attribute: `=` would end it, and is written as GNU tar does.
pub(crate) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = XATTR.to_vec();
    for byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            other => key.push(*other),
        }
    }
    key
}

/// The name of the extended attribute behind [`XATTR`].
pub(crate) fn xattr_name(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    while let Some((byte, rest)) = key.split_first() {
        key = rest;
        match (byte, rest.get(..2)) {
            (b'%', Some(b"25")) => name.push(b'%'),
            (b'%', Some(b"3D")) => name.push(b'='),
            _ => {
                name.push(*byte);
                continue;
            }
        }
        key = &rest[2..];
    }
    name
}

/// The records of a header. Ends with an error at the first that is none.
pub(crate) struct Records<'a> {
    left: &'a [u8],
}

/// A key and its value.
pub(crate) type Record<'a> = (&'a [u8], &'a [u8]);

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { left: bytes }
    }

    fn one(&mut self) -> Option<Record<'a>> {
        let space = self.left.iter().take(20).position(|byte| *byte == b' ')?;
        let len = usize::try_from(crate::number::decimal(&self.left[..space])?).ok()?;
        let (record, left) = self.left.split_at_checked(len)?;
        let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = body.iter().position(|byte| *byte == b'=')?;
        self.left = left;
        Some((&body[..equals], &body[equals + 1..]))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let record = self.one().ok_or("a pax record is malformed");
        if record.is_err() {
            self.left = &[];
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_whatever_the_value() {
        let long = vec![b'\n'; 70_000];
        let wanted: &[(&[u8], &[u8])] =
            &[(b"path", b"a=b\nc"), (b"k", b""), (b"a", b"12"), (b"SCHILY.xattr.user.x", &long)];
        let mut bytes = Vec::new();
        for (key, value) in wanted {
            put(&mut bytes, key, value);
        }
        assert!(bytes.starts_with(b"14 path=a=b\nc\n"), "{:?}", &bytes[..20]);
        let all: Vec<_> = Records::new(&bytes).map(|record| record.expect("it is one")).collect();
        assert_eq!(all, wanted);
        // The length has a digit more with itself.
        for len in 90..110 {
            let mut bytes = Vec::new();
            put(&mut bytes, b"k", &vec![b'v'; len]);
            assert_eq!(Records::new(&bytes).count(), 1);
            assert!(Records::new(&bytes).all(|record| record.is_ok()), "{len}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_the_end() {
        for wrong in ["x", "5 a=b", "6 a=b", "99 a=b\n", "4 a=\n", " a=b\n", "0 a=b\n", "1 \n"] {
            let mut records = Records::new(wrong.as_bytes());
            let first = records.next().expect("there is one");
            assert!(first.is_err(), "{wrong:?}: {first:?}");
            assert!(records.next().is_none());
        }
    }

    #[test]
    fn names_of_attributes_may_have_any_byte() {
        for name in [&b"user.a=b"[..], b"user.100%", b"user.%3D", b"user.\xff"] {
            let key = xattr_key(name);
            assert!(!key.contains(&b'='));
            assert_eq!(xattr_name(&key[XATTR.len()..]), name);
        }
        assert_eq!(xattr_name(b"user.%zz%"), b"user.%zz%");
    }
}
