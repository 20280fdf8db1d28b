//! The language itself: text and values say the same, seeds repeat, expectations bite.

use expect_test::expect;
use holdfast_script::{Model, Profile, Script, generate, shrink, transcript, verify};

#[test]
fn what_is_printed_is_parsed_back() {
    let profile = Profile { ops: 400, crashes: 1, ..Profile::default() };
    for seed in 0..50 {
        let script = generate(seed, &profile);
        let again: Script = script.to_string().parse().unwrap();
        assert_eq!(again, script, "seed {seed}");
        assert_eq!(generate(seed, &profile), script, "seed {seed} must repeat");
    }
}

#[test]
fn a_transcript_shows_what_happened() {
    let script = r#"
        mkdir /a; write /a/f 0 "x"
        mkfile /a/f; write /a/f 4k "hello\n"; read /a/f 4095 100; stat /a/f
        link /a/f /g; rename /a /b; ls /; seek /g data 0; seek /g hole 4097; unlink /b
        open h /g read,write; unlink /g; unlink /b/f; stat @h; link @h /z; sum @h; close h
        tmpfile t / 600; write @t 0 10k 7; link @t /t; setxattr /t user.k "v"; chown /t 5 -
        symlink to%20nowhere /b/l; readlink /b/l; chmod /b/l 600; tree
    "#;
    expect![[r#"
        mkdir /a -> ok
        write /a/f 0 "x" -> ENOENT
        mkfile /a/f -> ok
        write /a/f 4k "hello\n" -> ok
        read /a/f 4095 100 -> "\x00hello\n"
        stat /a/f -> file 644 nlink 1 owner 0:0 size 4102 mtime now
        link /a/f /g -> ok
        rename /a /b -> ok
        ls / -> [b dir, g file]
        seek /g data 0 -> 4k
        seek /g hole 4097 -> 4102
        unlink /b -> EISDIR
        open h /g read,write -> ok
        unlink /g -> ok
        unlink /b/f -> ok
        stat @h -> file 644 nlink 0 owner 0:0 size 4102 mtime now
        link @h /z -> ENOENT
        sum @h -> 4102 sum 388e87c9acd5863e
        close h -> ok
        tmpfile t / 600 -> ok
        write @t 0 10k 7 -> ok
        link @t /t -> ok
        setxattr /t user.k "v" -> ok
        chown /t 5 - -> ok
        symlink to%20nowhere /b/l -> ok
        readlink /b/l -> to%20nowhere
        chmod /b/l 600 -> EOPNOTSUPP
        tree ->
        / dir 755 nlink 3 owner 0:0 mtime now
        /b dir 755 nlink 2 owner 0:0 mtime now
        /b/l symlink 777 nlink 1 owner 0:0 size 10 mtime now to to%20nowhere
        /t file 600 nlink 1 owner 5:0 size 10k mtime now sum e45de9fdc1d1712c user.k="v"
    "#]]
    .assert_eq(&transcript(script, &mut Model::new()).unwrap());
}

#[test]
fn an_expectation_that_does_not_hold_is_named() {
    let script: Script = "mkdir /a -> ok; rmdir /a -> ENOTEMPTY".parse().unwrap();
    let mismatch = verify(&script, &mut Model::new()).unwrap_err();
    assert_eq!((mismatch.index, &mismatch.found[..]), (1, "ok"));
    assert!(mismatch.to_string().contains("step 2: rmdir /a"), "{mismatch}");
}

#[test]
fn a_failure_shrinks_to_what_causes_it() {
    let script = generate(3, &Profile::default());
    let wanted = "mkdir /q; mkdir /r; rename /q /r/q".parse::<Script>().unwrap();
    let mixed = Script {
        steps: script
            .steps
            .iter()
            .enumerate()
            .flat_map(|(index, step)| {
                let wanted = wanted.steps.get(index.wrapping_sub(20) / 10);
                let wanted = wanted.filter(|_| index >= 20 && index % 10 == 0);
                [Some(step.clone()), wanted.cloned()]
            })
            .flatten()
            .collect(),
    };
    let fails = |script: &Script| wanted.steps.iter().all(|step| script.steps.contains(step));
    assert_eq!(shrink(&mixed, fails), wanted);
}

#[test]
fn scripts_meet_things_that_exist() {
    // A generator whose operations are all refused would test nothing.
    let mut done = 0;
    let mut all = 0;
    for seed in 0..20 {
        let mut model = Model::new();
        let script = generate(seed, &Profile::default());
        for op in script.ops() {
            use holdfast_script::{Outcome, Target};
            done += usize::from(matches!(model.apply(op), Outcome::Ok(_)));
            all += 1;
        }
    }
    assert!(done * 10 > all * 6, "only {done} of {all} operations did something");
    assert!(done * 100 < all * 95, "hardly a refusal in {all} operations");
}
