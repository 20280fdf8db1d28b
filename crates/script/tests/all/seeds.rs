//! A seed in an old report means the script that it meant then.

use holdfast_script::{Data, Digest, Family, Profile, Script, generate};

/// A digest of the texts of many scripts.
fn sum(scripts: impl Iterator<Item = Script>) -> String {
    let text: String = scripts.map(|script| script.to_string()).collect();
    let mut digest = Digest::default();
    digest.add(0, &Data::Literal(text.into_bytes()).bytes());
    digest.to_string()
}

#[test]
fn seeds_mean_the_same_scripts_for_ever() {
    let usual = || (0..200).map(|seed| generate(seed, &Profile::default()));
    let crashes = Profile { ops: 40, crashes: 2, syncs: 90, far: 0, ..Profile::default() };
    let families = || Family::ALL.into_iter().flat_map(|of| (0..40).map(move |seed| (of, seed)));
    let found = [
        sum(usual()),
        sum((0..200).map(|seed| generate(seed, &crashes))),
        sum(families().map(|(family, seed)| family.generate(seed, 4))),
        sum(families().map(|(family, seed)| family.generate_full(seed, 4))),
    ];
    let known = ["01d1a7cd0ab6dadf", "a916edd51687037e", "4976d105978ddbf3", "5bd8c53f0f78109d"];
    assert_eq!(found, known);
}
