//! Inputs that are worth keeping: what once broke a promise, and what reaches far.
//!
//! Each target has a file in `corpus/`: one input a line in hexadecimal digits, `#`
//! begins a comment. What was found stands under a comment that says what was
//! wrong. Inputs are programs over golden volumes: short, and the same for as long
//! as the engine makes the same volumes; what must be kept for ever is also a test
//! of its own, by the number of the rule that was broken.

use crate::Target;

/// The inputs in `text`; the error names the line.
pub fn parse(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut inputs = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let digits = line.split('#').next().unwrap_or("").trim();
        if digits.is_empty() {
            continue;
        }
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or("x"), 16);
        let bytes: Result<Vec<u8>, _> = (0..digits.len()).step_by(2).map(byte).collect();
        inputs.push(bytes.map_err(|_| format!("line {}: no bytes", number + 1))?);
    }
    Ok(inputs)
}

/// The digits of an input.
pub fn print(input: &[u8]) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept for a target.
pub fn kept(target: &Target) -> Vec<Vec<u8>> {
    parse(target.kept).expect("the files are well formed; a test reads them")
}

/// What is kept, and the seeds.
pub fn all(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = kept(target);
    inputs.extend((target.seeds)());
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn every_target_has_a_file_and_seeds() {
        for target in TARGETS {
            assert!(parse(target.kept).is_ok(), "{}", target.name);
            assert!(target.kept.starts_with('#'), "{} has no head", target.name);
            assert!(!(target.seeds)().is_empty(), "{}", target.name);
        }
        assert_eq!(parse("# x\n00ff # y\n\n"), Ok(vec![vec![0, 255]]));
        assert!(parse("0").is_err() && parse("0g").is_err());
        assert_eq!(parse(&print(&[1, 0xab])), Ok(vec![vec![1, 0xab]]));
    }
}
