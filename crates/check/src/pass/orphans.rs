//! Pass 6: the list of orphans against the inodes without links, and that of unfinished holes against the files.

use holdfast_format::Key;
use holdfast_format::item::FileType;

use super::Context;
use crate::issue::Issue;

pub(super) fn run(context: &mut Context<'_>) {
    for number in std::mem::take(&mut context.orphans) {
        match context.inodes.find(number) {
            None if context.may_be_lost(&Key::inode(number)) => {}
            None => {
                let what = format!("inode {number} is listed as an orphan and does not exist");
                context.findings.add(Issue::OrphanDangling, what);
            }
            Some(at) => {
                let entry = &context.inodes.0[at];
                if entry.file_type.is_some() && (entry.nlink > 0 || entry.names > 0) {
                    let what = format!(
                        "inode {number} is listed as an orphan, but has {} links and {} names",
                        entry.nlink, entry.names
                    );
                    context.findings.add(Issue::OrphanNamed, what).inode(number);
                }
            }
        }
    }
    for number in std::mem::take(&mut context.punches) {
        let file_type = context.inodes.find(number).map(|at| context.inodes.0[at].file_type);
        let what = match file_type {
            None if context.may_be_lost(&Key::inode(number)) => continue,
            // Its item is damaged, which has been said.
            Some(None | Some(FileType::Regular)) => continue,
            None => format!("a hole is being made in inode {number}, which does not exist"),
            Some(Some(other)) => format!("a hole is being made in inode {number}, a {other:?}"),
        };
        context.findings.add(Issue::PunchDangling, what).inode(number);
    }
    if !context.files_lost.is_empty() {
        return;
    }
    for entry in &context.inodes.0 {
        if entry.file_type.is_some() && entry.nlink == 0 && entry.names == 0 && !entry.orphan {
            let what = format!("inode {} has no link and is not listed", entry.number);
            context.findings.add(Issue::OrphanUnlisted, what).inode(entry.number);
        }
    }
}
