//! What recoveries of the journal and of the log ask of the places that they read.

use crate::disk::{Device, Extent, Held, Location, RingPlace, Rings};
use crate::mutant::Mutant;

/// A ring that was used holds nothing where its mark is.
pub(crate) const WIPED: Violation = "a ring counts as wiped";

/// Why a recovery failed that should not.
pub(crate) type Violation = &'static str;

/// The places that a recovery looks into.
pub(crate) fn places_to_read(rings: Rings, broken: Option<Mutant>) -> &'static [RingPlace] {
    match broken {
        Some(Mutant::SecondPlaceNotRead) => &[RingPlace::First],
        _ => rings.places(),
    }
}

/// Whether all of it is there.
pub(crate) fn is_there(device: &Device, extents: &[Extent]) -> bool {
    extents.iter().all(|extent| device.data(extent.block) == Some(extent.version))
}

/// Whether a batch or commit of this sum lies there, but for a byte.
pub(crate) fn has_rotten(device: &Device, at: Location, sum: u64, broken: Option<Mutant>) -> bool {
    broken != Some(Mutant::RottenCountsAsWiped) && *device.read(at) == Held::Rotten(sum)
}
