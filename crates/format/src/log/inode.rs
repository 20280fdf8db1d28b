//! An inode inside a batch: the numbers of its item, each as short as it is.
//!
//! Times are stored as their distance from the time before them, in the order
//! birth, access, content, change; most are equal to it.

use holdfast_base::{InodeNo, Timestamp};

use super::varint;
use crate::Malformed;
use crate::codec::{Fixed, Reader};
use crate::item::InodeItem;

const WHAT: &str = "inode of a log batch";

/// Bit of the mask of times: the slot of a name follows them.
const HAS_SLOT: u8 = 1 << 4;

/// Appends `item`. `time` is the last time in the batch so far, and becomes this inode's change time.
pub(super) fn write(item: &InodeItem, time: &mut Timestamp, out: &mut Vec<u8>) {
    let numbers = [
        item.mode.into(),
        item.uid.into(),
        item.gid.into(),
        item.nlink.into(),
        item.size,
        item.blocks,
        item.rdev,
        item.parent.0,
        item.flags.into(),
        item.xattr_value_next.into(),
        item.change,
        item.project.into(),
    ];
    for number in numbers {
        varint::write(number, out);
    }
    let times = [item.btime, item.atime, item.mtime, item.ctime];
    let mask_at = out.len();
    out.push(0);
    for (bit, next) in times.into_iter().enumerate() {
        if next != *time {
            out[mask_at] |= 1 << bit;
            varint::write(varint::zigzag(next.secs.wrapping_sub(time.secs)), out);
            next.nanos.write(out);
            *time = next;
        }
    }
    if item.parent_slot != 0 {
        out[mask_at] |= HAS_SLOT;
        item.parent_slot.write(out);
    }
}

/// Takes an inode from the front of `reader`, and judges it as an item of a tree is judged.
pub(super) fn read(reader: &mut Reader<'_>, time: &mut Timestamp) -> Result<InodeItem, Malformed> {
    let mut number = || varint::read(reader, WHAT);
    let (mode, uid, gid, nlink) = (number()?, number()?, number()?, number()?);
    let (size, blocks, rdev, parent) = (number()?, number()?, number()?, number()?);
    let (flags, xattr_value_next, change, project) = (number()?, number()?, number()?, number()?);
    let [mask] = reader.array()?;
    if mask > 0x1f {
        return Err(Malformed::new(WHAT, "it has more than four times and a slot"));
    }
    let mut times = [Timestamp::default(); 4];
    for (bit, slot) in times.iter_mut().enumerate() {
        if mask & 1 << bit != 0 {
            let secs = varint::unzigzag(varint::read(reader, WHAT)?);
            *time = Timestamp { secs: time.secs.wrapping_add(secs), nanos: u32::read(reader)? };
        }
        *slot = *time;
    }
    let [btime, atime, mtime, ctime] = times;
    let parent_slot = match mask & HAS_SLOT {
        0 => 0,
        _ => match u64::read(reader)? {
            0 => return Err(Malformed::new(WHAT, "a slot of 0 is said by its bit")),
            slot => slot,
        },
    };
    let short = |number: u64| {
        u32::try_from(number).map_err(|_| Malformed::new(WHAT, format!("{number} is too large")))
    };
    let item = InodeItem {
        mode: short(mode)?,
        uid: short(uid)?,
        gid: short(gid)?,
        nlink: short(nlink)?,
        size,
        blocks,
        rdev,
        parent: InodeNo(parent),
        parent_slot,
        atime,
        mtime,
        ctime,
        btime,
        flags: short(flags)?,
        xattr_value_next: short(xattr_value_next)?,
        change,
        project: short(project)?,
        reserved: [0; 4],
    };
    // One rule for inodes, wherever they come from.
    InodeItem::decode(&item.bytes())
}
