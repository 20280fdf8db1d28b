//! One text form for each item, used by findings and dumps: `field=value` on one line.

use std::fmt::Write;

pub(crate) use holdfast_base::show::name as printable;
use holdfast_base::{Timestamp, TreeId};
use holdfast_format::item::lineage::decode_numbers;
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::item::{
    Dentry, Extent, GroupItem, HoldItem, InodeItem, LineageItem, OriginItem, PunchItem, RootItem,
    SharedItem, TreeItem, TreeKind, WalkItem, WalkPlace, Xattr, group,
};
use holdfast_format::{ItemKind, Key, Malformed};

/// Bytes of inline content that are shown.
const SHOWN_MAX: usize = 32;

fn time(time: Timestamp) -> String {
    format!("{}.{:09}", time.secs, time.nanos)
}

fn start_of(bytes: &[u8]) -> String {
    let shown = printable(&bytes[..bytes.len().min(SHOWN_MAX)]);
    let more = if bytes.len() > SHOWN_MAX { "..." } else { "" };
    format!("len={} bytes={shown:?}{more}", bytes.len())
}

/// An item on one line.
pub(crate) fn item(key: &Key, value: &[u8]) -> String {
    let text = match key.kind {
        ItemKind::Inode => InodeItem::decode(value).map(|inode| inode_text(&inode)),
        ItemKind::Inline | ItemKind::XattrPiece => Ok(start_of(value)),
        ItemKind::Dentry => Dentry::decode(value).map(|dentry| {
            let Dentry { inode, file_type, name } = dentry;
            format!("to={inode} type={file_type:?} name={:?}", printable(name))
        }),
        ItemKind::Xattr => Xattr::decode(value).map(|xattr| xattr_text(&xattr)),
        ItemKind::Extent => Extent::decode(value).map(|extent| extent_text(&extent)),
        ItemKind::Orphan => holdfast_format::item::orphan::decode(value).map(|()| String::new()),
        ItemKind::Punch => PunchItem::decode(value).map(|punch| {
            let what = match punch.state {
                PunchItem::KEEPS_BLOCKS => "stay allocated",
                _ => "are freed",
            };
            format!("blocks {} to {} of the file read as zeros and {what}", punch.first, punch.end)
        }),
        ItemKind::Group => GroupItem::decode(value).map(|group| {
            let GroupItem { used_blocks, node_blocks, shared_blocks, free_slots } = group;
            let shared = if shared_blocks > 0 {
                format!(" shared_blocks={shared_blocks}")
            } else {
                String::new()
            };
            format!("used_blocks={used_blocks} node_blocks={node_blocks}{shared} free_slots={free_slots}")
        }),
        ItemKind::Shared => SharedItem::decode(key, value)
            .map(|item| format!("blocks={} references={}", item.blocks, item.references)),
        ItemKind::Bitmap => bitmap_text(value),
        ItemKind::Tree => TreeItem::decode(value).map(|tree| tree_text(&tree)),
        ItemKind::Root => RootItem::decode(value).map(|root| {
            let RootItem { block, epoch, inode_count, referenced_blocks, level, .. } = root;
            format!(
                "block={block} epoch={epoch} level={level} inode_count={inode_count} \
                 referenced_blocks={referenced_blocks}"
            )
        }),
        ItemKind::Hold => HoldItem::decode(value)
            .map(|hold| format!("tag={:?} created={}", printable(&hold.tag), time(hold.created))),
        ItemKind::Origin => OriginItem::decode(value).map(|of| {
            let volume: String = of.volume.iter().map(|byte| format!("{byte:02x}")).collect();
            let (number, lsn, created) = (of.number, of.lsn, time(of.created));
            format!("volume={volume} number={number} lsn={lsn} created={created}")
        }),
        ItemKind::Walk => WalkItem::decode(value).map(|cursor| place(&cursor)),
        ItemKind::Lineage => LineageItem::decode(value).map(|item| format!("next={}", item.next)),
        ItemKind::Name => decode_numbers(value).map(|numbers| {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("trees={}", numbers.join(","))
        }),
        // A setting, or what a feature brings.
        _ => Ok(start_of(value)),
    };
    let text = text.unwrap_or_else(|malformed| format!("DAMAGED why={:?}", malformed.to_string()));
    format!("{} {text}", self::key(key)).trim_end().into()
}

/// A key, as it stands in front of its item.
pub(crate) fn key(key: &Key) -> String {
    let (inode, kind, offset) = (key.inode, key.kind, key.offset);
    format!("inode={inode} kind={kind:?} offset={offset:#x}")
}

/// A place in the order of a walk.
pub(crate) fn place(place: &WalkPlace) -> String {
    let at = Key::decode(&place.key.encode()).map_or("?".into(), |key| format!("{key:?}"));
    match place.level {
        WalkPlace::ITEM => at,
        level => format!("{at}, behind nodes of level {level} that end there"),
    }
}

fn tree_text(tree: &TreeItem) -> String {
    let name = printable(&tree.name);
    let (parent, lsn, created) = (tree.parent, tree.lsn, time(tree.created));
    let shared = format!("name={name:?} parent={parent} lsn={lsn} created={created}");
    match tree.kind {
        TreeKind::Branch => format!("branch {shared} limit={}", tree.limit),
        TreeKind::Going => format!("branch that goes to={}", tree.branch),
        TreeKind::Snapshot => format!(
            "snapshot {shared} branch={} epoch={} block={} root_epoch={} level={} inode_count={} referenced_blocks={}",
            tree.branch,
            tree.epoch,
            tree.root.block,
            tree.root.epoch,
            tree.level,
            tree.inode_count,
            tree.referenced_blocks
        ),
    }
}

fn inode_text(inode: &InodeItem) -> String {
    format!(
        "type={:?} mode={:#o} uid={} gid={} nlink={} size={} blocks={} rdev={:#x} parent={} \
         slot={:#x} atime={} mtime={} ctime={} btime={} flags={:#x} xattr_value_next={} change={} project={}",
        inode.file_type(),
        inode.mode,
        inode.uid,
        inode.gid,
        inode.nlink,
        inode.size,
        inode.blocks,
        inode.rdev,
        inode.parent,
        inode.parent_slot,
        time(inode.atime),
        time(inode.mtime),
        time(inode.ctime),
        time(inode.btime),
        inode.flags,
        inode.xattr_value_next,
        inode.change,
        inode.project,
    )
}

fn xattr_text(xattr: &Xattr<'_>) -> String {
    let name = printable(xattr.name);
    match xattr.value {
        XattrValue::Here(value) => format!("name={name:?} {}", start_of(value)),
        XattrValue::Pieces { id, len } => format!("name={name:?} len={len} pieces={id}"),
    }
}

fn extent_text(extent: &Extent) -> String {
    let (blocks, birth) = (extent.blocks, extent.birth);
    let mut text = format!("block={} count={} birth={birth}", blocks.start, blocks.count);
    if !extent.is_written() {
        text.push_str(" unwritten");
        return text;
    }
    text.push_str(" sums=");
    for (index, sum) in extent.sums.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing into a String cannot fail.
        let _ = write!(text, "{comma}{sum:016x}");
    }
    text
}

fn bitmap_text(value: &[u8]) -> Result<String, Malformed> {
    let bits = group::decode_bitmap(value)?;
    let set: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    let mut runs = crate::runs::Runs::default();
    runs.push_bits(0, bits);
    let mut text = format!("used_blocks={set} runs=");
    runs.compare(&crate::runs::Runs::default(), |(start, end), _| {
        let comma = if text.ends_with('=') { "" } else { "," };
        // Writing into a String cannot fail.
        let _ = write!(text, "{comma}{}+{}", start, end - start);
    });
    Ok(text)
}

/// The tree's name in messages.
pub(crate) fn tree_name(tree: TreeId) -> &'static str {
    match tree {
        TreeId::Files => "files",
        TreeId::Space => "space",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_readable_and_unambiguous() {
        assert_eq!(printable("größe".as_bytes()), "größe");
        assert_eq!(printable(b"a\nb\\c\xff"), "a\\nb\\\\c\\xff");
    }
}
