//! The one place that reads what is stored more than once: each place is read and judged, and the first that is sound counts.
//!
//! A place that the device does not read is as bad as one whose bytes are wrong. What is bad is written again from what is sound
//! in [`crate::mend`], which asks first whether the place is still the node's; nothing is written here.
//!
//! Knows nothing of what is read: the caller judges.

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

/// Reads and judges all places. One that has something else than the first that is sound is bad as well; `other` says so. Fails as the
/// first of them does if none is sound.
pub(crate) fn all_sound<T: PartialEq>(
    places: impl IntoIterator<Item = BlockRange>,
    mut read: impl FnMut(BlockRange) -> Result<T>,
    other: impl FnOnce() -> StoreError,
) -> Result<Verified<T>> {
    let mut places = places.into_iter();
    let mut found = first_sound(places.by_ref(), &mut read)?;
    for place in places {
        let why = match read(place) {
            Ok(value) if value == found.value => continue,
            Ok(_) => other(),
            Err(why) => why,
        };
        found.bad = Some(BadPlace { place, why });
        break;
    }
    Ok(found)
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

    #[test]
    fn each_place_is_judged_and_must_have_the_same() {
        let places = || [10, 20].map(|block| BlockRange::new(BlockNo(block), 1));
        let refused = |why: &str| StoreError::Refused(why.into());
        let found = |one: Option<u8>, two: Option<u8>| {
            let read = |place: BlockRange| match place.start {
                BlockNo(10) => one.ok_or(refused("one")),
                _ => two.ok_or(refused("two")),
            };
            let found = all_sound(places(), read, || refused("other")).ok()?;
            let bad = found.bad.map(|bad| (bad.place.start.0, bad.why.to_string()));
            Some((found.value, found.place.start.0, bad))
        };
        assert_eq!(found(Some(1), Some(1)), Some((1, 10, None)));
        assert_eq!(found(None, Some(1)), Some((1, 20, Some((10, "one".into())))));
        assert_eq!(found(Some(1), None), Some((1, 10, Some((20, "two".into())))));
        assert_eq!(found(Some(1), Some(2)), Some((1, 10, Some((20, "other".into())))));
        assert_eq!(found(None, None), None);
    }
}
