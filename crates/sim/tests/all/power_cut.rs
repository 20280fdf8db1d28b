//! Power fails at every device call of these scripts, and every image that may be left keeps the promises.
//!
//! A failure prints one line with the script, the seed and the numbers for `Policy::only`.

use holdfast_script::Script;
use holdfast_sim::{Checkpoints, Policy, Setup, Stats, power_cut, power_cut_after};

fn parse(text: &str) -> Script {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The script survives every power cut, and enough images were looked at for that to mean something.
fn survives(script: &str) -> Stats {
    survives_after("", script)
}

fn survives_after(before: &str, script: &str) -> Stats {
    survives_with(before, script, &Policy::default())
}

fn survives_with(before: &str, script: &str, policy: &Policy) -> Stats {
    let stats = power_cut_after(&parse(before), &parse(script), policy)
        .unwrap_or_else(|failure| panic!("{failure}"));
    println!("{stats:?}");
    assert!(stats.cuts >= 8 && stats.opened >= 10, "{stats:?}");
    stats
}

/// Blocks that a commit or a checkpoint has freed are discarded at once: no image needs them, whether they are as before
/// or not. With threads others do it, at any moment.
#[test]
fn blocks_that_are_discarded() {
    const SCRIPT: &str = "mkfile /a; write /a 0 300k 1; fsync /a; write /a 0 200k 2; fsync /a; mkfile /b; write /b 0 40k 3; fsync /b; \
        unlink /a; fsyncdir /; write /b 100 5000 4; fsync /b; mkdir /d; mkfile /d/c; setxattr /d/c user.a 3000 4; fsync /d/c; \
        truncate /b 4096; append /b 50k 5; fsync /b; rename /b /d/c; fsyncdir /d; mkfile /e; write /e 0 400k 6; fsync /e; \
        punch /e 40k 100k; fsync /e; sync; unlink /e; unlink /d/c; sync";
    for (threads, checkpoints) in [
        (false, Checkpoints::After(2)),
        (false, Checkpoints::CommitsAfter(1)),
        (false, Checkpoints::RestsAfter(3)),
        (true, Checkpoints::Beside),
    ] {
        let mut setup = Setup { checkpoints, ..Setup::new(4096, 4) }.discarding();
        setup.mount.threads = threads;
        let policy = Policy { volume: 8 << 20, setup, recovery: 60, ..Policy::default() };
        let stats = power_cut_after(&parse(""), &parse(SCRIPT), &policy)
            .unwrap_or_else(|failure| panic!("{checkpoints:?}: {failure}"));
        println!("{checkpoints:?}: {stats:?}");
        assert!(stats.discards >= 2, "{stats:?}");
    }
}

/// R10: whatever is left, both places of each node hold it: the check finds no other.
#[test]
fn nodes_that_are_stored_twice() {
    const SCRIPT: &str = "mkfile /a; write /a 0 300k 1; fsync /a; mkfile /b; write /b 0 40k 3; fsync /b; unlink /a; fsyncdir /; \
        mkdir /d; mkfile /d/c; setxattr /d/c user.a 900 4; fsync /d/c; append /b 50k 5; fsync /b; rename /d/c /d/e; fsyncdir /d; \
        snapshot s; punch /b 8k 20k; fsync /b; sync; rmsnapshot s; unlink /d/e; sync";
    for checkpoints in [Checkpoints::After(2), Checkpoints::CommitsAfter(1)] {
        let mut setup = Setup { checkpoints, ..Setup::new(4096, 4) };
        setup.mkfs.metadata_copies = 2;
        let policy = Policy { volume: 8 << 20, setup, recovery: 40, ..Policy::default() };
        let stats = power_cut_after(&parse(""), &parse(SCRIPT), &policy)
            .unwrap_or_else(|failure| panic!("{checkpoints:?}: {failure}"));
        assert!(stats.cuts >= 8 && stats.opened >= 10, "{stats:?}");
    }
}

#[test]
fn create_and_fsync() {
    survives(
        "mkfile /a; write /a 0 5000 1; fsync /a; mkfile /b; write /b 0 100 2; fsync /b; \
         write /a 5000 5000 3; mkfile /c; fdatasync /a; write /c 0 40k 4; sync",
    );
}

#[test]
fn overwrite_and_append() {
    survives_after(
        "mkfile /a; write /a 0 64k 1; mkfile /log",
        "write /a 4096 8192 2; fsync /a; write /a 100 50 3; append /log 100 4; fsync /log; \
         append /log 4000 5; append /log 9000 6; fsync /log; write /a 60k 20k 7; fsync /a",
    );
}

#[test]
fn rename_over() {
    survives(
        "mkfile /f; write /f 0 5000 1; fsync /f; mkfile /f.new; write /f.new 0 9000 2; \
         rename /f.new /f; mkfile /f.new; write /f.new 0 100 3; fsync /f.new; rename /f.new /f; \
         fsyncdir /; mkfile /g; write /g 0 20k 4; rename /g /f; rename /f /h; fsync /h",
    );
}

#[test]
fn rename_exchange_and_directories() {
    survives(
        "mkdir /a; mkdir /b; mkfile /a/x; mkfile /b/y; write /a/x 0 6000 1; fsync /a/x; \
         rename /a/x /b/y exchange; fsyncdir /b; rename /a /b/a; mkdir /c; rename /b /c/b; \
         fsync /c/b/a/x; rename /c /d; rename /d/b /b; rmdir /d; fsyncdir /",
    );
}

#[test]
fn hard_links() {
    survives(
        "mkfile /a; write /a 0 3000 1; link /a /b; fsync /b; mkdir /d; link /a /d/c; unlink /a; \
         fsync /d/c; write /b 3000 3000 2; link /b /e; unlink /b; unlink /d/c; fsync /e; unlink /e",
    );
}

#[test]
fn truncate() {
    survives_after(
        "mkfile /a; write /a 0 50k 1; mkfile /b; write /b 0 5000 2",
        "truncate /a 20000; fsync /a; truncate /a 100; truncate /a 30k; write /a 25k 4096 3; \
         fsync /a; write /b 5000 5000 4; truncate /b 7000; write /b 7000 10 5; fsync /b; \
         truncate /b 0; truncate /a 1M; fsync /a",
    );
}

#[test]
fn punch_zero_and_allocate() {
    survives_after(
        "mkfile /a; write /a 0 80k 1",
        "punch /a 4096 8192; fsync /a; punch /a 100 20000; zero /a 30k 10k; fsync /a; \
         fallocate /a 100k 40k; write /a 110k 5000 2; fsync /a; fallocate /a 200k 20k keep; \
         write /a 33k 3000 3; fsync /a; punch /a 0 150k; fsync /a",
    );
}

#[test]
fn zeros_that_fill_no_block() {
    survives_after(
        "mkfile /a; write /a 0 40k 1",
        "zero /a 4000 200; fsync /a; zero /a 21000 10; fsync /a; zero /a 21100 10; fsync /a",
    );
}

#[test]
fn unlinked_while_open() {
    survives(
        "open h /a read,write,create; write @h 0 20k 1; fsync @h; unlink /a; write @h 20k 20k 2; \
         fsync @h; mkfile /b; fsync /b; tmpfile t / 600; write @t 0 9000 3; fsync @t; \
         link @t /t; fsync /t; close h; mkfile /c; fsync /c",
    );
}

#[test]
fn attributes() {
    survives(
        "mkfile /a; chmod /a 600; setxattr /a user.one \"first\"; fsync /a; chown /a 5 6; \
         setxattr /a user.one 2000 1 replace; setxattr /a trusted.two 60000 2; utimes /a 5 1000.5; \
         fsync /a; removexattr /a user.one; mkdir /d 700; setxattr /d user.x \"y\"; fsyncdir /d; \
         write /a 0 10 1; utimes /a omit 77; fsync /a; symlink some/where /l; mknod /p fifo; sync",
    );
}

#[test]
fn many_files() {
    let mut script = String::from("mkdir /d");
    for number in 0..60 {
        script += &format!("; mkfile /d/file-with-a-rather-long-name-{number}");
        if number % 3 == 0 {
            script += &format!("; write /d/file-with-a-rather-long-name-{number} 0 700 {number}");
        }
        if number % 20 == 19 {
            script += &format!("; fsync /d/file-with-a-rather-long-name-{number}");
        }
    }
    for number in 0..50 {
        script += &format!("; unlink /d/file-with-a-rather-long-name-{number}");
    }
    survives(&(script + "; fsyncdir /d"));
}

#[test]
fn trees_of_directories() {
    survives(
        "mkdir /a; mkdir /a/b; mkdir /a/b/c; mkdir /a/b/c/d; fsyncdir /a/b/c/d; mkfile /a/b/c/d/f; \
         mkdir /x; rename /a/b /x/b; fsyncdir /x; unlink /x/b/c/d/f; rmdir /x/b/c/d; rmdir /x/b/c; \
         mkdir /x/b/e; fsyncdir /x/b; rmdir /x/b/e; rmdir /x/b; rmdir /x; rmdir /a; fsyncdir /",
    );
}

#[test]
fn synchronous_writes() {
    survives(
        "open h /a write,create,sync; write @h 0 5000 1; write @h 5000 100 2; mkfile /b; \
         open d /b write,dsync; write @d 0 100 3; write @d 8192 4096 4; chmod /a 600; write @h 0 10 5",
    );
}

#[test]
fn a_full_volume() {
    // The smallest: 8 MiB, with rings and superblocks less than 7.5 for data, which each image is read for.
    survives_with(
        "mkfile /big; write /big 0 4M 1; mkfile /more; mkfile /small; write /small 0 5000 9",
        "write /more 0 4M 2; write /more 0 2M 3; fsync /more; append /small 1M 4; append /small 1M 5; \
         fsync /small; unlink /big; fsyncdir /; write /more 0 4M 6; fsync /more; truncate /more 0; \
         append /small 500k 7; sync",
        &Policy { volume: 8 << 20, ..Policy::default() },
    );
}

#[test]
fn remounts_between() {
    survives(
        "mkfile /a; write /a 0 30k 1; remount; write /a 10k 10k 2; mkdir /d; remount; \
         rename /a /d/a; fsync /d/a; remount; unlink /d/a; rmdir /d",
    );
}

#[test]
fn sectors_of_4096_and_large_nodes() {
    for node_size in [16384, 65536] {
        let policy = Policy {
            sector: 4096,
            setup: holdfast_sim::Setup::new(node_size, 1),
            ..Policy::default()
        };
        let script = "mkfile /a; write /a 0 9000 1; fsync /a; mkdir /d; rename /a /d/a; fsync /d/a; \
                      write /d/a 9000 9000 2; link /d/a /b; fsync /b; unlink /b; unlink /d/a";
        let stats =
            power_cut(&parse(script), &policy).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(stats.opened >= 10, "{stats:?}");
    }
}

#[test]
fn collapse_and_insert() {
    survives_after(
        "mkfile /a; write /a 0 60000 1; mkfile /b; write /b 0 5000 2",
        "collapse /a 4096 8192; write /b 0 100 3; fsync /b; insert /a 8192 4096; write /a 9000 50 4; fsync /a; \
         collapse /a 0 16k; append /a 3000 5; fsync /b; insert /a 0 8192; punch /a 20k 8192; fsync /a; truncate /a 9000; sync",
    );
}

/// What a snapshot has is copied, so that its deletion finds each block where it was.
#[test]
fn ranges_move_beside_snapshots() {
    survives_after(
        "mkfile /a; write /a 0 60000 1; fallocate /a 64k 32k keep; mkfile /b; snapshot s",
        "collapse /a 4096 8192; write /b 0 100 3; fsync /b; snapshot t; insert /a 0 4096; write /a 9000 50 4; fsync /a; \
         rmsnapshot s; write /b 0 20k 5; fsync /b; rmsnapshot t; write /b 0 40k 6; fsync /b; unlink /a; fsyncdir /",
    );
}

/// A volume of 8 MiB on a device of 24, which grows: to its last block, by little, and over what lay behind the far copy.
#[test]
fn a_volume_that_grows() {
    let usual = Policy::default();
    for checkpoints in [Checkpoints::Never, Checkpoints::CommitsAfter(2)] {
        let mut setup = Setup { checkpoints, ..usual.setup.clone() };
        setup.mkfs.bytes = Some(8 << 20);
        let policy = Policy { volume: 24 << 20, setup, ..usual.clone() };
        let script = "write /a 0 200k 1; fsync /a; grow 8256k; append /b 9000 2; fsync /b; grow 16M; write /a 100k 300k 3; \
                      fsync /a; mkfile /c; fsync /c; grow 16388k; unlink /a; append /c 5000 4; fsync /c; grow 24M; sync; \
                      append /c 6M 5; fsync /c";
        let stats = power_cut_after(&parse("mkfile /a; mkfile /b"), &parse(script), &policy)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("{stats:?}");
        assert!(stats.cuts >= 40 && stats.opened >= 60, "{stats:?}");
    }
}

/// What is reserved lies where nodes that are stored twice have to go: it moves out of there.
#[test]
fn a_volume_that_shrinks_to_where_few_pairs_of_places_are_free() {
    for node_size in [4096, 16384] {
        let mut setup = Setup::new(node_size, 16);
        setup.mkfs.root_copies = Some(2);
        let policy = Policy { volume: 32 << 20, setup, ..Policy::default() };
        let piece = |at: u64| format!("fallocate /room {}k 256k; ", 512 * at);
        let pieces: String = (0..68).map(piece).collect();
        let before = format!(
            "mkdir /d; mkfile /d/a; write /d/a 0 300k 1; mkfile /room; {pieces} snapshot s; write /d/a 8k 90k 2; mkfile /d/b; \
             write /d/b 0 700k 3; fork b s; punch /room 0 100k; sync"
        );
        let script = "shrink 27M; write /d/a 100 50 7; fsync /d/a; switch b; append /d/a 3000 8; fsync /d/a; switch main; \
                      rmsnapshot s; mkfile /e; write /e 0 9000 9; fsync /e";
        let stats = power_cut_after(&parse(&before), &parse(script), &policy)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("{stats:?}");
        assert!(stats.cuts >= 40 && stats.opened >= 60, "{stats:?}");
    }
}

/// What lies behind the new end moves: data, nodes, and what branches and snapshots share; in all of them files are what they were.
#[test]
fn a_volume_that_shrinks() {
    for node_size in [4096, 16384] {
        let usual = Policy::default();
        let setup = Setup::new(node_size, usual.setup.mount.inode_cache);
        let policy = Policy { volume: 24 << 20, setup, ..usual };
        // What is reserved in front keeps the rest behind the new end, until it goes.
        let before = "mkdir /d; mkfile /d/a; write /d/a 0 300k 1; snapshot s; mkfile /room; fallocate /room 0 14M; write /d/a 8k 90k 2; \
                      mkfile /d/small; write /d/small 0 100 3; fork b s; switch b; write /d/a 200k 40k 4; mkfile /own; \
                      write /own 0 60k 5; switch main; sync; unlink /room; snapshot t; fork c; mkfile /d/last; write /d/last 0 200k 6; \
                      fallocate /d/last 300k 500k; snapshot u; write /d/last 0 50k 7; rmsnapshot u; sync";
        let script = "shrink 12M; write /d/a 100 50 7; fsync /d/a; shrink 9M; switch b; append /own 3000 8; fsync /own; \
                      switch main; rmsnapshot s; grow 10M; write /d/last 0 9000 9; fsync /d/last";
        let stats = power_cut_after(&parse(before), &parse(script), &policy)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("{stats:?}");
        assert!(stats.cuts >= 60 && stats.opened >= 60, "{stats:?}");
    }
}
