//! A file or device that is larger than the volume in it: by hand, by its volume manager, or by a `resize` that was cut short.

use std::path::Path;

use crate::size;

/// Below this a larger volume would have no block more.
const LEAST: u64 = 64 << 10;

/// What to do about it, if there is anything to gain.
pub(crate) fn hint(path: &Path, device_bytes: u64, volume_bytes: u64) -> Option<String> {
    let more = device_bytes.checked_sub(volume_bytes)?;
    (more >= LEAST).then(|| {
        let (path, has) = (path.display(), size::show(device_bytes));
        format!("{path} has {has}, more than the volume: `holdfast resize {path} max` uses that")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_worth_it_is_told() {
        let path = Path::new("v.img");
        assert_eq!(hint(path, 1 << 30, 1 << 30), None);
        assert_eq!(hint(path, 1 << 29, 1 << 30), None, "cut short is told elsewhere");
        assert_eq!(hint(path, (1 << 30) + 4096, 1 << 30), None);
        let told = hint(path, 2 << 30, 1 << 30).unwrap();
        assert!(told.contains("2.0 GiB") && told.contains("resize v.img max"), "{told}");
    }
}
