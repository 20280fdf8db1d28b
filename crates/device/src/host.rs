//! Which machine this is, told from others that may have the same device attached.

use std::fs;

use holdfast_base::prng;

/// What tells this machine, and this start of it, from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Drawn by the kernel when it started; the same in every container.
    pub boot: [u8; 16],
    /// Stays the same when the machine starts again, and differs from that of a copy of it; empty if not known.
    pub machine: Vec<u8>,
    /// Its name, for messages.
    pub name: String,
}

impl Host {
    /// Asks the kernel. What it does not tell is drawn by chance, or empty.
    pub fn this() -> Host {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Host {
            boot: boot.as_deref().and_then(boot_id).unwrap_or_else(by_chance),
            machine: machine().unwrap_or_default(),
            name,
        }
    }
}

/// The bytes of `6fd5d44b-35f4-4ad4-a9b9-6b9be13e1fe9`.
fn boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim_end().split('-').collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

/// Equal to no other: then a program of before is not known to have ended.
fn by_chance() -> [u8; 16] {
    let halves = [prng::entropy(), prng::entropy()];
    (u128::from(halves[0]) << 64 | u128::from(halves[1])).to_be_bytes()
}

/// The id of the installation, and the addresses of the network hardware: virtual machines that were copied
/// have the same of the former, and not of the latter.
fn machine() -> Option<Vec<u8>> {
    let installation = fs::read("/etc/machine-id").ok().filter(|id| id.len() >= 32)?;
    let cards = fs::read_dir("/sys/class/net").ok()?.flatten().map(|entry| entry.path());
    let mut addresses: Vec<Vec<u8>> = cards
        .filter(|card| card.join("device").exists())
        .filter_map(|card| fs::read(card.join("address")).ok())
        .collect();
    addresses.sort();
    (!addresses.is_empty()).then(|| [installation, addresses.concat()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_and_this_machine_is_the_same_twice() {
        let read = boot_id("00000000-0000-0000-0000-0000000001ff\n").unwrap();
        assert_eq!(read[14..], [1, 0xff]);
        assert_eq!(boot_id("nothing"), None);
        let host = Host::this();
        assert!(!host.name.is_empty());
        if fs::exists("/proc/sys/kernel/random/boot_id").unwrap_or(false) {
            assert_eq!(host, Host::this());
        }
        assert_ne!(by_chance(), by_chance());
    }
}
