//! What a hole in journal or log costs, file by file: what was made behind it and is there all the same, and what was changed there and is as it
//! was before.

use std::collections::BTreeSet;

use holdfast_base::show;
use holdfast_check::reading::VolumeReading;
use holdfast_format::item::lineage::MAIN;

/// Sentences of either kind; of more, the number is told.
const TOLD_MAX: usize = 1000;

/// A sentence for each of these files.
pub(crate) fn told(reading: &VolumeReading<'_>) -> Vec<String> {
    if !reading.has_hole() {
        return Vec::new();
    }
    let tree = |id: u64| reading.trees().iter().find(|tree| tree.id == id);
    let named = |id: u64, path: &str| match tree(id) {
        _ if id == MAIN => path.to_string(),
        Some(tree) => format!("{}:{path}", tree.name),
        None => format!("#{id}:{path}"),
    };
    let (mut made, mut left, mut has_more) = (BTreeSet::new(), BTreeSet::new(), false);
    for ((id, inode), file) in reading.made_later() {
        let path = tree(*id).map(|tree| reading.later_path(tree, *inode));
        let lost = match file.used_again + file.unread {
            0 => String::new(),
            lost => format!(" (without {lost} of its {} blocks)", file.blocks),
        };
        made.extend(path.map(|path| named(*id, &path) + &lost));
    }
    for (id, changes) in reading.cut_changes() {
        has_more |= changes.has_more;
        left.extend(reading.cut_paths(tree(id), &changes).iter().map(|path| named(id, path)));
        let branch = changes.tree.filter(|_| tree(id).is_none());
        left.extend(branch.map(|item| format!("the branch {}", show::name(&item.name))));
    }
    let mut told = sentences(&made, "was made after that, and is there", false);
    let what = "was changed after that: it is as it was before, or not there";
    told.extend(sentences(&left, what, has_more));
    told
}

/// Of more than are listed, the number; `has_more`: there are still others, which were not counted.
fn sentences(of: &BTreeSet<String>, what: &str, has_more: bool) -> Vec<String> {
    let told = of.iter().take(TOLD_MAX).map(|path| format!("{path} {what}"));
    let more = of.len().saturating_sub(TOLD_MAX) as u64;
    let least = if has_more { "at least " } else { "" };
    let more = (more > 0).then(|| format!("{least}{} {what}", show::count(more, "more file")));
    let uncounted = (has_more && more.is_none()).then(|| format!("more than is named here {what}"));
    told.chain(more).chain(uncounted).collect()
}
