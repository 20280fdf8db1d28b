//! Where a receive stands, as a word that `holdfast send --resume` understands.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::record::{Begin, GENERATOR, Identity, Resume};

/// Where a receive stands: which snapshots are sent, and from where on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub(crate) stream: [u8; 16],
    pub(crate) generator: u32,
    pub(crate) snapshot: Identity,
    pub(crate) base: Option<Identity>,
    pub(crate) resume: Resume,
    /// Bytes of the body of the first record, as it came first: by now a snapshot may have another name.
    pub(crate) begin_bytes: u64,
}

/// What a token begins with.
const PREFIX: &str = "hf2-";

impl Token {
    pub(crate) fn new(begin: &Begin, begin_bytes: u64, resume: Resume) -> Option<Token> {
        let first = |ids: &Vec<Identity>| ids.first().cloned();
        let snapshot = first(&begin.snapshot.ids)?;
        let base = match &begin.base {
            Some(base) => Some(first(&base.ids)?),
            None => None,
        };
        let (stream, generator) = (begin.stream, begin.generator);
        Some(Token { stream, generator, snapshot, base, resume, begin_bytes })
    }

    /// Whether this program makes the stream as it was made.
    pub(crate) fn is_ours(&self) -> bool {
        self.generator == GENERATOR
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = postcard::to_allocvec(self).map_err(|_| fmt::Error)?;
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        f.write_str(PREFIX)?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Token, String> {
        read(text.trim()).ok_or_else(|| "this is no whole token of `holdfast receive`".into())
    }
}

fn read(text: &str) -> Option<Token> {
    let digits = text.strip_prefix(PREFIX)?.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    let (fields, sum) = bytes.split_last_chunk::<8>()?;
    let is_whole =
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, fields).to_le_bytes() == *sum;
    match postcard::take_from_bytes(fields) {
        Ok((token, [])) if is_whole && rest.is_empty() => Some(token),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_whole_or_not_at_all() {
        let id = Identity { volume: [7; 16], number: 3, lsn: 400, secs: -5, nanos: 6 };
        let resume = Resume { position: 1 << 40, sum: 0xdead };
        let (stream, generator) = ([1; 16], 1);
        let (snapshot, base, begin_bytes) = (id.clone(), Some(id), 200);
        let token = Token { stream, generator, snapshot, base, resume, begin_bytes };
        let text = token.to_string();
        assert_eq!(text.parse(), Ok(token));
        for wrong in [&text[..text.len() - 2], &text[..text.len() - 1], "", "hf2-", "hf2-é"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
        let changed = text.replacen('1', "2", 3);
        assert!(changed.parse::<Token>().is_err());
    }
}
