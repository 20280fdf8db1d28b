//! The guard: which program has the volume open for writing, for devices that another machine may have attached too.
//!
//! It has a block of its own between the slots of the superblock, so no write of it, whole or torn, touches anything
//! that a volume consists of. One sector holds all of it. What is not valid counts as a guard that was never
//! written: older volumes have none, and a missing guard keeps no volume from being opened.

use holdfast_base::BLOCK_SIZE;
use uuid::Uuid;

use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::geometry::GUARD;

/// First bytes of a guard.
pub const MAGIC: [u8; 8] = *b"hfGuard\n";
/// Bytes of a guard that mean something; the rest of its block is written as zeros.
pub const GUARD_BYTES: usize = 512;
const SUM_AT: usize = 8;
const NAME_MAX: usize = 64;

record! {
    /// The guard's fields; the rest of its 512 bytes is zero.
    pub struct GuardFields("guard", 152 bytes) {
        /// `hfGuard\n`.
        magic: [u8; 8],
        /// Of these 512 bytes.
        sum: u64,
        /// 32.
        address: u64,
        /// The volume's.
        uuid: [u8; 16],
        /// Drawn for each opening.
        nonce: u64,
        /// Id of the machine's start.
        boot: [u8; 16],
        /// Sum over what identifies the machine, and the volume's id; 0: not known.
        machine: u64,
        /// Process number there.
        process: u32,
        /// 1: asks for the volume. 2: writes to it. 3: has left.
        state: u32,
        /// Seconds since 1970, of this write.
        time: u64,
        /// Name of the machine, for messages.
        name: [u8; 64],
    }
}

/// What the program that wrote a guard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardState {
    /// It asks whether another program has the volume, and has written nothing else.
    Asking,
    /// It writes to the volume.
    Open,
    /// It has left the volume in order, or made it.
    Closed,
}

/// A guard, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Id of the volume.
    pub uuid: Uuid,
    /// Drawn by chance for each opening.
    pub nonce: u64,
    /// Id that the machine drew when it was started.
    pub boot: [u8; 16],
    /// A sum over what tells the machine from others; 0 if not known.
    pub machine: u64,
    /// The program's process number there.
    pub process: u32,
    /// What the program does.
    pub state: GuardState,
    /// Seconds since 1970 when this was written.
    pub time: u64,
    /// Name of the machine; printable, at most 64 bytes.
    pub name: String,
}

impl Guard {
    /// The block on disk.
    pub fn encode(&self) -> Box<[u8; BLOCK_SIZE]> {
        let mut name = [0; NAME_MAX];
        let len = self.name.floor_char_boundary(NAME_MAX);
        name[..len].copy_from_slice(&self.name.as_bytes()[..len]);
        let fields = GuardFields {
            magic: MAGIC,
            sum: 0,
            address: GUARD.0,
            uuid: *self.uuid.as_bytes(),
            nonce: self.nonce,
            boot: self.boot,
            machine: self.machine,
            process: self.process,
            state: match self.state {
                GuardState::Asking => 1,
                GuardState::Open => 2,
                GuardState::Closed => 3,
            },
            time: self.time,
            name,
        };
        let mut block = Box::new([0; BLOCK_SIZE]);
        block[..GuardFields::SIZE].copy_from_slice(&fields.bytes());
        let sum = crc64_with_hole(&block[..GUARD_BYTES], SUM_AT);
        block[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Reads and judges a block, of which only the first 512 bytes count.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Result<Guard, Malformed> {
        let sector = &block[..GUARD_BYTES];
        let mut reader = Reader::new(GuardFields::TITLE, sector);
        let fields = GuardFields::read(&mut reader)?;
        if fields.magic != MAGIC {
            return GuardFields::fail("the magic is missing");
        }
        if crc64_with_hole(sector, SUM_AT) != fields.sum {
            return GuardFields::fail("its checksum does not match");
        }
        if fields.address != GUARD.0 || reader.rest().iter().any(|&byte| byte != 0) {
            return GuardFields::fail("it is not at its place, or reserved bytes are set");
        }
        let state = match fields.state {
            1 => GuardState::Asking,
            2 => GuardState::Open,
            3 => GuardState::Closed,
            _ => return GuardFields::fail("its state is unknown"),
        };
        let end = fields.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_MAX);
        // It goes to terminals.
        let printable = |&byte: &u8| if byte.is_ascii_graphic() { byte.into() } else { '?' };
        Ok(Guard {
            uuid: Uuid::from_bytes(fields.uuid),
            nonce: fields.nonce,
            boot: fields.boot,
            machine: fields.machine,
            process: fields.process,
            state,
            time: fields.time,
            name: fields.name[..end].iter().map(printable).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_comes_back_and_any_changed_byte_is_seen() {
        let guard = Guard {
            uuid: Uuid::from_u128(7),
            nonce: 8,
            boot: [9; 16],
            machine: 10,
            process: 11,
            state: GuardState::Open,
            time: 12,
            name: "there".into(),
        };
        let block = guard.encode();
        assert_eq!(Guard::decode(&block).unwrap(), guard);
        for at in 0..GUARD_BYTES {
            let mut other = block.clone();
            other[at] ^= 1;
            Guard::decode(&other).expect_err("it was changed");
        }
        let mut torn = block;
        torn[GUARD_BYTES..].fill(7);
        assert_eq!(Guard::decode(&torn).unwrap(), guard, "one sector holds it");
    }

    #[test]
    fn a_name_from_the_disk_says_nothing_to_a_terminal() {
        let bad = Guard {
            uuid: Uuid::from_u128(7),
            nonce: 8,
            boot: [9; 16],
            machine: 0,
            process: 0,
            state: GuardState::Closed,
            time: 0,
            name: "a\u{1b}[31m".into(),
        };
        assert_eq!(Guard::decode(&bad.encode()).unwrap().name, "a?[31m");
    }
}
