//! Batches of a branch of which a part is lost: both readers know alike whose blocks these give back, and where they no longer do.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, Epoch};
use holdfast_device::Device;
use holdfast_format::item::Extent;
use holdfast_format::log::{Content, Dropped};
use holdfast_format::{ItemKind, Key};

use crate::common::branches::grown;
use crate::common::log::Log;
use crate::common::*;
use crate::forged_lineage::{Says, logged, second_reader};

/// A key of `agent` that no tree has.
fn far() -> Key {
    Key::new(DATA, ItemKind::Extent, 100 * BLOCK_BYTES)
}

/// `agent` gets blocks.
fn takes(blocks: BlockRange) -> Box<Says> {
    Box::new(move |of| {
        of.branch(3);
        of.encoder.take(blocks, &Content::Unwritten, of.out);
        of.put(far(), &Extent::new(blocks, Vec::new()).encode());
    })
}

/// It gives up blocks as those of a key, which loses its value.
fn gives(key: Key, blocks: BlockRange, birth: Epoch) -> Box<Says> {
    Box::new(move |of| {
        of.branch(3);
        of.encoder.delete(&key, of.out);
        of.encoder.drop_blocks(&Dropped { blocks, birth, at: key }, of.out);
    })
}

/// The issues of the log among what a reader says.
fn of_log(said: &str) -> Vec<u16> {
    let issues = (900..1000).filter(|issue| said.contains(&format!("[{issue}]")));
    issues.collect()
}

#[test]
fn readers_agree_on_what_batches_of_a_lost_branch_give_back() {
    let free = Log::new(&logged(&grown(), &[])).free_blocks(4);
    let taken = BlockRange::new(free.start, 1);
    let other = BlockRange::new(holdfast_base::BlockNo(free.start.0 + 2), 1);
    let (young, near) = (Epoch(1 << 40), Key::new(DATA, ItemKind::Extent, 0));
    let elsewhere = Key::new(far().inode, ItemKind::Extent, 90 * BLOCK_BYTES);
    type Batches<'b> = (&'static str, Vec<Box<Says>>);
    let cases: Vec<Batches<'_>> = vec![
        ("what it took", vec![takes(taken), gives(far(), taken, young)]),
        ("what nothing held", vec![takes(taken), gives(far(), other, young)]),
        ("what another key held", vec![takes(taken), gives(elsewhere, taken, young)]),
        (
            "what a tree had, then what nothing held",
            vec![gives(near, other, young), takes(taken), gives(far(), other, young)],
        ),
    ];
    let mut met = std::collections::BTreeSet::new();
    for damage in ["nothing", "the branch", "the lineage"] {
        for (what, batches) in &cases {
            let grown = grown();
            let says: Vec<&Says> = batches.iter().map(|says| &**says).collect();
            let made = logged(&grown, &says);
            let node = match damage {
                "the branch" => Some(grown.agent_root()),
                "the lineage" => Some(grown.superblock.space),
                _ => None,
            };
            if let Some(node) = node {
                let at = node.block.0 * BLOCK_BYTES;
                made.device.write(at, &vec![0x55; NODE]).unwrap();
            }
            let report = check_all(&made.device);
            let found = report.findings.iter().map(|it| format!("[{}]", it.id));
            let found = of_log(&found.collect::<String>());
            let Some(said) = second_reader(&made.device) else { return };
            let when = format!("{damage} is lost, {what}");
            assert_eq!(of_log(&said), found, "{when}: {said}\n{:#?}", report.findings);
            met.insert((damage, found));
        }
    }
    // A lost branch gives both a finding and, where no reader can judge the batch any more, none.
    assert!(met.contains(&("the branch", vec![904])) && met.contains(&("the branch", vec![])));
}
