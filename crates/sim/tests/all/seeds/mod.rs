//! Which seeds a random test tries.

/// The usual seeds, unless `HOLDFAST_SEEDS` says otherwise: `from..to` tries others, a number so many
/// times as many.
pub(crate) fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("HOLDFAST_SEEDS") else {
        return usual;
    };
    if let Ok(times) = asked.parse::<u64>() {
        return usual.start..usual.start + (usual.end - usual.start) * times;
    }
    let bounds =
        asked.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    bounds.unwrap_or_else(|| panic!("HOLDFAST_SEEDS is a number or from..to, not {asked}"))
}
