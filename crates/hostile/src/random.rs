//! Seeded randomness instead of coverage: mutations of inputs, for where no fuzzer is.

use holdfast_base::prng::Prng;

/// Longest input.
pub const LEN_MAX: usize = 8192;

/// One of `corpus`, changed a little, or a piece of it with a piece of another.
pub fn mutate(corpus: &[Vec<u8>], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = match corpus.is_empty() {
        true => Vec::new(),
        false => prng.pick(corpus).clone(),
    };
    if !corpus.is_empty() && prng.one_in(4) {
        let other = prng.pick(corpus);
        let from = prng.below(other.len() as u64 + 1) as usize;
        bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize);
        bytes.extend_from_slice(&other[from..]);
    }
    for _ in 0..=prng.below(6) {
        let at = prng.below(bytes.len() as u64 + 1) as usize;
        match prng.below(7) {
            0 | 1 if at < bytes.len() => bytes[at] = prng.next_u64() as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << prng.below(8),
            3 if at < bytes.len() => bytes[at] = *prng.pick(&[0, 1, 2, 4, 8, 127, 128, 254, 255]),
            4 if at < bytes.len() => drop(bytes.remove(at)),
            5 if at < bytes.len() => {
                let len = prng.below((bytes.len() - at) as u64 + 1).min(32) as usize;
                let piece = bytes[at..at + len].to_vec();
                let to = prng.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
            _ => {
                let mut piece = vec![0; 1 + prng.below(16) as usize];
                prng.fill(&mut piece);
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes.truncate(LEN_MAX);
    bytes
}
