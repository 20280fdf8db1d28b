//! The one place that reads what is stored more than once: each place is read and judged, and the first that is sound counts.
//!
//! A place that the device does not read is as bad as one whose bytes are wrong. What is bad is written again from what is sound
//! in [`crate::mend`], which asks first whether the place is still the node's; nothing is written here.
//!
//! Knows nothing of what is read: who asks judges.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::BlockRange;

use crate::{Result, StoreError};

/// A place that does not hold what it should.
#[derive(Debug)]
pub(crate) struct BadPlace {
    pub(crate) place: BlockRange,
    /// Why not.
    pub(crate) why: StoreError,
}

/// What was read, and from where.
#[derive(Debug)]
pub(crate) struct Verified<T> {
    pub(crate) value: T,
    pub(crate) place: BlockRange,
    /// The place before it, if that is bad.
    pub(crate) bad: Option<BadPlace>,
}

/// Reads and judges the places one after the other, until one is sound. Fails as the first of them does if none is.
pub(crate) fn first_sound<T>(
    places: impl IntoIterator<Item = BlockRange>,
    mut read: impl FnMut(BlockRange) -> Result<T>,
) -> Result<Verified<T>> {
    let mut bad = None;
    for place in places {
        match read(place) {
            Ok(value) => return Ok(Verified { value, place, bad }),
            Err(why) => {
                bad.get_or_insert(BadPlace { place, why });
            }
        }
    }
    Err(bad.expect("there is a place at least").why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::BlockNo;

    #[test]
    fn the_first_sound_place_counts_and_the_first_reason_is_told() {
        let places = || [10, 20].map(|block| BlockRange::new(BlockNo(block), 1));
        let wrong = |place: BlockRange| StoreError::Refused(format!("{}", place.start));
        let found = first_sound(places(), |place| Ok(place.start)).unwrap();
        assert!(found.value == BlockNo(10) && found.bad.is_none());
        let found = first_sound(places(), |place| match place.start {
            BlockNo(10) => Err(wrong(place)),
            start => Ok(start),
        });
        let found = found.unwrap();
        assert_eq!((found.value, found.place), (BlockNo(20), places()[1]));
        assert_eq!(found.bad.unwrap().place, places()[0]);
        let none = first_sound(places(), |place| Err::<(), _>(wrong(place)));
        assert_eq!(none.unwrap_err().to_string(), "10");
    }
}
