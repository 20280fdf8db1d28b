//! The target `walkers` of `holdfast-hostile` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = holdfast_hostile::target("walkers").expect("the target exists");
    (target.run)(data);
});
