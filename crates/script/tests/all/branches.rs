//! Branches and snapshots: the language, the model, and what random scripts do with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use expect_test::expect;
use holdfast_script::{
    Answer, BranchOp, Family, Model, Op, Outcome, Profile, Rules, Script, Target, TreeRef,
    VolumeModel, compare, generate, shrink, transcript, verify,
};

use crate::copies::Copies;

fn story(text: &str) -> String {
    transcript(text, &mut VolumeModel::new()).expect("it is well formed")
}

#[test]
fn a_transcript_shows_what_branches_do() {
    let script = r#"
        mkfile /a; write /a 0 "one"; snapshot s; write /a 0 "two"; look s; read /a 0 9
        fork side s; fork twin; branches; snapshots; switch side; read /a 0 9; snapshots
        switch twin; read /a 0 9; write /a 0 "ten"; switch main; read /a 0 9
        rollback s was; read /a 0 9; snapshots; rollback was; read /a 0 9; rmsnapshot was; snapshots
        mvbranch twin other; mvsnapshot s first; rmbranch other; branches
    "#;
    expect![[r#"
        mkfile /a -> ok
        write /a 0 "one" -> ok
        snapshot s -> ok
        write /a 0 "two" -> ok
        look s ->
        / dir 755 nlink 2 owner 0:0 mtime now
        /a file 644 nlink 1 owner 0:0 size 3 mtime now sum 6de17688ffe2ceda
        read /a 0 9 -> "two"
        fork side s -> ok
        fork twin -> ok
        branches -> [main, side, twin] in main
        snapshots -> [s]
        switch side -> ok
        read /a 0 9 -> "one"
        snapshots -> []
        switch twin -> ok
        read /a 0 9 -> "two"
        write /a 0 "ten" -> ok
        switch main -> ok
        read /a 0 9 -> "two"
        rollback s was -> ok
        read /a 0 9 -> "one"
        snapshots -> [s, was]
        rollback was -> ok
        read /a 0 9 -> "two"
        rmsnapshot was -> ok
        snapshots -> [s]
        mvbranch twin other -> ok
        mvsnapshot s first -> ok
        rmbranch other -> ok
        branches -> [main, side] in main
    "#]]
    .assert_eq(&story(script));
}

#[test]
fn what_is_refused_and_why() {
    let script = "
        snapshot s -> ok; snapshot s -> EEXIST; look t -> ENOENT; rmsnapshot t -> ENOENT; rollback t -> ENOENT
        fork b t -> ENOENT; fork main -> EEXIST; fork b s -> ok; rollback s s -> EEXIST; switch c -> ENOENT
        hold s -> ok; hold s -> EEXIST; hold s mine -> ok; unhold s -> ok; unhold s -> ENOENT; rmsnapshot s -> EBUSY; unhold s mine -> ok; unhold t -> ENOENT
        mvsnapshot t u -> ENOENT; mvsnapshot s s -> ok; snapshot t -> ok; mvsnapshot s t -> EEXIST; rmsnapshot t -> ok; mvbranch c d -> ENOENT; mvbranch b main -> EEXIST
        rmbranch main -> EBUSY; rmbranch c -> ENOENT; switch b -> ok; rmbranch b -> EBUSY; snapshots -> []
        snapshot s -> ok; fork c s -> ok; switch main -> ok; rmbranch b -> EBUSY; rmbranch c -> ok; rmbranch b -> ok
        snapshot {x*256} -> EINVAL; fork {x*256} -> EINVAL; snapshot {x*255} -> ok
        mkfile /f -> ok; open h /f write -> ok; rollback s -> EBUSY; fork d -> ok; switch d -> ok; close h -> EBADF
        open h /f write -> ok; switch main -> ok; rmbranch d -> EBUSY; close h -> ok; rollback s -> ok; stat /f -> ENOENT
    ";
    let script: Script = script.parse().unwrap();
    verify(&script, &mut VolumeModel::new()).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

#[test]
fn a_fork_that_is_promoted_is_the_branch_and_its_snapshots_are_too() {
    let script = "
        mkfile /f -> ok; fork b -> ok; snapshot s -> ok; switch b -> ok; mkfile /g -> ok; snapshot t -> ok; unlink /f -> ok
        snapshot s -> ok; switch main -> ok; promote main -> EBUSY; promote c -> ENOENT; promote b -> EEXIST
        rmsnapshot s -> ok; promote b t -> EEXIST; promote b {x*256} -> EINVAL; fork c t -> ENOENT
        open h /f write -> ok; promote b -> EBUSY; close h -> ok; promote b was -> ok
        branches -> [main] in main; snapshots -> [s, t, was]; ls / -> [g file]; rmsnapshot s -> ok; fork c t -> ok; rollback was -> ok
        ls / -> [f file]; switch c -> ok; ls / -> [f file, g file]; switch main -> ok; mkfile /h -> ok; promote c -> ok; ls / -> [f file, g file]
    ";
    let script: Script = script.parse().unwrap();
    verify(&script, &mut VolumeModel::new()).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

#[test]
fn a_branch_out_of_nothing_has_nothing_of_others_and_is_one_like_them() {
    let script = "
        mkfile /f -> ok; newbranch main -> EEXIST; newbranch {x*256} -> EINVAL; newbranch b -> ok; newbranch b -> EEXIST
        branches -> [b, main] in main; ls / -> [f file]; switch b -> ok; ls / -> []; snapshots -> []; mkfile /g -> ok
        snapshot s -> ok; unlink /g -> ok; fork c s -> ok; switch c -> ok; ls / -> [g file]; switch main -> ok
        rmbranch b -> EBUSY; promote b was -> ok; ls / -> []; snapshots -> [s, was]; rollback was -> ok; ls / -> [f file]
        newbranch b -> ok; rmbranch b -> ok; branches -> [c, main] in main
    ";
    let script: Script = script.parse().unwrap();
    verify(&script, &mut VolumeModel::new()).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

#[test]
fn a_branch_is_kept_by_what_grew_out_of_it_also_through_what_was_removed() {
    let script = "
        fork b -> ok; switch b -> ok; snapshot one -> ok; snapshot two -> ok; fork c two -> ok; rmsnapshot two -> ok
        switch main -> ok; rmbranch b -> EBUSY
        switch b -> ok; rmsnapshot one -> ok; switch main -> ok; rmbranch b -> ok; switch c -> ok; ls / -> []
    ";
    let script: Script = script.parse().unwrap();
    verify(&script, &mut VolumeModel::new()).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

#[test]
fn a_snapshot_shows_no_file_without_a_name() {
    let found = story("tmpfile t / 600; snapshot s; fork b s; link @t /t; look s; switch b; tree");
    let root = "/ dir 755 nlink 2 owner 0:0 mtime now\n";
    assert!(found.contains(&format!("look s ->\n{root}switch b")), "{found}");
    assert!(found.ends_with(&format!("tree ->\n{root}")), "{found}");
}

#[test]
fn a_target_of_one_tree_refuses_all_of_it_and_is_a_volume_with_one_branch() {
    for op in ["snapshot s", "fork b", "branches", "switch main", "look s", "unhold s"] {
        let op: Op = op.parse().unwrap();
        assert_eq!(Model::new().apply(&op).to_string(), "EOPNOTSUPP");
    }
    let script: Script = "mkdir /a; setxattr /a user.k 100 1".parse().unwrap();
    compare(&script, &mut VolumeModel::new(), &mut Model::new(), Rules::EXACT).unwrap();
}

#[test]
fn what_is_printed_is_parsed_back() {
    let profile = Profile { ops: 400, crashes: 1, ..Profile::branches() };
    for seed in 0..40 {
        let script = generate(seed, &profile);
        let again: Script = script.to_string().parse().unwrap();
        assert_eq!(again, script, "seed {seed}");
        assert_eq!(generate(seed, &profile), script, "seed {seed} must repeat");
    }
    for wrong in ["fork", "snapshot a@b", "rollback /s", "branches main", "mvbranch a", "look"] {
        wrong.parse::<Script>().expect_err(wrong);
    }
}

#[test]
fn an_operation_changes_its_own_branch_and_nothing_else() {
    let mut kept = 0;
    for seed in 0..200 {
        let profile = Profile { ops: 100, crashes: 1, ..Profile::branches() };
        let mut model = VolumeModel::new();
        for op in generate(seed, &profile).ops() {
            let before = model.clone();
            model.apply(op);
            let here = TreeRef::branch(before.current());
            let closes = matches!(op, Op::Remount | Op::Crash);
            for (name, number, tree) in before.trees() {
                if name == here || closes && name.snapshot.is_none() {
                    continue;
                }
                if let Some(found) = model.numbered(number) {
                    kept += 1;
                    assert!(Arc::ptr_eq(tree, found), "seed {seed}: {op} has changed {name}");
                }
            }
        }
    }
    assert!(kept > 50_000, "only {kept} trees were compared");
}

#[test]
fn a_snapshot_is_the_branch_at_that_moment_and_a_way_back_to_it() {
    let mut taken = 0;
    for seed in 0..100 {
        let mut model = VolumeModel::new();
        for op in generate(seed, &Profile::branches()).ops() {
            let (before, parent) = (model.clone(), model.current().clone());
            if !matches!(model.apply(op), Outcome::Ok(_)) {
                continue;
            }
            let shown = |model: &VolumeModel, name: &TreeRef| {
                let found = model.trees().find(|(found, ..)| found == name).expect("it is there");
                Model::clone(found.2).walk().unwrap()
            };
            let mut closed = before.clone();
            closed.apply(&Op::Remount);
            let was = shown(&closed, &TreeRef::branch(&parent));
            let grown = match op {
                Op::Branch(BranchOp::Snapshot { name }) => TreeRef::snapshot(&parent, name),
                Op::Branch(BranchOp::Fork { branch, from: None }) => TreeRef::branch(branch),
                Op::Branch(BranchOp::Rollback { to, keep }) => {
                    let back = shown(&model, &TreeRef::branch(&parent));
                    assert_eq!(back, shown(&before, &TreeRef::snapshot(&parent, to)));
                    let Some(keep) = keep else { continue };
                    TreeRef::snapshot(&parent, keep)
                }
                Op::Branch(BranchOp::Promote { fork, keep }) => {
                    let here = shown(&model, &TreeRef::branch(&parent));
                    assert_eq!(here, shown(&before, &TreeRef::branch(fork)));
                    let Some(keep) = keep else { continue };
                    TreeRef::snapshot(&parent, keep)
                }
                _ => continue,
            };
            assert_eq!(shown(&model, &grown), was, "seed {seed}: {op}");
            taken += 1;
        }
    }
    assert!(taken > 300, "only {taken} trees were taken");
}

/// What scripts do, by kind, with the number of times.
fn kinds(scripts: impl Iterator<Item = Script>) -> BTreeMap<&'static str, usize> {
    let mut found = BTreeMap::new();
    for script in scripts {
        let mut model = VolumeModel::new();
        for op in script.ops() {
            let before = model.clone();
            if !matches!(model.apply(op), Outcome::Ok(_)) {
                *found.entry("refused").or_default() += usize::from(matches!(op, Op::Branch(_)));
                continue;
            }
            let here = before.current().as_bytes();
            let mut count = |kind: &'static str| *found.entry(kind).or_default() += 1;
            match op {
                Op::Branch(BranchOp::RemoveSnapshot { name }) => {
                    let all = before.grown();
                    let at = all.iter().position(|(known, _)| known == name).expect("it was there");
                    count(match at {
                        _ if all.len() == 1 => "remove the only one",
                        0 => "remove the oldest",
                        at if at + 1 == all.len() => "remove the newest",
                        _ => "remove in the middle",
                    });
                    count(match all[at].1 {
                        0 => "remove without a child",
                        1 => "remove with one child",
                        _ => "remove with several children",
                    });
                }
                Op::Branch(BranchOp::Snapshot { .. }) => count("snapshot"),
                Op::Branch(BranchOp::Fork { from: Some(_), .. }) => count("fork of a snapshot"),
                Op::Branch(BranchOp::Fork { from: None, .. }) => count("fork"),
                Op::Branch(BranchOp::NewBranch { .. }) => count("new branch"),
                Op::Branch(BranchOp::Rollback { keep: Some(_), .. }) => count("rollback, kept"),
                Op::Branch(BranchOp::Rollback { keep: None, .. }) => count("rollback"),
                Op::Branch(BranchOp::Promote { keep: Some(_), .. }) => count("promote, kept"),
                Op::Branch(BranchOp::Promote { keep: None, .. }) => count("promote"),
                Op::Branch(BranchOp::RemoveBranch { .. }) => count("remove a branch"),
                Op::Branch(BranchOp::RenameBranch { .. }) => count("rename a branch"),
                Op::Branch(BranchOp::RenameSnapshot { .. }) => count("rename a snapshot"),
                Op::Branch(BranchOp::Hold { .. }) => count("hold"),
                Op::Branch(_) => count("look"),
                _ if here == b"main" => count("work in main"),
                _ => count("work in another branch"),
            }
        }
    }
    found
}

#[test]
fn sixty_operations_hold_several_of_everything() {
    let scripts = || (0..100).map(|seed| generate(seed, &Profile::branches()));
    let found = kinds(scripts());
    let least = [
        ("snapshot", 300),
        ("fork", 60),
        ("fork of a snapshot", 60),
        ("new branch", 20),
        ("rollback", 40),
        ("rollback, kept", 40),
        ("promote", 15),
        ("promote, kept", 12),
        ("remove the oldest", 30),
        ("remove the newest", 30),
        ("remove in the middle", 15),
        ("remove without a child", 10),
        ("remove with one child", 60),
        ("remove with several children", 20),
        ("remove a branch", 50),
        ("rename a branch", 5),
        ("rename a snapshot", 5),
        ("hold", 5),
        ("work in main", 1000),
        ("work in another branch", 800),
        ("refused", 50),
    ];
    for (kind, least) in least {
        assert!(found.get(kind).is_some_and(|&count| count >= least), "{kind}: {found:?}");
    }
    // Not only together: each run has some.
    for (seed, script) in scripts().enumerate() {
        let has = |wanted: fn(&BranchOp) -> bool| {
            script.ops().filter(|op| matches!(op, Op::Branch(op) if wanted(op))).count()
        };
        let taken = has(|op| matches!(op, BranchOp::Snapshot { .. } | BranchOp::Fork { .. }));
        assert!(taken >= 2, "seed {seed}: {script}");
    }
}

#[test]
fn stories_of_branches_remove_in_every_order_too() {
    let found = kinds((0..200).map(|seed| Family::Branches.generate(seed, 4)));
    for kind in
        ["remove the oldest", "remove the newest", "remove in the middle", "rollback", "fork"]
    {
        assert!(found.get(kind).is_some_and(|&count| count >= 20), "{kind}: {found:?}");
    }
}

#[test]
fn a_failure_shrinks_to_the_branch_that_causes_it() {
    let script = "mkfile /a; fork x; fork b; switch x; append /a 5 1; snapshot s; switch b; append /a 5 2; \
        snapshot s; append /a 5 3; fork c s; switch c; append /a 5 4; switch main; rmbranch x; append /a 5 5";
    let script: Script = script.parse().unwrap();
    let fails = |script: &Script| {
        let mut model = VolumeModel::new();
        script.ops().for_each(|op| drop(model.apply(op)));
        let trees = model.walk_all().unwrap();
        let tree = trees.0.iter().find(|(name, _)| name.to_string() == "c");
        tree.is_some_and(|(_, tree)| tree.0.values().any(|node| node.stat.size == 10))
    };
    let small = shrink(&script, fails);
    assert!(fails(&small));
    assert!(small.steps.len() <= 8, "{small}");
    assert!(!small.to_string().contains('x'), "{small}");
}

/// The model against directories of the host that are copied: how we know that it is right.
#[test]
fn the_model_agrees_with_copied_directories() {
    if !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("scripts change owners and make devices, which needs root");
        return;
    }
    let run = |script: &Script| {
        let under = tempfile::Builder::new().prefix("holdfast-script").tempdir_in("/dev/shm");
        let under = under.expect("a directory for the script");
        let mut copies = Copies::new(under.path());
        compare(script, &mut VolumeModel::new(), &mut copies, Rules::LENIENT)
    };
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    let profile = Profile { zero: false, syncs: 0, ..Profile::branches() };
    for seed in 0..40 * times.unwrap_or(1) {
        let script = generate(seed, &profile);
        if let Err(mismatch) = run(&script) {
            let small = shrink(&mismatch.script, |script| run(script).is_err());
            let small = run(&small).err().unwrap_or(mismatch);
            panic!("{}", small.from_seed(seed));
        }
    }
}

/// `Answer` of branches is text that an expectation can hold.
#[test]
fn answers_can_be_expected() {
    let script: Script =
        "fork b -> ok; branches -> [b, main] in main; snapshots -> []".parse().unwrap();
    verify(&script, &mut VolumeModel::new()).unwrap();
    assert_eq!(Answer::Snapshots(Vec::new()).to_string(), "[]");
}
