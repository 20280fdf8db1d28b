//! The five mechanisms, each with its switch in both positions, beside what was published of it.
//!
//! The workloads are in `workloads`, through the library, and in `mounted`; here they get the
//! published sizes, and their figures one form: a table of befores and afters,
//! the published ones beside them, curves, and one gain for each claim. Rounds
//! of both positions are interleaved. What a position cannot do in reasonable
//! time is left out, and the report says so.

mod beside;
mod gain;
mod held;
mod m1;
mod m2;
mod m3;
mod m4;
mod m5;
mod mounted;
mod published;
mod scale;
pub mod workloads;

use std::io;
use std::str::FromStr;
use std::sync::Arc;

use holdfast_device::Device;

use crate::result::Section;

pub use gain::{Gain, section as gains_section};
pub use mounted::{Mounts, mount};
pub use scale::Scale;

/// One of the five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Group records that did not change are not written.
    M1,
    /// A rename logs its two names, not its directory.
    M2,
    /// A node remembers what changed in four ranges.
    M3,
    /// A log batch finds inodes by an index.
    M4,
    /// An fsync waits for its own data only.
    M5,
}

impl Mechanism {
    /// All of them.
    pub const ALL: &[Mechanism] =
        &[Mechanism::M1, Mechanism::M2, Mechanism::M3, Mechanism::M4, Mechanism::M5];

    /// `M1` and so on.
    pub fn word(self) -> &'static str {
        match self {
            Mechanism::M1 => "M1",
            Mechanism::M2 => "M2",
            Mechanism::M3 => "M3",
            Mechanism::M4 => "M4",
            Mechanism::M5 => "M5",
        }
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(word: &str) -> Result<Mechanism, String> {
        let found = Mechanism::ALL.iter().find(|of| of.word().eq_ignore_ascii_case(word));
        found.copied().ok_or_else(|| format!("{word} is not one of M1 to M5"))
    }
}

/// Where something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Through the library.
    Library,
    /// Through the mount.
    Mount,
}

impl Place {
    /// One word for people and keys.
    pub fn word(self) -> &'static str {
        match self {
            Place::Library => "library",
            Place::Mount => "mount",
        }
    }
}

/// What was measured of one mechanism.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Tables and curves.
    pub sections: Vec<Section>,
    /// What it gains.
    pub gains: Vec<Gain>,
}

/// Makes an empty device of so many bytes; the one before is no longer used.
pub type Devices<'a> = dyn FnMut(u64) -> io::Result<Arc<dyn Device>> + 'a;

/// Receives what was done so far.
pub type Progress<'a> = dyn FnMut(String) + 'a;

/// Measures `mechanism` through the library, on devices from `devices`.
pub fn library(
    mechanism: Mechanism,
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    match mechanism {
        Mechanism::M1 => m1::library(scale, devices, seen),
        Mechanism::M2 => m2::library(scale, devices, seen),
        Mechanism::M3 => m3::library(scale, seen),
        Mechanism::M4 => {
            let mut measured = m4::library(scale, devices, seen)?;
            let held = held::library(scale, devices, seen)?;
            measured.sections.extend(held.sections);
            measured.gains.extend(held.gains);
            Ok(measured)
        }
        Mechanism::M5 => m5::library(scale, devices, seen),
    }
}
