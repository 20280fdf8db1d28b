//! docs/FORMAT.md says what the code says: its tables and its example are made here and compared.
//!
//! `UPDATE_DOCS=1` writes them into the document instead.

use std::fmt::Write;
use std::path::Path;

use holdfast_base::{BlockNo, BlockRange, CommitNo, Epoch, InodeNo, Lsn, Timestamp, TreeId};
use holdfast_format::checksum::block_sum;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::guard::GuardFields;
use holdfast_format::item::dentry::{DentryHead, slot};
use holdfast_format::item::extent::{ExtentHead, extent_blocks_max};
use holdfast_format::item::hold::HoldHead;
use holdfast_format::item::lineage::{LineageItem, TreeHead};
use holdfast_format::item::run::RunFields;
use holdfast_format::item::xattr::XattrHead;
use holdfast_format::item::{
    Dentry, Extent, FileType, GroupItem, InodeItem, OriginItem, PunchItem, RootItem, SharedItem,
    WalkItem,
};
use holdfast_format::journal::node::encode_node;
use holdfast_format::journal::{
    Base, COMMIT_BYTES_MAX, Commit, CommitHead, DataExtent, FrameHeader, NodeRecord,
    REPLAY_BYTES_MAX, frame,
};
use holdfast_format::log::{self, Content, Decoder, Encoder, LogHeader, Patch, Record};
use holdfast_format::node::{self, Expected, NodeHeader, SLOT_SIZE, SLOTS_AT};
use holdfast_format::signpost::SignpostFields;
use holdfast_format::superblock::Fields;
use holdfast_format::{
    Field, Geometry, ItemKind, JournalMark, Key, LogMark, NodePointer, NodeView, Superblock, limits,
};
use uuid::Uuid;

/// The parts of the document that are made.
fn parts() -> Vec<(&'static str, String)> {
    vec![
        ("table: limits", limits_table()),
        ("table: superblock", fields_table(&Fields::fields())),
        ("table: signpost", fields_table(&SignpostFields::fields())),
        ("table: guard", fields_table(&GuardFields::fields())),
        ("table: node", fields_table(&NodeHeader::fields())),
        ("table: kinds", kinds_table()),
        ("table: inode", fields_table(&InodeItem::fields())),
        ("table: types", types_table()),
        ("table: dentry", fields_table(&DentryHead::fields())),
        ("table: xattr", fields_table(&XattrHead::fields())),
        ("table: extent", fields_table(&ExtentHead::fields())),
        ("table: run", fields_table(&RunFields::fields())),
        ("table: punch", fields_table(&PunchItem::fields())),
        ("table: group", fields_table(&GroupItem::fields())),
        ("table: shared", fields_table(&SharedItem::fields())),
        ("table: tree", fields_table(&TreeHead::fields())),
        ("table: hold", fields_table(&HoldHead::fields())),
        ("table: origin", fields_table(&OriginItem::fields())),
        ("table: root", fields_table(&RootItem::fields())),
        ("table: walk", fields_table(&WalkItem::fields())),
        ("table: lineage", fields_table(&LineageItem::fields())),
        ("table: journal frame", fields_table(&FrameHeader::fields())),
        ("table: commit", fields_table(&CommitHead::fields())),
        ("table: node record", fields_table(&NodeRecord::fields())),
        ("table: data extent", fields_table(&DataExtent::fields())),
        ("table: log batch", fields_table(&LogHeader::fields())),
        ("example: superblock", superblock_example()),
        ("example: leaf", leaf_example()),
        ("example: commit", commit_example()),
        ("example: batch", batch_example()),
    ]
}

#[test]
fn the_document_says_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    let old = std::fs::read_to_string(&path).expect("docs/FORMAT.md exists");
    let mut new = old.clone();
    for (name, text) in parts() {
        let marker = format!("<!-- {name} -->\n");
        let start = new.find(&marker).unwrap_or_else(|| panic!("no marker for {name}"));
        let start = start + marker.len();
        let end = new[start..].find("<!-- end -->").expect("each marker has an end") + start;
        new.replace_range(start..end, &text);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, new).expect("the document can be written");
        return;
    }
    for (old, new) in old.lines().zip(new.lines()) {
        assert_eq!(old, new, "docs/FORMAT.md is out of date; run with UPDATE_DOCS=1");
    }
    assert_eq!(old.lines().count(), new.lines().count(), "run with UPDATE_DOCS=1");
}

/// A line for each field that is not always zero: offset, type, name, meaning. Then where the record ends.
fn fields_table(fields: &[Field]) -> String {
    let kind = |field: &Field| match field.kind {
        "bytes" => format!("bytes({})", field.size),
        kind => kind.into(),
    };
    let mut rows: Vec<[String; 4]> = fields
        .iter()
        .filter(|field| !is_zero(field))
        .map(|field| {
            let meaning = field
                .meaning
                .replace("[`InodeItem::HAS_XATTRS`] and others", "Below")
                .replace("[`Extent::UNBORN`]", "0")
                .replace("As in the superblock.", "")
                .replace('`', "")
                .trim_end_matches('.')
                .to_string();
            [field.offset.to_string(), kind(field), field.name.into(), meaning]
        })
        .collect();
    let end = fields.last().map_or(0, |field| field.offset + field.size);
    rows.push([end.to_string(), "end".into(), String::new(), String::new()]);
    listed(&rows)
}

fn is_zero(field: &Field) -> bool {
    field.meaning == "Zero."
}

/// Rows in columns, as a block of code: it needs no bars.
fn listed<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut out = String::from("```text\n");
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:<width$}", width = width(column)))
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end()).expect("writing into a String works");
    }
    out + "```\n"
}

fn limits_table() -> String {
    let rows: &[(&str, u64)] = &[
        ("bytes of a name", limits::NAME_MAX as u64),
        ("bytes of a symbolic link's target", limits::SYMLINK_MAX as u64),
        ("bytes of an attribute's value", limits::XATTR_VALUE_MAX as u64),
        ("links to a file", limits::LINK_MAX.into()),
        ("bytes of a file", limits::FILE_SIZE_MAX),
        ("levels of a tree, with leaves", limits::TREE_LEVELS_MAX.into()),
        ("blocks in a group", limits::GROUP_BLOCKS),
        ("blocks in a bitmap item", limits::BITMAP_BLOCKS),
        ("bytes of a value in a leaf of 4 KiB", limits::value_max(4096) as u64),
        ("bytes of a value in larger leaves", limits::value_max(16384) as u64),
        ("blocks of a written extent", extent_blocks_max(4096)),
        ("bytes of a volume, at least", limits::VOLUME_BYTES_MIN),
        ("bytes of a volume", i64::MAX as u64 / 4096 * 4096),
        ("bytes of a frame", frame::FRAME_BYTES_MAX as u64),
        ("bytes of a commit's payload", COMMIT_BYTES_MAX as u64),
        ("bytes of nodes in a journal, each node once", REPLAY_BYTES_MAX),
        ("bytes of a batch", log::BATCH_BYTES_MAX as u64),
        ("bytes of a log's batches", log::REPLAY_BYTES_MAX),
        ("blocks that batches of one flush name by sums", log::DATA_BLOCKS_MAX),
    ];
    assert_eq!(limits::value_max(65536), limits::value_max(16384));
    assert_eq!(extent_blocks_max(65536), extent_blocks_max(4096));
    let rows: Vec<_> =
        rows.iter().map(|(what, value)| [value.to_string(), (*what).to_string()]).collect();
    listed(&rows)
}

fn kinds_table() -> String {
    let mut rows = vec![["kind", "number", "tree", "inode", "offset", "value"].map(String::from)];
    for kind in ItemKind::ALL {
        let (inode, offset, value) = match kind {
            ItemKind::Inode => ("inode", "0", "inode"),
            ItemKind::Inline => ("inode", "0", "content"),
            ItemKind::Dentry => ("directory", "name slot", "directory entry"),
            ItemKind::Xattr => ("inode", "name slot", "attribute"),
            ItemKind::XattrPiece => ("inode", "value_id << 16 | index", "piece"),
            ItemKind::Extent => ("inode", "byte in the file", "extent"),
            ItemKind::Orphan => ("0", "inode", "none"),
            ItemKind::Punch => ("0", "inode", "punch"),
            ItemKind::Group => ("0", "group", "group"),
            ItemKind::Bitmap => ("group", "piece, 0 to 7", "bitmap"),
            ItemKind::Setting => ("0", "setting", "none is defined"),
            ItemKind::Lineage => ("L", "0", "lineage"),
            ItemKind::Name => ("L", "hash", "numbers"),
            ItemKind::Walk => ("L", "snapshot", "walk"),
            ItemKind::Tree => ("L + number", "0", "branch or snapshot"),
            ItemKind::Root => ("L + branch", "0", "root"),
            ItemKind::Child => ("L + parent", "child", "none"),
            ItemKind::Hold => ("L + snapshot", "hash", "hold"),
            ItemKind::Origin => ("L + snapshot", "0 to 7", "origin"),
            ItemKind::Shared => ("group", "block in the group", "shared blocks"),
            other => panic!("{other:?} has no row"),
        };
        let tree = if kind.tree() == TreeId::Files { "files" } else { "space" };
        let (name, number) = (format!("{kind:?}"), kind.number().to_string());
        rows.push([name.as_str(), number.as_str(), tree, inode, offset, value].map(String::from));
    }
    listed(&rows)
}

fn types_table() -> String {
    let types = (0..=u8::MAX).filter_map(|raw| Some((raw, FileType::from_raw(raw)?)));
    let rows: Vec<_> = types.map(|(raw, kind)| [raw.to_string(), format!("{kind:?}")]).collect();
    listed(&rows)
}

/// The volume of the example.
fn example() -> (Superblock, Vec<u8>) {
    let geometry = Geometry::for_device(8 << 20, 4096).expect("8 MiB are enough");
    let first = geometry.first_data_block();
    let files = NodePointer { block: first, epoch: Epoch(2) };
    let superblock = Superblock {
        epoch: Epoch(2),
        geometry,
        uuid: Uuid::from_bytes(*b"an example uuid!"),
        label: "example".into(),
        hash_seed: 0x5eed,
        features_compat: 0,
        features_ro_compat: 0,
        files,
        files_level: 0,
        space: NodePointer { block: BlockNo(first.0 + 1), epoch: Epoch(2) },
        space_level: 0,
        lsn: Lsn(2),
        inode_next: InodeNo(17),
        inode_count: 2,
        used_blocks: 2,
        referenced_blocks: 1,
        journal: JournalMark { commit: CommitNo(1), next: geometry.journal().start, sum: 0 },
        log: LogMark::START,
        ring_tag: *b"a secret",
        node_tag: *b"of nodes",
        created: Timestamp { secs: 1_700_000_000, nanos: 0 },
        writer: "an example".into(),
        fault: None,
        rest: Vec::new(),
    };
    let time = Timestamp { secs: 1_700_000_000, nanos: 0 };
    let directory = InodeItem {
        mode: FileType::Directory.mode_bits() | 0o755,
        uid: 0,
        gid: 0,
        nlink: 2,
        size: 1,
        blocks: 0,
        rdev: 0,
        parent: InodeNo::ROOT,
        parent_slot: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        flags: 0,
        xattr_value_next: 0,
        change: 1,
        project: 0,
        reserved: [0; 4],
    };
    let name = b"hello";
    let dentry = Dentry { inode: InodeNo(16), file_type: FileType::Regular, name };
    let at = slot(superblock.hash_seed, name);
    let file = InodeItem {
        mode: FileType::Regular.mode_bits() | 0o644,
        nlink: 1,
        size: 0,
        parent_slot: at,
        ..directory
    };
    let records = [
        (Key::inode(InodeNo::ROOT), directory.encode()),
        (Key::new(InodeNo::ROOT, ItemKind::Dentry, at), dentry.encode()),
        (Key::inode(InodeNo(16)), file.encode()),
    ];
    let expected = expected(&superblock);
    let mut bytes = node::empty(4096, &expected);
    let mut heap = bytes.len();
    for (index, (key, value)) in records.iter().enumerate() {
        let len = Key::SIZE + value.len();
        heap -= len;
        bytes[heap..heap + Key::SIZE].copy_from_slice(&key.encode());
        bytes[heap + Key::SIZE..heap + len].copy_from_slice(value);
        let slot = SLOTS_AT + index * SLOT_SIZE;
        bytes[slot..slot + 2].copy_from_slice(&(heap as u16).to_le_bytes());
        bytes[slot + 2..slot + 4].copy_from_slice(&(len as u16).to_le_bytes());
    }
    bytes[node::COUNT_AT] = records.len() as u8;
    bytes[node::HEAP_START_AT..][..4].copy_from_slice(&(heap as u32).to_le_bytes());
    node::seal(&mut bytes);
    (superblock, bytes)
}

fn expected(superblock: &Superblock) -> Expected {
    Expected {
        pointer: superblock.files,
        tree: TreeId::Files,
        level: 0,
        volume: superblock.nodes(),
    }
}

/// Bytes in lines of 16 with their offset, the first line named. Lines of zeros are left out.
fn listing(out: &mut String, bytes: &[u8], at: usize, name: &str) {
    for (index, line) in bytes.chunks(16).enumerate() {
        if line.iter().all(|&byte| byte == 0) {
            continue;
        }
        let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = if index == 0 { name } else { "" };
        let line = format!("{:04x}  {digits:<32}  {name}", at + 16 * index);
        writeln!(out, "{}", line.trim_end()).expect("writing into a String cannot fail");
    }
}

fn fields_listing(out: &mut String, bytes: &[u8], at: usize, fields: &[Field], prefix: &str) {
    for field in fields {
        let start = at + field.offset;
        let name = format!("{prefix}{}", field.name);
        listing(out, &bytes[start..start + field.size], start, &name);
    }
}

fn superblock_example() -> String {
    let (superblock, _) = example();
    let block = superblock.encode(SUPERBLOCK_SLOTS[0]);
    assert_eq!(Superblock::decode(&block, SUPERBLOCK_SLOTS[0]), Ok(superblock));
    assert!(block[Fields::SIZE..].iter().all(|&byte| byte == 0));
    let mut out = String::from("```text\n");
    fields_listing(&mut out, &block[..], 0, &Fields::fields(), "");
    out + "```\n"
}

fn leaf_example() -> String {
    let (superblock, bytes) = example();
    let view = NodeView::open(&bytes, &expected(&superblock)).expect("the example is valid");
    let mut out = String::from("```text\n");
    fields_listing(&mut out, &bytes, 0, &NodeHeader::fields(), "");
    for index in 0..view.count() {
        let at = SLOTS_AT + index * SLOT_SIZE;
        let (offset, len) = view.record(index);
        let name = format!("slot {index}: {len} at {offset:#06x}");
        listing(&mut out, &bytes[at..at + SLOT_SIZE], at, &name);
    }
    for index in (0..view.count()).rev() {
        let (at, len) = view.record(index);
        let key = view.key(index);
        listing(&mut out, &bytes[at..at + Key::SIZE], at, &format!("key {index}: {key:?}"));
        let at = at + Key::SIZE;
        let prefix = format!("{:?}.", key.kind).to_lowercase();
        if key.kind == ItemKind::Dentry {
            fields_listing(&mut out, &bytes, at, &DentryHead::fields(), &prefix);
            let name_at = at + DentryHead::SIZE;
            let name_len = len - Key::SIZE - DentryHead::SIZE;
            listing(&mut out, &bytes[name_at..name_at + name_len], name_at, "dentry.name");
        } else {
            fields_listing(&mut out, &bytes, at, &InodeItem::fields(), &prefix);
        }
    }
    out + "```\n"
}

/// The only frame of a commit behind the example's superblock: the root moves, and a second passes.
fn commit_frame() -> Vec<u8> {
    let (superblock, old) = example();
    let to = NodePointer { block: BlockNo(superblock.files.block.0 + 2), epoch: Epoch(3) };
    let mut new = old.clone();
    new[node::ADDRESS_AT] = to.block.0 as u8;
    new[node::EPOCH_AT] = to.epoch.0 as u8;
    // The third record's mtime.
    let view = NodeView::trusted(&old);
    let mtime = view.record(2).0 + Key::SIZE + 68;
    new[mtime] += 1;
    let now = Superblock { files: to, lsn: Lsn(3), ..superblock.clone() };
    let head = CommitHead { nodes: 1, cancels: 1, ..CommitHead::of(&now) };
    let mut payload = Vec::new();
    head.write(&mut payload);
    let at = node::ADDRESS_AT;
    let ranges = [(at, at + 1), (node::EPOCH_AT, node::EPOCH_AT + 1), (mtime, mtime + 1)];
    let base = Base::Copied(superblock.files);
    encode_node(to.block, base, ranges.into_iter(), &new, &mut payload);
    payload.extend_from_slice(&(to.block.0 + 1).to_le_bytes());
    Commit::decode(&payload, Epoch(3), &superblock.geometry).expect("the example is valid");
    let header = FrameHeader {
        magic: frame::MAGIC,
        kind: frame::KIND_COMMIT,
        sum: 0,
        address: superblock.journal.next.0,
        volume: superblock.ring_tag,
        epoch: 3,
        commit: superblock.journal.commit.0 + 1,
        durable: superblock.journal.commit.0,
        prior: superblock.journal.sum,
        index: 0,
        frames: 1,
        len: 0,
        pad: 0,
        reserved: [0; 16],
    };
    let mut out = Vec::new();
    header.encode(&payload, &mut out);
    out
}

fn commit_example() -> String {
    let bytes = commit_frame();
    let mut out = String::from("```text\n");
    fields_listing(&mut out, &bytes, 0, &FrameHeader::fields(), "");
    let mut at = FrameHeader::SIZE;
    fields_listing(&mut out, &bytes, at, &CommitHead::fields(), "head.");
    at += CommitHead::SIZE;
    fields_listing(&mut out, &bytes, at, &NodeRecord::fields(), "record.");
    at += NodeRecord::SIZE;
    for (size, name) in [
        (8, "base.block"),
        (8, "base.epoch"),
        (4, "range.address"),
        (4, "range.epoch"),
        (4, "range.time"),
        (3, "bytes"),
        (8, "cancelled"),
    ] {
        listing(&mut out, &bytes[at..at + size], at, name);
        at += size;
    }
    assert!(bytes[at..].iter().all(|&byte| byte == 0));
    out + "```\n"
}

/// The bytes of the file that the example's batch makes.
const CONTENT: &[u8] = b"log\n";

/// A batch behind the example's superblock: a new file `note` with four bytes that lie inside. Every
/// record with its name.
fn batch_records() -> (Vec<u8>, Vec<(usize, &'static str)>) {
    let (superblock, _) = example();
    let time = Timestamp { secs: 1_700_000_000, nanos: 0 };
    let now = Timestamp { secs: time.secs + 1, nanos: 0 };
    let file = InodeItem {
        mode: FileType::Regular.mode_bits() | 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        size: CONTENT.len() as u64,
        blocks: 1,
        rdev: 0,
        parent: InodeNo::ROOT,
        parent_slot: slot(superblock.hash_seed, b"note"),
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags: 0,
        xattr_value_next: 0,
        change: 1,
        project: 0,
        reserved: [0; 4],
    };
    let root = InodeItem {
        mode: FileType::Directory.mode_bits() | 0o755,
        nlink: 2,
        size: 2,
        blocks: 0,
        parent: InodeNo::ROOT,
        parent_slot: 0,
        atime: time,
        btime: time,
        ..file
    };
    let name = Dentry { inode: InodeNo(17), file_type: FileType::Regular, name: b"note" };
    let location = BlockRange::new(BlockNo(superblock.files.block.0 + 2), 1);
    let mut page = [0; 4096];
    page[..CONTENT.len()].copy_from_slice(CONTENT);
    let extent = Extent { birth: Epoch(3), ..Extent::new(location, vec![block_sum(&page)]) };
    let directory =
        Key::new(InodeNo::ROOT, ItemKind::Dentry, slot(superblock.hash_seed, name.name));
    let patch = Patch { base: None, at: 0, bytes: CONTENT };
    let mut out = Vec::new();
    let mut encoder = Encoder::default();
    let mut parts = Vec::new();
    LogHeader::reserve(&mut out);
    encoder.put(&Key::inode(InodeNo(17)), &file.encode(), &mut out);
    parts.push((out.len(), "inode 17"));
    encoder.put(&directory, &name.encode(), &mut out);
    parts.push((out.len(), "put: its name"));
    encoder.put(&Key::inode(InodeNo::ROOT), &root.encode(), &mut out);
    parts.push((out.len(), "inode 1"));
    encoder.put(&Key::new(InodeNo(17), ItemKind::Extent, 0), &extent.encode(), &mut out);
    parts.push((out.len(), "put: the extent of inode 17"));
    encoder.take(location, &Content::Inside(vec![patch]), &mut out);
    parts.push((out.len(), "take: block 402, its data inside"));
    let header = LogHeader {
        magic: log::frame::MAGIC,
        bytes: 0,
        sum: 0,
        address: superblock.log.next,
        volume: superblock.ring_tag,
        number: superblock.log.batch.0 + 1,
        durable: superblock.log.batch.0,
        prior: superblock.log.sum,
        after: superblock.lsn.0,
        last: superblock.lsn.0 + 1,
        inode_next: 18,
        inode_count: 3,
        len: 0,
        records: encoder.records(),
        flags: 0,
        reserved: [0; 12],
    };
    header.finish(&mut out, 0, 512);
    (out, parts)
}

fn batch_example() -> String {
    let (bytes, parts) = batch_records();
    let mut out = String::from("```text\n");
    fields_listing(&mut out, &bytes, 0, &LogHeader::fields(), "");
    let mut at = LogHeader::SIZE;
    for (end, name) in parts {
        listing(&mut out, &bytes[at..end], at, name);
        at = end;
    }
    assert!(bytes[at..].iter().all(|&byte| byte == 0));
    out + "```\n"
}

/// What a reader of the document would do: take the bytes of the example and decode them.
#[test]
fn the_bytes_in_the_document_decode() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    let text = std::fs::read_to_string(&path).expect("docs/FORMAT.md exists");
    let bytes_of = |name: &str, size: usize| {
        let start = text.find(&format!("<!-- {name} -->")).expect("the example is there");
        let mut bytes = vec![0; size];
        for line in text[start..].lines().skip(2).take_while(|line| *line != "```") {
            let at = usize::from_str_radix(&line[..4], 16).expect("an offset");
            let digits = line[6..].split_whitespace().next().expect("digits");
            for index in 0..digits.len() / 2 {
                let digits = &digits[2 * index..][..2];
                bytes[at + index] = u8::from_str_radix(digits, 16).expect("a byte");
            }
        }
        bytes
    };
    let block = bytes_of("example: superblock", 4096);
    let block = block.first_chunk().expect("it has 4,096 bytes");
    let superblock = Superblock::decode(block, SUPERBLOCK_SLOTS[0]).expect("it is valid");
    assert_eq!(superblock.label, "example");
    let node = bytes_of("example: leaf", 4096);
    let view = NodeView::open(&node, &expected(&superblock)).expect("it is valid");
    let key = Key::new(InodeNo::ROOT, ItemKind::Dentry, slot(superblock.hash_seed, b"hello"));
    let index = view.search(&key.raw()).expect("the name is found by its hash");
    let dentry = Dentry::decode(view.value(index)).expect("it is valid");
    assert_eq!((dentry.inode, dentry.name), (InodeNo(16), &b"hello"[..]));
    let frame = bytes_of("example: commit", 4096);
    let header = FrameHeader::decode(&frame).expect("it is valid");
    let at = superblock.journal.next;
    let payload = header.open(&frame, at, &superblock.ring_tag).expect("it is valid");
    let commit = Commit::decode(payload, Epoch(header.epoch), &superblock.geometry);
    let commit = commit.expect("it is valid");
    // Carried out on the leaf, it makes a valid node.
    let mut moved = node.clone();
    commit.nodes[0].apply(&mut moved);
    node::seal(&mut moved);
    let expected = Expected { pointer: commit.head.files(), ..expected(&superblock) };
    NodeView::open(&moved, &expected).expect("it is valid");
    let batch = bytes_of("example: batch", 512);
    let header = LogHeader::decode(&batch).expect("it is valid");
    let records = header.open(&batch, superblock.log.next, &superblock.ring_tag);
    let records = records.expect("it is valid");
    let records: Vec<_> =
        Decoder::new(records, header.records, &superblock.geometry, superblock.carried())
            .map(|record| record.expect("it is valid"))
            .collect();
    assert!(matches!(&records[0], Record::Inode(InodeNo(17), item) if item.size == 4));
    assert!(matches!(&records[1], Record::Put(key, value) if key.kind == ItemKind::Dentry
        && Dentry::decode(value).is_ok_and(|dentry| dentry.name == b"note")));
    let Record::Take(blocks, Content::Inside(patches)) = &records[4] else {
        panic!("{:?}", records[4])
    };
    let mut page = [0; 4096];
    patches[0].apply(&mut page);
    assert!(matches!(&records[3], Record::Put(key, value) if key.kind == ItemKind::Extent
        && Extent::decode(value).is_ok_and(|extent| extent.blocks == *blocks
            && extent.sums == [block_sum(&page)])));
}

/// Every rule in the document that names a finding must name one that exists; see the test of FSCK.md.
#[test]
fn every_record_has_a_table() {
    let text = parts().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
    for title in [
        Fields::TITLE,
        NodeHeader::TITLE,
        InodeItem::TITLE,
        DentryHead::TITLE,
        XattrHead::TITLE,
        ExtentHead::TITLE,
        RunFields::TITLE,
        GroupItem::TITLE,
        SharedItem::TITLE,
        HoldHead::TITLE,
        OriginItem::TITLE,
        TreeHead::TITLE,
        RootItem::TITLE,
        WalkItem::TITLE,
        LineageItem::TITLE,
        FrameHeader::TITLE,
        CommitHead::TITLE,
        NodeRecord::TITLE,
        DataExtent::TITLE,
        LogHeader::TITLE,
    ] {
        assert!(text.contains(title), "{title}");
    }
}
