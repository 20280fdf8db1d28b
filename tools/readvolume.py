#!/usr/bin/env python3
"""A second reader of Holdfast volumes, written from docs/FORMAT.md alone.

It shares no code with the filesystem, so what both read from the same bytes is what the
document says. It never writes to the image: the journal and the log are replayed in memory.
All items of a files tree are held in memory at once, so it wants some RAM for large volumes.

    readvolume.py IMG info           what the volume is, and what is replayed
    readvolume.py IMG list           one line for each name, sorted
    readvolume.py IMG cat PATH       the content of a file; symbolic links are not followed
    readvolume.py IMG extract DIR    all files into a directory that is empty or not there
    readvolume.py IMG check          everything that can be held against the document
    readvolume.py --list-trees IMG   one line for each branch and snapshot

All but check are of the branch main, or with --tree BRANCH or --tree BRANCH@SNAPSHOT of that one;
check looks at all of them.

A line of `list`: type, mode, uid, gid, size, mtime in ns, nlink, rdev, CRC-64 of the content,
CRC-64 of the extended attributes, path. Bytes of a path that are not printable are %XX.
What is damaged is said on standard error, one line each, and never shown; the exit status is 1.
Numbers in brackets are findings of docs/FSCK.md.
"""

import argparse
import bisect
import functools
import os
import re
import stat
import struct
import sys
from collections import Counter, namedtuple
from types import SimpleNamespace

BLOCK = 4096
SECTOR = 512
GROUP = 32768
SIGNPOST = 264
# The ro_compat features of what stands twice.
NODE_COPIES = 1
RING_COPIES = 2
LEAF_COPIES = 8
# The ro_compat feature of blocks with several references.
SHARED_BLOCKS = 4
COUNTER_LIMIT = 1 << 62
FILE_LIMIT = 9223372036854771712
FRAME_LIMIT = 1 << 20
COMMIT_LIMIT = 1 << 28
JOURNAL_LIMIT = 1 << 31
BATCH_LIMIT = 4 << 20
# Places that are looked at for what lies before a mark.
LOOKS = 4
LOG_LIMIT = 1 << 28
NAMED_BLOCKS_LIMIT = 1024
LEVELS = 16
# Limits of this reader, not of the format: what a hostile image may cost.
PATCHED_LIMIT = 1 << 30
PATH_LIMIT = 1 << 16
FINDINGS_LIMIT = 1000

INODE, INLINE, DENTRY, XATTR, PIECE, EXTENT, ORPHAN, PUNCH = range(1, 9)
BITS_PER_ITEM = 4096
GROUP_ITEM, BITMAP_ITEM, SETTING_ITEM = 16, 17, 18
NEXT_ITEM, NAME_ITEM, WALK_ITEM, TREE_ITEM, ROOT_ITEM, CHILD_ITEM, HOLD_ITEM, ORIGIN_ITEM = range(19, 27)
OF_LINEAGE = set(range(NEXT_ITEM, ORIGIN_ITEM + 1))
SHARED_ITEM = 27
FILES, SPACE = 1, 2
KNOWN_KINDS = {FILES: set(range(INODE, PUNCH + 1)), SPACE: {GROUP_ITEM, BITMAP_ITEM, SETTING_ITEM, SHARED_ITEM} | OF_LINEAGE}
# The inode of keys of branches and snapshots; behind it come their numbers.
LINEAGE = 1 << 62
NO_NAME = re.compile(rb"[/@:\x00-\x1f\x7f]|\xc2[\x80-\x9f]")
MAIN = 1
BRANCH, SNAPSHOT, GOING = 1, 2, 3
SMALLEST_KEY = (0, INODE, 0)
TYPES = {1: "p", 2: "c", 4: "d", 6: "b", 8: "f", 10: "l", 12: "s"}
CHARACTER, DIRECTORY, DEVICE, REGULAR, SYMLINK = 2, 4, 6, 8, 10


class Damage(Exception):
    """The volume is not as the document says."""


class Refused(Exception):
    """The volume asks for what this reader does not know."""

    def __init__(self, words, epoch=-1):
        super().__init__(words)
        self.epoch = epoch


class Findings:
    """What is wrong, said at once, one line each."""

    def __init__(self):
        self.count = 0

    def add(self, text):
        """Says it, unless too much was said before."""
        self.count += 1
        if self.count <= FINDINGS_LIMIT:
            print(f"readvolume: {text}", file=sys.stderr)


# Checksums: CRC-64/NVME, two bytes of a word at a time.

MASK = (1 << 64) - 1
POLYNOMIAL = 0x9A6C9329AC4BC9B5  # ad93d23594c93659 with its bits reversed


def byte_tables():
    """For each byte of a word what it adds to the sum; the first table is of the last byte."""
    first = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        first.append(value)
    tables = [first]
    for _ in range(7):
        tables.append([first[value & 255] ^ value >> 8 for value in tables[-1]])
    return tables


BYTES = byte_tables()
PAIRS = [[high ^ low for high in BYTES[6 - 2 * at] for low in BYTES[7 - 2 * at]] for at in range(4)]


def crc64(data):
    """The sum of some bytes."""
    first, second, third, fourth = PAIRS
    words = len(data) // 8
    crc = MASK
    for word in struct.unpack_from(f"<{words}Q", data):
        crc ^= word
        crc = first[crc & 65535] ^ second[crc >> 16 & 65535] ^ third[crc >> 32 & 65535] ^ fourth[crc >> 48]
    for byte in data[words * 8 :]:
        crc = BYTES[0][(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ MASK


def crc64_without(data, at):
    """The sum of a structure that holds its own sum at `at`."""
    return crc64(data[:at] + bytes(8) + data[at + 8 :])


def is_by_one_byte(bits, size):
    """Whether a sum of so many bytes differs by these bits because one of them has changed."""
    left = {value >> 56: byte for byte, value in enumerate(BYTES[0])}
    for _ in range(size if bits else 0):
        byte = left[bits >> 56]
        if BYTES[0][byte] == bits:
            return True
        bits = (bits ^ BYTES[0][byte]) << 8 & MASK | byte
    return False


class Named:
    """What a frame or a batch was whose sum a mark has, at its place."""

    def __init__(self, layout, magic, at, volume, wanted):
        self.layout, self.wanted = layout, wanted
        self.fields = ((0, magic), (16, at.to_bytes(8, "little")), (24, volume))
        self.length_at = {FRAME: 72, BATCH: 88}[layout]

    def may_be(self, head, size):
        """Whether it may begin so and take so many bytes: whole, or but for one byte."""
        right = sum(head[at : at + len(field)] == field for at, field in self.fields)
        fits = 0 <= size - self.layout.size - u32(head, self.length_at) < BLOCK
        return right >= 2 if u64(head, 8) == self.wanted else right == 3 and fits

    def is_there(self, data):
        """Whether these bytes are it, whole or but for one byte."""
        has_sum, told = u64(data, 8) == self.wanted, u32(data, self.length_at)
        others = [told ^ bits << shift for shift in (0, 8, 16, 24) for bits in range(1, 256)] if has_sum else []
        for length in [told] + others:
            end = self.layout.size + length
            if not 0 <= len(data) - end < BLOCK:
                continue
            was = data[: self.length_at] + struct.pack("<I", length) + data[self.length_at + 4 : end]
            bits = crc64_without(was, 8) ^ self.wanted
            # No sum covers itself.
            if not bits or has_sum and length == told and is_by_one_byte(bits, end):
                return True
        return False


def advance(matrix, crc):
    """What becomes of a sum when the zeros of `matrix` follow."""
    result = 0
    for column in matrix:
        if crc & 1:
            result ^= column
        crc >>= 1
    return result


@functools.cache
def zeros(bit):
    """For 1 << bit zero bytes: how they move the sum of what is before them, and their own sum."""
    if bit == 0:
        return [BYTES[0][1 << bit & 255] ^ 1 << bit >> 8 for bit in range(64)], crc64(b"\0")
    matrix, own = zeros(bit - 1)
    return [advance(matrix, column) for column in matrix], own ^ advance(matrix, own)


ZERO_BLOCK = bytes(BLOCK)
ZERO_BLOCK_SUM = crc64(ZERO_BLOCK)


def join(before, behind, length):
    """The sum of two pieces from theirs; the second one has `length` bytes."""
    for bit in range(length.bit_length()):
        if length >> bit & 1:
            before = advance(zeros(bit)[0], before)
    return before ^ behind


def zeros_sum(length):
    """The sum of so many zeros."""
    result = 0
    for bit in range(length.bit_length()):
        if length >> bit & 1:
            result = join(result, zeros(bit)[1], 1 << bit)
    return result


def block_sum(data):
    """The sum of a block; most blocks of some files are zeros."""
    return ZERO_BLOCK_SUM if data == ZERO_BLOCK else crc64(data)


# The hash of names: XXH3 with 64 bits and a seed, for 1 to 255 bytes.

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb17"
    "0ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
WORD_1, WORD_2, WORD_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
LONG_1, LONG_2, LONG_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
LONG_4, LONG_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def u32(data, at):
    """A number of 4 bytes."""
    return int.from_bytes(data[at : at + 4], "little")


def u64(data, at):
    """A number of 8 bytes."""
    return int.from_bytes(data[at : at + 8], "little")


def fold(left, right):
    """Both halves of the product of two words."""
    product = left * right
    return (product ^ product >> 64) & MASK


def mix(data, at, secret, secret_at, seed):
    """16 bytes of a name with 16 of the secret."""
    low = u64(data, at) ^ u64(secret, secret_at) + seed & MASK
    high = u64(data, at + 8) ^ u64(secret, secret_at + 8) - seed & MASK
    return fold(low, high)


def xxh3_end(value):
    """The last step for names of 9 bytes and more."""
    value &= MASK
    value = (value ^ value >> 37) * 0x165667919E3779F9 & MASK
    return value ^ value >> 32


def xxh3_short(name, seed):
    """For 1 to 16 bytes."""
    size = len(name)
    if size < 4:
        value = name[0] << 16 | name[size >> 1] << 24 | name[-1] | size << 8
        value ^= (u32(SECRET, 0) ^ u32(SECRET, 4)) + seed & MASK
        value = (value ^ value >> 33) * LONG_2 & MASK
        value = (value ^ value >> 29) * LONG_3 & MASK
        return value ^ value >> 32
    if size < 9:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        value = u32(name, size - 4) + (u32(name, 0) << 32)
        value ^= (u64(SECRET, 8) ^ u64(SECRET, 16)) - seed & MASK
        value ^= (value << 49 | value >> 15) & MASK ^ (value << 24 | value >> 40) & MASK
        value = value * 0x9FB21C651E98DF25 & MASK
        value = (value ^ (value >> 35) + size) * 0x9FB21C651E98DF25 & MASK
        return value ^ value >> 28
    low = u64(name, 0) ^ (u64(SECRET, 24) ^ u64(SECRET, 32)) + seed & MASK
    high = u64(name, size - 8) ^ (u64(SECRET, 40) ^ u64(SECRET, 48)) - seed & MASK
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return xxh3_end(size + swapped + high + fold(low, high))


def xxh3_middle(name, seed):
    """For 17 to 240 bytes."""
    size = len(name)
    value = size * LONG_1
    if size <= 128:
        for at in range((size - 1) // 32 + 1):
            value += mix(name, 16 * at, SECRET, 32 * at, seed)
            value += mix(name, size - 16 * (at + 1), SECRET, 32 * at + 16, seed)
        return xxh3_end(value)
    for at in range(8):
        value += mix(name, 16 * at, SECRET, 16 * at, seed)
    value = xxh3_end(value)
    for at in range(8, size // 16):
        value += mix(name, 16 * at, SECRET, 16 * at - 125, seed)
    return xxh3_end(value + mix(name, size - 16, SECRET, 119, seed))


def xxh3_long(name, seed):
    """For 241 to 255 bytes: less than one block of stripes."""
    secret = b"".join(
        ((u64(SECRET, at) + (seed if at % 16 == 0 else -seed)) & MASK).to_bytes(8, "little")
        for at in range(0, 192, 8)
    )
    sums = [WORD_3, LONG_1, LONG_2, LONG_3, LONG_4, WORD_2, LONG_5, WORD_1]
    stripes = [(64 * at, 8 * at) for at in range((len(name) - 1) // 64)]
    for at, secret_at in stripes + [(len(name) - 64, 192 - 64 - 7)]:
        for lane in range(8):
            value = u64(name, at + 8 * lane)
            key = value ^ u64(secret, secret_at + 8 * lane)
            sums[lane ^ 1] = sums[lane ^ 1] + value & MASK
            sums[lane] = sums[lane] + (key & 0xFFFFFFFF) * (key >> 32) & MASK
    value = len(name) * LONG_1
    for at in range(4):
        left = sums[2 * at] ^ u64(secret, 11 + 16 * at)
        value += fold(left, sums[2 * at + 1] ^ u64(secret, 19 + 16 * at))
    return xxh3_end(value)


def name_hash(name, seed):
    """The 55 bits under which a name is found."""
    hashed = (xxh3_short if len(name) < 17 else xxh3_middle if len(name) < 241 else xxh3_long)(name, seed)
    return max(hashed >> 9, 1)


# Structures.


class Layout:
    """The fields of a structure: names with types of the struct module."""

    def __init__(self, fields):
        pairs = [field.split(":") for field in fields.split()]
        self.names = [name for name, _ in pairs]
        self.struct = struct.Struct("<" + "".join(kind for _, kind in pairs))
        self.size = self.struct.size

    def at(self, data, offset=0):
        """The fields at a place; there must be room for them."""
        if offset + self.size > len(data):
            raise Damage("a structure is cut short")
        return SimpleNamespace(**dict(zip(self.names, self.struct.unpack_from(data, offset))))


SUPERBLOCK = Layout(
    "magic:16s sum:Q address:Q epoch:Q version:I node_size:I compat:Q ro_compat:Q incompat:Q uuid:16s label:64s "
    "volume_blocks:Q log_blocks:Q journal_blocks:Q hash_seed:Q files_block:Q files_epoch:Q space_block:Q "
    "space_epoch:Q files_level:B space_level:B pad:6s lsn:Q inode_next:Q inode_count:Q used_blocks:Q "
    "referenced:Q journal_commit:Q journal_next:Q journal_sum:Q log_batch:Q log_next:Q log_sum:Q ring_tag:8s node_tag:8s "
    "created:q created_ns:I sums:B fault:B pad2:2s fault_time:q fault_ns:I pad3:4s fault_reason:160s writer:32s "
    "branches:Q set_aside:112s copy_mask:Q ring_distance:Q log_start:Q journal_start:Q data_start:Q zeros:56s"
)
SIGNPOST_LAYOUT = Layout("magic:8s sum:Q address:Q volume:8s volume_blocks:Q other_blocks:Q")
NODE = Layout(
    "magic:4s level:B tree:B count:H sum:Q address:Q epoch:Q volume:8s heap_start:I garbage:I reserved:16s"
)
KEY = struct.Struct("<QQ4sB3s")
INODE_ITEM = Layout(
    "mode:I uid:I gid:I nlink:I size:Q blocks:Q rdev:Q parent:Q parent_slot:Q atime:q atime_ns:I mtime:q mtime_ns:I "
    "ctime:q ctime_ns:I btime:q btime_ns:I flags:I value_next:I change:Q project:I reserved:4s"
)
DENTRY_ITEM = Layout("inode:Q type:B length:B")
XATTR_ITEM = Layout("length:B place:B value_len:I value_id:I")
EXTENT_ITEM = Layout("block:Q birth:Q count:I state:B codec:B place:B reserved:B")
PUNCH_ITEM = Layout("first:Q end:Q state:I reserved:4s")
TREE_LAYOUT = Layout(
    "parent:Q branch:Q epoch:Q lsn:Q created:q created_ns:I kind:B level:B length:B pad:B root_block:Q "
    "root_epoch:Q inode_count:Q referenced:Q limit:Q reserved:8s"
)
HOLD_LAYOUT = Layout("created:q created_ns:I length:B reserved:3s")
ORIGIN_LAYOUT = Layout("volume:16s number:Q lsn:Q created:q created_ns:I reserved:4s")
ROOT_LAYOUT = Layout("block:Q epoch:Q inode_count:Q referenced:Q level:B reserved:7s")
WALK_LAYOUT = Layout("inode:Q offset:Q zeros:4s kind:B more:3s level:B reserved:7s")
FRAME = Layout(
    "magic:4s kind:I sum:Q address:Q volume:8s epoch:Q commit:Q durable:Q prior:Q index:I frames:I len:I pad:I "
    "reserved:16s"
)
HEAD = Layout(
    "lsn:Q inode_next:Q inode_count:Q used_blocks:Q referenced:Q files_block:Q files_epoch:Q space_block:Q "
    "space_epoch:Q files_level:B space_level:B pad:6s nodes:I cancels:I extents:I pad2:I log_batch:Q log_next:Q log_sum:Q"
)
NODE_RECORD = Layout("block:Q kind:B pad:B ranges:H len:I")
DATA_EXTENT = Layout("block:Q count:Q sum:Q")
BATCH = Layout(
    "magic:4s bytes:I sum:Q address:Q volume:8s number:Q durable:Q prior:Q after:Q last:Q inode_next:Q "
    "inode_count:Q len:I records:I flags:I reserved:12s"
)


def need(condition, text):
    """What the document demands."""
    if not condition:
        raise Damage(text)


def padded_text(data):
    """UTF-8 that is padded with zeros."""
    text = data.rstrip(b"\0")
    need(b"\0" not in text, "a text is not padded with zeros")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise Damage("a text is not UTF-8") from None


class Image:
    """The file or device with the volume, opened for reading."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        self.blocks = os.lseek(self.file, 0, os.SEEK_END) // BLOCK

    def read(self, block, count=1):
        """Some blocks, all of them."""
        data, start, size = b"", block * BLOCK, count * BLOCK
        need(block + count <= self.blocks, f"block {block + count - 1} lies behind the end of the device")
        while len(data) < size:
            try:
                part = os.pread(self.file, size - len(data), start + len(data))
            except OSError as error:
                raise Damage(f"block {block} cannot be read: {error.strerror}") from None
            need(part, f"block {block} cannot be read: the device ends")
            data += part
        return data


# Superblocks and zones.


class Geometry:
    """Where the zones are."""

    def __init__(self, superblock):
        self.node_size = superblock.node_size
        self.node_blocks = self.node_size // BLOCK
        self.copy_mask = superblock.copy_mask
        self.leaf_copies = bool(superblock.ro_compat & LEAF_COPIES)
        self.value_limit = 1024 if self.node_size == BLOCK else 4096
        self.log = superblock.log_start
        self.log_bytes = superblock.log_blocks * BLOCK
        self.log_end = self.log + superblock.log_blocks
        self.journal = superblock.journal_start
        self.journal_end = self.journal + superblock.journal_blocks
        # How far from its first place each place is at which a block of a ring stands.
        self.ring_places = (0, superblock.ring_distance) if superblock.ring_distance else (0,)
        self.data = superblock.data_start
        self.far = far_copy(superblock.volume_blocks)

    def is_data(self, block, count=1):
        """Whether blocks lie in the data zone of device 0."""
        return count >= 1 and self.data <= block and block + count <= self.far

    def is_node(self, block, tree=FILES, level=0):
        """Whether such a node can be there; as a leaf of a files tree lies anywhere, any node."""
        places = self.places(block, tree, level)
        in_zone = all(self.is_data(at, self.node_blocks) for at in places)
        return block % self.node_blocks == 0 and places == sorted(places) and in_zone

    def places(self, block, tree, level):
        """Where the node at a block is, and where its copy is, if such a node has one."""
        is_twice = self.copy_mask and (self.leaf_copies or level > 0 or tree == SPACE)
        return [block, block ^ self.copy_mask] if is_twice else [block]


def far_copy(volume_blocks):
    """The first of the last 16 blocks, counting whole 16 only."""
    return volume_blocks // 16 * 16 - 16


def find_far_copy(image):
    """The newest far copy where the signpost says; without one where a volume as large as the device has it."""
    data = image.read(SIGNPOST)
    sign = SIGNPOST_LAYOUT.at(data)
    valid = (sign.magic, sign.sum, sign.address) == (b"hfSigns\n", crc64_without(data, 8), SIGNPOST)
    valid = valid and not any(data[SIGNPOST_LAYOUT.size :])
    sizes = {sign.volume_blocks, sign.other_blocks} if valid else {image.blocks}
    found, wrong = [], []
    for size in sizes:
        try:
            need(far_copy(size) < image.blocks, "the device ends before it")
            block = read_superblock(image, far_copy(size), far=True)
            need(not valid or block.node_tag == sign.volume and block.volume_blocks in sizes, "the signpost does not lead to it")
            found.append(block)
        except Damage as error:
            wrong.append(f"block {far_copy(size)}: {error}")
    need(found, f"no far copy is valid ({'; '.join(wrong)}) [102]")
    return max(found, key=lambda block: block.epoch)


def check_zones(superblock):
    """The rules of the zones."""
    need(superblock.node_size in (4096, 16384, 65536), "the node size is none")
    need(8388608 <= superblock.volume_blocks * BLOCK < 1 << 63, "the size of the volume is none")
    need(superblock.log_blocks >= 64 and superblock.journal_blocks >= 64, "a ring is too small")
    need(superblock.copy_mask % 64 == 0 and superblock.copy_mask < GROUP, "no copy can be so far away")
    geometry = Geometry(superblock)
    node = geometry.node_blocks
    first = -(-geometry.data // node) * node
    start, end = min(geometry.log, geometry.journal), max(geometry.log_end, geometry.journal_end)
    distance = superblock.ring_distance
    need(geometry.log_end <= geometry.journal or geometry.journal_end <= geometry.log, "one ring lies in the other")
    need(distance in (0, max(end - start, distance)), "the places of the rings overlap")
    need(272 <= start and end + distance <= geometry.data and geometry.data % 16 == 0, "the rings are not where they can be")
    need(first + 2 * node <= geometry.far, "the zones have no room")
    return geometry


def check_state(state, geometry, epoch):
    """What superblocks and heads of commits have in common."""
    roots = (state.files_block, FILES, state.files_level), (state.space_block, SPACE, state.space_level)
    for root, tree, level in roots:
        need(geometry.is_node(root, tree, level), f"no root of a tree can be at block {root}")
    need(state.files_block != state.space_block, "both trees have the same root")
    need(max(state.files_epoch, state.space_epoch) <= epoch, "a root is too young")
    need(max(state.files_level, state.space_level) < LEVELS, "a tree is too high")
    need(state.used_blocks <= geometry.far - geometry.data, "more blocks are used than there are")
    need(state.inode_next >= 16, "inode_next is below 16")
    counters = (state.lsn, state.inode_next, state.inode_count, state.referenced, state.log_batch)
    need(max(counters) <= COUNTER_LIMIT, "a counter is out of range")
    need(state.log_next % SECTOR == 0 and state.log_next < geometry.log_bytes, "log_next is not in the log ring")


def read_superblock(image, address, far=False):
    """The superblock at a place, which must be valid."""
    data = image.read(address)
    block = SUPERBLOCK.at(data)
    need(block.magic == b"holdfast volume\n", "no superblock is there")
    need(block.sum == crc64_without(data, 16), "its sum does not match")
    if block.version != 5:
        epoch = 1 << 64 if block.version > 5 else -1
        raise Refused(f"version {block.version} of the format; this reader knows 5", epoch)
    if block.incompat:
        words = f"the volume has features that this reader does not know: {block.incompat:#x}"
        raise Refused(words, block.epoch if block.address == address else -1)
    need(block.address == address, "it belongs elsewhere")
    block.geometry = geometry = check_zones(block)
    check_state(block, geometry, block.epoch)
    need(max(block.epoch, block.journal_commit) <= COUNTER_LIMIT, "a counter is out of range")
    need(far or address == 16 + block.epoch % 2 * 32, "its epoch belongs to the other slot")
    need(geometry.journal <= block.journal_next < geometry.journal_end, "journal_next is not in the journal ring")
    block.label, block.writer = padded_text(block.label), padded_text(block.writer)
    block.fault_reason = padded_text(block.fault_reason)
    need(block.sums == 0 and block.branches == 1, "sums or branches are of another kind")
    need(max(block.created_ns, block.fault_ns) < 10**9, "a time is none")
    clean = not (block.fault_time or block.fault_ns or block.fault_reason)
    need(block.fault == 1 or block.fault == 0 and clean, "the fault is neither there nor not")
    need(not any(block.pad + block.pad2 + block.pad3 + block.set_aside + block.zeros), "reserved bytes are not zero")
    need((block.copy_mask != 0) == (block.ro_compat & NODE_COPIES != 0), "copies of nodes are there and are not")
    need(block.copy_mask or not block.ro_compat & LEAF_COPIES, "leaves have copies, and nothing says where")
    need((block.ring_distance != 0) == (block.ro_compat & RING_COPIES != 0), "rings stand twice and do not")
    block.unknown_ro_compat = block.ro_compat & ~(NODE_COPIES | RING_COPIES | LEAF_COPIES | SHARED_BLOCKS)
    extra = block.compat or block.unknown_ro_compat
    need(extra or not any(data[SUPERBLOCK.size :]), "bytes behind the fields are not zero")
    return block


def choose_superblock(image, findings):
    """The newer of the two valid superblocks."""
    valid, invalid, refused = [], [], []
    for address in (16, 48):
        try:
            valid.append(read_superblock(image, address))
        except Damage as error:
            invalid.append(f"block {address}: {error}")
        except Refused as error:
            refused.append(error)
    # One that this reader is too old for is obeyed, unless a newer one is valid.
    newest = max((block.epoch for block in valid), default=-2)
    for error in refused:
        if not valid or error.epoch > newest:
            raise error
    if not valid:
        raise Damage(f"no superblock is valid ({'; '.join(invalid)}); perhaps the far copy is: --far [102]")
    if len(valid) == 2:
        older, newer = sorted(valid, key=lambda block: block.epoch)
        same = ("node_size log_start journal_start data_start copy_mask ring_distance hash_seed ring_tag node_tag created created_ns").split()
        if any(getattr(older, name) != getattr(newer, name) for name in same):
            findings.add("the two superblocks are not of the same volume [103]")
        if older.lsn > newer.lsn or older.inode_next > newer.inode_next:
            findings.add("a counter goes backwards between the superblocks [103]")
    return max(valid, key=lambda block: block.epoch)


# Nodes and trees.


class Nodes:
    """Tree nodes: those that the journal made, and behind them those of the device."""

    def __init__(self, image, superblock):
        self.image = image
        self.geometry = superblock.geometry
        self.tag = superblock.node_tag
        self.made = {}
        # Where files trees have each node: level and range.
        self.places = {}
        self.kinds = {tree: set(kinds) for tree, kinds in KNOWN_KINDS.items()}
        if superblock.compat:
            self.kinds[FILES] |= set(range(64, 96))
            self.kinds[SPACE] |= set(range(128, 160))
        if superblock.unknown_ro_compat:
            self.kinds[FILES] |= set(range(96, 128))
            self.kinds[SPACE] |= set(range(160, 192))

    def load(self, block, named=None):
        """Bytes, header and records of the node at a block, which must be valid [202], and what its parent names by epoch,
        tree and level. It may be bad in one of its places [211]."""
        data = self.made.get(block)
        # Of which tree and level it is may be said by the node alone.
        of = named[1:] if named else (SPACE, 0) if self.geometry.is_node(block, SPACE) else (FILES, 0)
        places, first = [block] if data else self.geometry.places(block, *of), None
        for place in places:
            try:
                if place not in self.made:
                    data = self.image.read(place, self.geometry.node_blocks)
                    need(data[:4] == b"hfNd", "its magic is not there")
                    need(u64(data, 8) == crc64_without(data, 8), "its sum does not match")
                head, records = self.parse(data, block)
                need(named in (None, (head.epoch, head.tree, head.level)), "not what its parent names")
                return data, head, records
            except Damage as error:
                first = first or error
        raise Damage(f"node at block {block}: {first} [202]") from None

    def parse(self, data, block):
        """Header and records of a node; its sum is right or will be made."""
        head = NODE.at(data)
        need(head.magic == b"hfNd", "its magic is not there")
        need(head.address == block, f"it belongs to block {head.address}")
        need(head.volume == self.tag, "it is of another volume")
        need(head.tree in (FILES, SPACE) and head.level < LEVELS, "its tree or level is none")
        need(not any(head.reserved), "reserved bytes are not zero")
        need(64 + 4 * head.count <= head.heap_start <= len(data), "its slots reach into the heap")
        need(head.level == 0 or head.count, "it has no child")
        slots = struct.unpack_from(f"<{2 * head.count}H", data, 64)
        places = list(zip(slots[::2], slots[1::2]))
        end, used = head.heap_start, head.garbage
        for start, length in sorted(places):
            need(start >= end and start + length <= len(data), "a record overlaps or leaves the heap")
            end, used = start + length, used + length
        need(used == len(data) - head.heap_start, "records and garbage do not fill the heap")
        return head, self.records(data, head, places)

    def records(self, data, head, places):
        """Keys and values, in order."""
        records = []
        last = (-1,)
        for start, length in places:
            need(length >= KEY.size, "a record has no key")
            inode, offset, reserved, kind, padding = KEY.unpack_from(data, start)
            key = (inode, kind, offset)
            value = bytes(data[start + KEY.size : start + length])
            need(not any(reserved + padding), "a key has bytes that are not zero")
            need(key > last, "its keys do not ascend")
            need(any(kind in kinds for kinds in self.kinds.values()), f"kind {kind} is not known")
            limit = self.geometry.value_limit
            need(len(value) == 16 if head.level else len(value) <= limit, "a value has a wrong length")
            last = key
            records.append((key, value))
        return records

    def walk(self, tree, root, findings, reached, lost, cursor=None):
        """Items of a tree; what is damaged is said and passed over, and its range is lost. `reached` gets the places of its
        nodes. Of a tree that is being deleted only what lies at or behind the cursor."""
        stack = [(*root, SMALLEST_KEY, (1 << 64,))]
        while stack:
            block, epoch, level, lower, upper = stack.pop()
            if cursor and node_place(upper, level) < cursor:
                continue
            try:
                need(self.geometry.is_node(block, tree, level), f"no node can be at block {block} [203]")
                need(block not in reached, f"node at block {block} is reached twice [204]")
                _, _, records = self.load(block, (epoch, tree, level))
                reached[block] = (tree, level)
                here = (tree, level, lower, upper)
                need(self.places.setdefault(block, here) == here, f"node at block {block}: another range elsewhere [208]")
                keys = [key for key, _ in records]
                need(not keys or lower <= keys[0] and keys[-1] < upper, f"node at block {block}: keys out of bounds [206]")
                if level == 0:
                    wrong = [key for key in keys if key[1] not in self.kinds[tree]]
                    need(not wrong, f"node at block {block}: an item of the other tree [207]")
                    young = [key for key, value in records if key[1] == EXTENT and u64(value[:16], 8) > epoch]
                    need(not young, f"node at block {block}: an extent is younger [209]")
                    yield from records
                    continue
                need(keys[0] == lower, f"node at block {block}: the first separator is not its lower bound [206]")
                children = [struct.unpack("<QQ", value) for _, value in records]
                young = [at for at, born in children if born > epoch]
                need(not young, f"node at block {block}: a child is younger [205]")
            except Damage as error:
                findings.add(error)
                lost.append((lower, upper))
                continue
            uppers = keys[1:] + [upper]
            stack.extend((*child, level - 1, key, end) for child, key, end in zip(children, keys, uppers))


def node_place(upper, level):
    """The place of a node in the order of a walk, by the first key behind its range."""
    return ((1 << 64) - 1, 191, (1 << 64) - 1) if upper == (1 << 64,) else upper, level


def item_place(key):
    """The place of an item in the order of a walk."""
    return key, 255


def in_ring(image, geometry, start, blocks, step):
    """How far each place of a ring is, offsets of all steps in it, and the 96 bytes at each."""
    for distance in geometry.ring_places:
        for block in range(start, start + blocks, 256):
            try:
                data = image.read(block + distance, min(256, start + blocks - block))
            except Damage:
                if len(geometry.ring_places) == 1:
                    raise
                continue
            for at in range(0, len(data), step):
                yield distance, (block - start) * BLOCK + at, data[at : at + 96]


# The journal.

Commit = namedtuple("Commit", "number epoch head records cancels extents")
Record = namedtuple("Record", "block kind base base_epoch ranges data")


class Cursor:
    """Bytes that are read one behind the other."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        """The next bytes."""
        need(self.at + size <= len(self.data), "it is cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def fields(self, layout):
        """The next structure."""
        return layout.at(self.take(layout.size))

    def number(self):
        """A number of one to ten bytes, in its only form."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                need(byte or not shift, "a number is too long")
                need(value <= MASK, "a number is too large")
                return value
        raise Damage("a number is too long")

    def distance(self, start):
        """The number at a distance from another."""
        value = self.number()
        return start + (value >> 1 if value % 2 == 0 else -(value >> 1) - 1) & MASK


class Journal:
    """The commits behind a superblock, which move `state` on and make nodes."""

    def __init__(self, image, superblock, nodes, findings):
        self.image, self.nodes, self.findings = image, nodes, findings
        self.geometry = superblock.geometry
        self.superblock = superblock
        self.state = superblock
        # The epoch of the last commit that was read, and of the last one that counts.
        self.epoch = self.state_epoch = superblock.epoch
        self.commit, self.next, self.sum = superblock.journal_commit, superblock.journal_next, superblock.journal_sum
        self.taken = self.commits = 0
        self.touched = set()
        # Nodes that commits build on a damaged one.
        self.lost, self.why = set(), {}
        self.damaged = self.closed = False

    def frames(self, block):
        """The valid frame of which a block is the first place, with its payload and the block behind it, as each place has it."""
        found = (self.frame(block, distance) for distance in self.geometry.ring_places)
        return [frame for frame in found if frame is not None]

    def frame(self, block, distance):
        """The valid frame that is so far behind its first place; or nothing. With two places one may be unreadable."""
        try:
            return self.read_frame(block, distance)
        except Damage:
            if len(self.geometry.ring_places) > 1:
                return None
            raise

    def read_frame(self, block, distance):
        """As `frame`, whatever reads."""
        head = FRAME.at(self.image.read(block + distance))
        size = FRAME.size + head.len
        blocks = -(-size // BLOCK)
        if head.magic != b"hfJf" or size > FRAME_LIMIT or block + blocks > self.geometry.journal_end:
            return None
        part = head.kind == 1 and head.len and head.index < head.frames
        end = head.kind == 2 and (head.index, head.frames, head.len) == (0, 1, 0)
        right = (head.address, head.volume) == (block, self.superblock.ring_tag) and head.durable < head.commit
        low = max(head.epoch, head.commit, head.durable) <= COUNTER_LIMIT
        if not ((part or end) and right and low) or head.pad or any(head.reserved):
            return None
        data = self.image.read(block + distance, blocks)[:size]
        if head.sum != crc64_without(data, 8):
            return None
        return head, data[FRAME.size :], block + blocks

    def next_payload(self):
        """The joined payload of the next whole commit and its epoch; the mark moves behind it. Or nothing."""
        block, prior, parts, total, taken, frames = self.next, self.sum, [], 0, self.taken, 1
        epochs = (self.epoch, self.epoch + 1) if self.taken else (self.epoch + 1,)
        while len(parts) < frames:
            follow = [found for found in self.frames(block) if found[0].prior == prior]
            if not parts:
                ends = [head for head, _, _ in follow if head.kind == 2 and head.epoch in (self.epoch, self.epoch + 1)]
                follow = [found for found in follow if found[0].kind == 1 and found[0].epoch in epochs]
                follow = [found for found in follow if found[0].commit == self.commit + 1]
                self.closed = not follow and any(head.commit == self.commit + 1 for head in ends)
                frames, epoch = (follow[0][0].frames, follow[0][0].epoch) if follow else (1, 0)
            wanted = (1, self.commit + 1, epoch, frames, len(parts))
            heads = (wanted == (it.kind, it.commit, it.epoch, it.frames, it.index) for it, _, _ in follow)
            follow = [found for found, is_wanted in zip(follow, heads) if is_wanted]
            if not follow:
                return None
            head, data, behind = follow[0]
            parts.append(data)
            taken, total = taken + behind - block, total + len(data)
            need(taken <= self.superblock.journal_blocks, "the journal is longer than its ring [802]")
            need(total <= COMMIT_LIMIT, "a commit is too long [802]")
            block = self.geometry.journal if behind == self.geometry.journal_end else behind
            prior = head.sum
        self.commit, self.next, self.sum = self.commit + 1, block, prior
        self.epoch, self.taken = epoch, taken
        return b"".join(parts), epoch

    def parse(self, payload, epoch, before):
        """A commit from its payload [802]."""
        try:
            cursor = Cursor(payload)
            head = cursor.fields(HEAD)
            check_state(head, self.geometry, epoch)
            need(not any(head.pad) and not head.pad2, "reserved bytes are not zero")
            need(head.lsn >= before.lsn and head.inode_next >= before.inode_next, "a counter goes backwards")
            records = [self.record(cursor, epoch) for _ in range(head.nodes)]
            need(len({record.block for record in records}) == len(records), "two records are of one node")
            cancels = [u64(cursor.take(8), 0) for _ in range(head.cancels)]
            extents = [cursor.fields(DATA_EXTENT) for _ in range(head.extents)]
            need(cursor.at == len(payload), "something follows")
            for extent in extents:
                need(self.geometry.is_data(extent.block, extent.count), "data lies outside of the data zone")
            total = sum(extent.count for extent in extents)
            need(total <= NAMED_BLOCKS_LIMIT, "it names too much data")
        except Damage as error:
            raise Damage(f"commit {self.commit}: {error} [802]") from None
        return Commit(self.commit, epoch, head, records, cancels, extents)

    def record(self, cursor, epoch):
        """The next node record."""
        head = cursor.fields(NODE_RECORD)
        need(head.kind in (1, 2, 3) and not head.pad, "a node record is of no kind")
        need(self.geometry.is_node(head.block), f"no node can be at block {head.block}")
        base = base_epoch = None
        if head.kind == 2:
            base, base_epoch = struct.unpack("<QQ", cursor.take(16))
            need(self.geometry.is_node(base), f"no node can be at block {base}")
            need(base_epoch < epoch, "a base is too young")
        numbers = struct.unpack(f"<{2 * head.ranges}H", cursor.take(4 * head.ranges))
        ranges, end = [], 0
        for start, less in zip(numbers[::2], numbers[1::2]):
            need(start >= end and start + less < self.geometry.node_size, "ranges overlap or leave the node")
            end = start + less + 1
            ranges.append((start, end))
        need(sum(end - start for start, end in ranges) == head.len, "ranges have another length")
        return Record(head.block, head.kind, base, base_epoch, ranges, cursor.take(head.len))

    def base(self, record):
        """The bytes from which a record makes its node [803]."""
        made = self.nodes.made
        if record.kind == 1:
            return bytearray(self.geometry.node_size)
        if record.kind == 3 and record.block in self.lost:
            return None
        if record.kind == 3:
            need(record.block in made, f"node at block {record.block} is changed and is not there [803]")
            return bytearray(made[record.block])
        if record.base in self.lost:
            return None
        if record.base not in made:
            try:
                data = self.nodes.load(record.base)[0]
                need(NODE.at(data).epoch == record.base_epoch, "it is of another epoch")
                return bytearray(data)
            except Damage as error:
                self.why[record.block] = f"a commit copies that at block {record.base}: {error}"
                return None
        need(NODE.at(made[record.base]).epoch == record.base_epoch, f"node at block {record.base} is of another epoch [803]")
        return bytearray(made[record.base])

    def apply(self, commit):
        """Makes the nodes of a commit and moves the state on."""
        made, lost = {}, set()
        for record in commit.records:
            self.touched.add(record.block)
            need(len(self.touched) * self.geometry.node_size <= JOURNAL_LIMIT, "the journal changes too much [802]")
            node, at = self.base(record), 0
            if node is None:
                lost.add(record.block)
                continue
            for start, end in record.ranges:
                node[start:end] = record.data[at : at + end - start]
                at += end - start
            made[record.block] = node
        self.nodes.made.update(made)
        self.lost = (self.lost - set(made) | lost) - set(commit.cancels)
        for block in lost.union(commit.cancels):
            self.nodes.made.pop(block, None)
        self.log_before = self.state
        self.state, self.state_epoch, self.commits = commit.head, commit.epoch, self.commits + 1

    def has_data(self, commit):
        """Whether the data that the last commit names is there."""
        return all(is_there(self.image, extent.block, extent.count, extent.sum) for extent in commit.extents)

    def replay(self):
        """Applies all commits; damage ends it and is said."""
        before, pending = self.superblock, None
        self.log_before = before
        try:
            while (found := self.next_payload()) is not None:
                if pending is not None:
                    self.apply(pending)
                    pending = None
                pending = self.parse(*found, before)
                before = pending.head
            if pending is not None and self.has_data(pending):
                self.apply(pending)
            elif pending is not None and self.was_durable(pending.number):
                self.apply(pending)
            elif pending is not None:
                self.commit, self.closed = self.commit - 1, False
        except Damage as error:
            self.damaged = True
            self.findings.add(error)
        for block in sorted(self.lost):
            self.findings.add(f"node at block {block} is lost: {self.why.get(block, 'it builds on such a one')} [808]")
        self.find_durable()
        self.check_mark()
        self.check_nodes()

    def find_durable(self):
        """Says if a commit behind the last one was durable once [801]."""
        missing = self.commit + 1
        if not (self.closed or self.damaged) and self.was_durable(missing):
            self.damaged = True
            self.findings.add(f"commit {missing} of the journal was durable and is not there [801]")

    def check_mark(self):
        """Something must lie where a journal without commits goes on, if it was used [807]."""
        block, wanted = self.superblock, self.superblock.journal_sum
        if self.commits or self.closed or self.damaged or not wanted or self.commit != block.journal_commit:
            return
        for head, _, _ in self.frames(block.journal_next):
            if not head.index and head.prior in (wanted, wanted ^ MASK):
                return
        if not any(self.has_before(distance, wanted) for distance in self.geometry.ring_places):
            self.damaged = True
            self.findings.add(f"nothing is left of the journal at block {block.journal_next} [807]")

    def has_before(self, distance, wanted):
        """Whether the frame of a sum lies directly before the mark. What does not read may be it."""
        start, looks = self.geometry.journal, LOOKS
        end = self.superblock.journal_next
        end = self.geometry.journal_end if end == start else end
        try:
            for at in range(end - 1, max(start, end - FRAME_LIMIT // BLOCK) - 1, -1):
                named = Named(FRAME, b"hfJf", at, self.superblock.ring_tag, wanted)
                if looks and named.may_be(self.image.read(at + distance, 1), (end - at) * BLOCK):
                    looks -= 1
                    if named.is_there(self.image.read(at + distance, end - at)):
                        return True
        except Damage:
            return True
        return False

    def was_durable(self, number):
        """Whether any valid frame of the ring calls this commit durable, and is not older."""
        budget = 8 * self.superblock.journal_blocks * BLOCK
        for distance, at, data in in_ring(self.image, self.geometry, self.geometry.journal, self.superblock.journal_blocks, BLOCK):
            head = FRAME.at(data)
            if head.volume != self.superblock.ring_tag or min(head.commit, head.durable) < number:
                continue
            budget -= head.len
            if budget < 0 or self.frame(self.geometry.journal + at // BLOCK, distance):
                return True
        return False

    def check_nodes(self):
        """Nodes that the journal made must be valid and of its time [804]."""
        for block, data in self.nodes.made.items():
            try:
                head, _ = self.nodes.parse(data, block)
                need(self.superblock.epoch < head.epoch <= self.state_epoch, "its epoch is not of the journal")
            except Damage as error:
                self.damaged = True
                self.findings.add(f"node at block {block}, made by the journal: {error} [804]")
        # What no reader takes for a node.
        self.nodes.made.update((block, bytearray(self.geometry.node_size)) for block in self.lost)


def is_there(image, block, count, wanted):
    """Whether blocks have this sum of their sums. What does not read speaks against its file alone."""
    sums = bytearray()
    for at in range(block, block + count, 256):
        try:
            data = image.read(at, min(256, block + count - at))
        except Damage:
            return True
        for start in range(0, len(data), BLOCK):
            sums += block_sum(data[start : start + BLOCK]).to_bytes(8, "little")
    return crc64(sums) == wanted


# The log.

Batch = namedtuple("Batch", "head puts removes named patches taken freed drops counts")
Drop = namedtuple("Drop", "branch first count birth inode offset")


class Records:
    """The records of a batch [902]."""

    def __init__(self, data, count, geometry, kinds):
        self.cursor = Cursor(data)
        self.geometry, self.kinds = geometry, kinds
        self.inode = self.block = 0
        self.time = (0, 0)
        self.keys, self.named_inodes, self.puts, self.removes = set(), set(), {}, []
        self.named, self.patches, self.taken, self.freed = [], [], [], []
        self.branch, self.counts, self.drops = MAIN, {}, []
        need(count <= len(data), "it has fewer records than it says")
        for _ in range(count):
            self.read()
        need(self.cursor.at == len(data), "something follows the records")

    def read(self):
        """The next record."""
        first = self.cursor.take(1)[0]
        what, kind = first & 15, first >> 4
        if kind == 15:
            kind = self.cursor.take(1)[0]
            need(kind >= 15, "a kind is written in a wrong form")
        need(what <= 8, f"a record says {what}, which is set aside")
        need((kind in self.kinds | OF_LINEAGE) if what <= 2 else kind == 0, f"a record has kind {kind}")
        if what <= 2:
            self.item(what, kind)
        elif what == 7:
            self.branch, count = self.cursor.number(), self.cursor.number()
            need(0 < self.branch <= COUNTER_LIMIT and count <= COUNTER_LIMIT, f"there is no branch {self.branch}")
            self.counts[self.branch] = count
        else:
            self.blocks(what)

    def item(self, what, kind):
        """An item that is put, or a key that loses its value."""
        self.inode = self.cursor.distance(self.inode)
        offset = 0
        if what < 2:
            offset = u64(self.cursor.take(8), 0) if kind in (DENTRY, XATTR) else self.cursor.number()
        branch = 0 if kind in OF_LINEAGE else self.branch
        key = (branch, (self.inode, kind, offset))
        need(key not in self.keys, f"{key} has two records")
        self.keys.add(key)
        if what == 1:
            self.removes.append(key)
            return
        if what == 2:
            need(kind == INODE, f"an item of kind {kind} is written as that of an inode")
            value = self.inode_item()
        else:
            value = bytes(self.cursor.take(self.cursor.number()))
        need(len(value) <= self.geometry.value_limit, "a value is too long")
        if kind == DENTRY and len(value) >= 8:
            self.named_inodes.add((branch, (u64(value, 0), INODE, 0)))
        need(key not in self.named_inodes, "a name comes before the inode it leads to")
        self.puts[key] = value

    def inode_item(self):
        """The item of an inode in its short form."""
        names = "mode uid gid nlink size blocks rdev parent flags value_next change project".split()
        item = SimpleNamespace(reserved=bytes(4), parent_slot=0, **{name: self.cursor.number() for name in names})
        mask = self.cursor.take(1)[0]
        need(mask < 32, "an inode has an unknown bit")
        seconds, nanoseconds = self.time
        for bit, name in enumerate(("btime", "atime", "mtime", "ctime")):
            if mask >> bit & 1:
                seconds = self.cursor.distance(seconds & MASK)
                seconds -= (seconds >> 63) << 64
                nanoseconds = u32(self.cursor.take(4), 0)
            setattr(item, name, seconds)
            setattr(item, name + "_ns", nanoseconds)
        self.time = (seconds, nanoseconds)
        if mask & 16:
            item.parent_slot = u64(self.cursor.take(8), 0)
            need(item.parent_slot, "a slot is 0")
        try:
            return INODE_ITEM.struct.pack(*(getattr(item, name) for name in INODE_ITEM.names))
        except struct.error:
            raise Damage("a field of an inode is too large") from None

    def blocks(self, what):
        """Blocks that are taken or given back."""
        self.block = first = self.cursor.distance(self.block)
        count = self.cursor.number()
        need(self.geometry.is_data(first, count), f"blocks {first} and {count - 1} more are not in the data zone")
        if what == 6:
            self.freed.append((first, first + count))
            return
        if what == 8:
            drop = Drop(self.branch, first, count, *(self.cursor.number() for _ in range(3)))
            need(0 < drop.birth <= COUNTER_LIMIT and drop.offset % BLOCK == 0, "blocks are given up that cannot be")
            self.drops.append(drop)
            return
        self.taken.append((first, first + count))
        if what == 4:
            self.named.append((first, count, u64(self.cursor.take(8), 0)))
        if what == 5:
            self.patches.extend(self.patch(first + at) for at in range(count))

    def patch(self, block):
        """What makes the data of a block."""
        base, start, size = (self.cursor.number() for _ in range(3))
        need(base == 0 or self.geometry.is_data(base), f"block {base} is no base")
        need(start + size <= BLOCK, "a patch leaves its block")
        return block, base, start, self.cursor.take(size)


class Log:
    """The batches behind the last commit."""

    def __init__(self, image, superblock, journal, nodes, findings):
        self.image, self.findings = image, findings
        self.geometry, self.tag = superblock.geometry, superblock.ring_tag
        self.closed, self.first, self.earlier = journal.closed, journal.state, journal.log_before
        self.kinds = nodes.kinds[FILES]
        state = journal.state
        self.lsn, self.inode_next, self.inode_count = state.lsn, state.inode_next, state.inode_count
        self.number, self.next, self.sum = state.log_batch, state.log_next, state.log_sum
        self.birth_limit = journal.state_epoch + 1
        self.batches, self.total, self.applied = [], 0, 0
        self.data, self.counts = {}, {}
        self.taken, self.freed = [], []
        # What of that was taken, in the order of the blocks.
        self.taken_runs = []
        # What was given back, also by branches that did not have it alone, in the order of the blocks.
        self.given_runs = []
        # Whether a batch gave back what may have been in a key that is lost.
        self.blind = False
        # Keys that the log has changed: what they hold is known.
        self.changed = set()
        # What each extent key that the log has changed holds of what its tree had: first, end, birth, where block 0 would lie.
        self.before = {}

    def ring(self, distance, at, size):
        """Bytes of the ring, which goes on at its start, so far behind its first place."""
        parts = [(at, min(size, self.geometry.log_bytes - at))]
        if parts[0][1] < size:
            parts.append((0, size - parts[0][1]))
        data = b""
        for start, length in parts:
            first, end = start // BLOCK, -(-(start + length) // BLOCK)
            blocks = self.image.read(self.geometry.log + distance + first, end - first)
            data += blocks[start - first * BLOCK : start - first * BLOCK + length]
        return data

    def batches_at(self, at):
        """Header and records of the valid batch at a byte of the ring, as each place has it."""
        found = (self.batch(distance, at) for distance in self.geometry.ring_places)
        return [batch for batch in found if batch is not None]

    def batch(self, distance, at):
        """The valid batch so far behind its first place; or nothing. With two places one may be unreadable."""
        try:
            return self.read_batch(distance, at)
        except Damage:
            if len(self.geometry.ring_places) > 1:
                return None
            raise

    def read_batch(self, distance, at):
        """As `batch`, whatever reads."""
        head = BATCH.at(self.ring(distance, at, BATCH.size))
        size = BATCH.size + head.len
        room = min(BATCH_LIMIT, self.geometry.log_bytes)
        counters = (head.number, head.durable, head.after, head.last, head.inode_next, head.inode_count)
        if head.magic != b"hfLb" or (head.address, head.volume) != (at, self.tag):
            return None
        if head.bytes % SECTOR or not size <= head.bytes <= room or head.flags or any(head.reserved):
            return None
        if max(counters) > COUNTER_LIMIT or head.durable >= head.number or head.after >= head.last:
            return None
        data = self.ring(distance, at, size)
        return (head, data[BATCH.size :]) if head.sum == crc64_without(data, 8) else None

    def read(self):
        """Reads the batches from the mark on."""
        while True:
            found = self.batches_at(self.next)
            found = [it for it in found if (it[0].number, it[0].prior) == (self.number + 1, self.sum)]
            if not found:
                return
            head, data = found[0]
            self.total += head.bytes
            need(self.total <= min(self.geometry.log_bytes, LOG_LIMIT), "the log is longer than its ring [902]")
            if head.last > self.lsn:
                need(head.after == self.lsn, f"batch {head.number} does not follow operation {self.lsn} [903]")
                self.batches.append(self.parse(head, data))
                self.lsn, self.inode_next, self.inode_count = head.last, head.inode_next, head.inode_count
            self.number, self.sum = head.number, head.sum
            self.next = (self.next + head.bytes) % self.geometry.log_bytes

    def parse(self, head, data):
        """A batch from its records."""
        try:
            records = Records(data, head.records, self.geometry, self.kinds)
            need(head.inode_next >= self.inode_next, "inode_next goes backwards")
        except Damage as error:
            raise Damage(f"batch {head.number} of the log: {error} [902]") from None
        lists = (records.named, records.patches, records.taken, records.freed, records.drops, records.counts)
        return Batch(head, records.puts, records.removes, *lists)

    def durable(self):
        """The last batch that any valid batch of the ring calls durable."""
        found = []
        for distance, at, data in in_ring(self.image, self.geometry, self.geometry.log, self.geometry.log_bytes // BLOCK, SECTOR):
            if data[:4] == b"hfLb" and data[24:32] == self.tag:
                found.append((u64(data, 40), u32(data, 4), at, distance))
        budget = 8 * self.geometry.log_bytes
        for durable, size, at, distance in sorted(found, reverse=True):
            budget -= min(size, BATCH_LIMIT)
            if budget < 0 or self.batch(distance, at) is not None:
                return durable
        return 0

    def is_empty_around(self, state):
        """Whether neither the batch before a mark nor one behind it is there, though the log was used."""
        at, wanted = state.log_next, state.log_sum
        if not wanted or any(head.prior in (wanted, wanted ^ MASK) for head, _ in self.batches_at(at)):
            return False
        return not any(self.has_before(distance, at, wanted) for distance in self.geometry.ring_places)

    def has_before(self, distance, mark, wanted):
        """Whether the batch of a sum lies directly before a mark. What does not read may be it."""
        room, looks = self.geometry.log_bytes, LOOKS
        try:
            for size in range(SECTOR, min(BATCH_LIMIT, room) + 1, SECTOR):
                at = (mark - size) % room
                named = Named(BATCH, b"hfLb", at, self.tag, wanted)
                if looks and named.may_be(self.ring(distance, at, SECTOR), size):
                    looks -= 1
                    if named.is_there(self.ring(distance, at, size)):
                        return True
        except Damage:
            return True
        return False

    def drop_unwritten(self, durable):
        """Ends the log before the first batch whose data is not there."""
        named = Counter()
        for at, batch in enumerate(self.batches):
            if batch.head.number <= durable:
                continue
            named[batch.head.durable] += sum(count for _, count, _ in batch.named)
            need(named[batch.head.durable] <= NAMED_BLOCKS_LIMIT, "the log names too much data by sums [902]")
            if not all(is_there(self.image, *data) for data in batch.named):
                self.number = batch.head.number - 1
                del self.batches[at:]
                return

    def apply(self, batch, volume):
        """Puts what a batch says in place of what was."""
        said = {key: value for (branch, key), value in batch.puts.items() if branch == 0}
        judge_said(volume.lineage, said, [key for branch, key in batch.removes if branch == 0])
        # Branches and snapshots first: the batch may make a branch that it changes.
        self.put(batch, volume, lambda branch: branch == 0)
        for branch in batch.counts:
            there = volume.lineage.lost or volume.lineage.has_root(branch)
            need(there, f"there is no branch {branch} [902]")
        had, held = self.had(batch, volume)
        self.put(batch, volume, lambda branch: branch != 0)
        self.changed.update(batch.puts, batch.removes)
        self.counts.update(batch.counts)
        for block, base, start, data in batch.patches:
            before = ZERO_BLOCK if base == 0 else self.data.get(base) or self.image.read(base)
            self.data[block] = before[:start] + data + before[start + len(data) :]
        need(len(self.data) * BLOCK <= PATCHED_LIMIT, "the log holds more data than this reader takes")
        self.taken += batch.taken
        for run in batch.taken:
            insert_run(self.taken_runs, run)
        # What keys held that are lost is not known, so neither is what is free.
        if self.blind:
            self.applied += 1
            return
        self.judge_given(batch, volume.lineage, had, held)
        freed = list(batch.freed)
        for drop in batch.drops:
            own = volume.lineage.own(drop)
            freed += [(drop.first, drop.first + own)] if own else []
        self.freed += freed
        for first, end in freed:
            if end - first < len(self.data):
                for block in range(first, end):
                    self.data.pop(block, None)
        self.applied += 1

    def put(self, batch, volume, is_meant):
        """What a batch puts and removes in some trees."""
        for branch, key in batch.removes:
            if is_meant(branch):
                volume.items(branch).pop(key, None)
        # What a new branch has grown out of: its item may say what came later.
        parents = {key[2]: key[0] - LINEAGE for _, key in batch.puts if key[1] == CHILD_ITEM}
        for (branch, key), value in batch.puts.items():
            if not is_meant(branch):
                continue
            if key[1] == EXTENT and len(value) >= EXTENT_ITEM.size and u64(value, 8) > self.birth_limit:
                value = value[:8] + self.birth_limit.to_bytes(8, "little") + value[16:]
            before = volume.items(branch).get(key)
            if key[1] == TREE_ITEM and before and len(value) >= 8:
                value = before[:8] + value[8:]
            elif key[1] == TREE_ITEM and key[0] - LINEAGE in parents and len(value) >= 8:
                value = parents[key[0] - LINEAGE].to_bytes(8, "little") + value[8:]
            volume.items(branch)[key] = value

    def had(self, batch, volume):
        """What the extents that a batch changes held before it of what trees had before the log, and of all, by branch."""
        had, held, put = {}, {}, {}
        changed = [of for of in [*batch.removes, *batch.puts] if of[1][1] == EXTENT]
        gives = batch.freed or batch.drops
        if self.blind or not gives and all(self.is_taken(batch, batch.puts[of]) for of in changed if of in batch.puts):
            # No tree is asked.
            self.before.update((of, []) for of in changed)
            return {}, {}
        for branch, key in changed:
            if (branch, key) not in self.changed and volume.is_lost(branch, key):
                self.blind = True
                continue
            value = volume.items(branch).get(key, b"")
            whole = len(value) >= EXTENT_ITEM.size
            first, birth, count = (u64(value, 0), u64(value, 8), u32(value, 16)) if whole else (0, 0, 0)
            held.setdefault(branch, []).extend([(first, first + count)] if count else [])
            known = self.before.get((branch, key))
            if known is None:
                known = [(first, first + count, birth, key[0], key[2] - first * BLOCK)] if count else []
            had.setdefault(branch, []).extend(known)
        if self.blind:
            return {}, {}
        had = {branch: held_once(parts) for branch, parts in had.items()}
        claims = {}
        for branch, key in changed:
            value, put[branch, key] = batch.puts.get((branch, key), b""), []
            if len(value) >= EXTENT_ITEM.size:
                start = u64(value, 0)
                claims.setdefault(branch, []).append((start, start + u32(value, 16), key))
        for branch, extents in claims.items():
            parts, done = had[branch], 0
            ends = [part[1] for part in parts]
            # A block is kept by the first that claims it.
            for start, end, key in sorted(extents):
                place, start = (key[0], key[2] - start * BLOCK), max(start, done)
                at = bisect.bisect_right(ends, start)
                while at < len(parts) and parts[at][0] < end:
                    if parts[at][3:] == place:
                        put[branch, key].append((max(parts[at][0], start), min(ends[at], end), *parts[at][2:]))
                    at += 1
                done = max(done, end)
        self.before.update(put)
        return had, held

    def is_taken(self, batch, value):
        """Whether an extent has nothing but what the log took, up to a batch."""
        if len(value) < EXTENT_ITEM.size:
            return True
        run = u64(value, 0), u64(value, 0) + u32(value, 16)
        return self.is_taken_or(run, union(batch.taken))

    def judge_given(self, batch, lineage, had, held):
        """What a batch gives back keys that it changes held, or it took that itself, and nothing gave it back before [904].

        It was taken by the log, or is as old as the batch says, and no snapshot's.
        """
        own = []
        for branch, parts in had.items():
            item = lineage.tree(branch)
            parent = lineage.tree(item.parent) if item and item.parent else None
            own += [part[:2] for part in parts if parent is None or part[2] > parent.epoch]
        own, gives = union(own), f"batch {batch.head.number} of the log gives back what"
        drops = [(drop.first, drop.first + drop.count) for drop in batch.drops]
        need(not overlap(sorted(batch.freed + drops)), f"{gives} it gives back as well [904]")
        need(not any(is_touched(self.given_runs, run) for run in batch.freed + drops), f"{gives} was given back [904]")
        of_all = union([run for runs in held.values() for run in runs] + batch.taken)
        of_branch = {drop.branch: None for drop in batch.drops}
        of_branch = {branch: union(held.get(branch, []) + batch.taken) for branch in of_branch}
        places = [(run, of_all) for run in batch.freed]
        places += [(run, of_branch[drop.branch]) for drop, run in zip(batch.drops, drops)]
        for run, runs in places:
            there = run_with(runs, run[0])
            need(there and run[1] <= there[1], f"{gives} nothing held that it changes [904]")
        for run in batch.freed + drops:
            insert_run(self.given_runs, run)
        for run in batch.freed:
            need(self.is_taken_or(run, own), f"{gives} a snapshot has [904]")
        for drop, run in zip(batch.drops, drops):
            place = (drop.birth, drop.inode, drop.offset - drop.first * BLOCK)
            need(self.is_taken_or(run, had.get(drop.branch, []), place), f"{gives} is older, or elsewhere [904]")

    def is_taken_or(self, run, parts, of=None):
        """Whether each block of a run was taken by the log, or lies in parts that are as they should be."""
        first, end = run
        while first < end:
            taken = run_with(self.taken_runs, first)
            part = run_with(parts, first)
            behind = max(taken[1] if taken else 0, part[1] if part and of in (None, part[2:]) else 0)
            if behind <= first:
                return False
            first = behind
        return True

    def replay(self, volume):
        """Reads the log and applies it to the items of the volume."""
        try:
            try:
                self.read()
            finally:
                durable = self.durable()
                missing = self.number + 1
            self.drop_unwritten(durable)
            if durable >= missing and not self.closed:
                self.findings.add(f"batch {missing} of the log was durable and is not there [901]")
            elif not (self.closed or self.total) and self.is_empty_around(self.first) and self.is_empty_around(self.earlier):
                self.findings.add(f"nothing is left of the log at its byte {self.next} [907]")
        except Damage as error:
            self.findings.add(error)
        try:
            for batch in self.batches:
                self.apply(batch, volume)
        except Damage as error:
            self.findings.add(error)


# Branches and snapshots.


def judge_said(before, said, removed):
    """What a batch says of branches and snapshots: only what operations by the log change [902]. It is right about what is lost."""
    goes = all(key[:2] == (LINEAGE, NAME_ITEM) or key[1] == HOLD_ITEM and key[0] > LINEAGE for key in removed)
    need(goes, "something goes that only commits can take [902]")
    now = Lineage({key: value for key, value in {**before.items, **said}.items() if key not in removed}, before.features, before.lost)
    first, behind = before.next(), now.next()
    need(first <= behind <= COUNTER_LIMIT, f"the next number goes back from {first} to {behind} [902]")
    children = [(key[2], key[0] - LINEAGE) for key in said if key[1] == CHILD_ITEM]
    parents, made = dict(children), set()
    for inode, kind, offset in said:
        own = kind in (TREE_ITEM, ROOT_ITEM, CHILD_ITEM, HOLD_ITEM)
        need(kind != ORIGIN_ITEM, "an origin comes with commits [902]")
        held = now.tree(inode - LINEAGE) if kind == HOLD_ITEM else None
        there = held.kind == SNAPSHOT and not now.deleted(inode - LINEAGE, held) if held else before.lost
        need(kind != HOLD_ITEM or there and now.hold(inode, offset), f"there is no snapshot {inode - LINEAGE} to be held [902]")
        need(inode > LINEAGE if own else inode == LINEAGE, f"kind {kind} stands at {inode} [902]")
        need(offset == 0 or kind in (NAME_ITEM, WALK_ITEM, CHILD_ITEM, HOLD_ITEM), f"kind {kind} stands at offset {offset} [902]")
    for number in [key[0] - LINEAGE for key in said if key[1] == TREE_ITEM]:
        old, item = before.tree(number), now.tree(number)
        is_new = item.kind == BRANCH and first <= number < behind
        parent = before.tree(parents.get(number, 0))
        if old is None and number != MAIN and before.lost and (parent is None or not is_new):
            made.update([number] if is_new and number in parents else [])
        elif old is None and number != MAIN:
            there = parent and parent.kind == SNAPSHOT and not before.deleted(parents[number], parent)
            need(there and is_new, f"{number} is no new branch [902]")
            root, counts = now.root(number), (parent.inode_count, parent.referenced)
            begin = (parent.root_block, parent.root_epoch, parent.level, counts)
            same = root and (root.block, root.epoch, root.level, (root.inode_count, root.referenced)) == begin
            need(same, f"branch {number} does not begin as its snapshot is [902]")
            made.add(number)
        elif old is None:
            need(item.kind == BRANCH and item.parent == 0, "the first branch is another [902]")
        else:
            changing = {"parent", "length", "name", "limit"}
            if item.branch == before.branch_of(old):
                changing.add("branch")
            same = all(getattr(old, name) == getattr(item, name) for name in set(TREE_LAYOUT.names) - changing)
            need(same and old.tail == item.tail, f"{number} becomes another [902]")
        going = item.kind == SNAPSHOT and now.deleted(number, item)
        need(not going or not item.name, f"{number} is being deleted and has a name [902]")
    placed = {key[0] - LINEAGE for key in said if key[1] == ROOT_ITEM} | set(parents)
    need(placed <= made and len(parents) == len(children), "it places a branch that it does not make [902]")
    for number in [key[2] for key in said if key[1] == WALK_ITEM]:
        item, start = now.tree(number), ((0, INODE, 0), 0)
        may_go = item.kind == SNAPSHOT and not item.name if item else before.lost
        begins = may_go and before.cursor(number) is None and now.cursor(number) == start
        need(begins and not now.tags(number), f"the deletion of {number} cannot begin [902]")


class Lineage:
    """Branches and snapshots, as items of the space tree."""

    def __init__(self, items, features, lost=False):
        # `lost`: others stood in damaged nodes.
        self.items, self.features, self.lost = items, features, lost

    def has_root(self, branch):
        """Whether a branch is there, with a root."""
        item = self.tree(branch)
        return branch == MAIN or bool(item and item.kind == BRANCH and self.root(branch))

    def hold(self, inode, offset):
        """The tag of a hold, which must be valid."""
        value = self.items[inode, HOLD_ITEM, offset]
        item = HOLD_LAYOUT.at(value)
        tag = value[HOLD_LAYOUT.size :]
        bad = NO_NAME.search(tag) or tag in (b".", b"..") or len(tag) != item.length or crc64(tag + (inode - LINEAGE).to_bytes(8, "little")) != offset
        need(tag and not bad and item.created_ns < 10**9 and not any(item.reserved), f"the hold {inode, offset} is none [1001]")
        return tag

    def tags(self, number):
        """Who holds a snapshot."""
        keys = [key for key in self.items if key[:2] == (LINEAGE + number, HOLD_ITEM)]
        return sorted(self.hold(inode, offset) for inode, _, offset in keys)

    def origin(self, inode, offset):
        """What a snapshot is a copy of, which must be valid."""
        value = self.items[inode, ORIGIN_ITEM, offset]
        item = ORIGIN_LAYOUT.at(value)
        fits = len(value) == ORIGIN_LAYOUT.size and offset < 8 and item.created_ns < 10**9 and not any(item.reserved)
        need(fits and max(item.number, item.lsn) <= COUNTER_LIMIT, f"the origin {inode, offset} is none [1001]")

    def tree(self, number):
        """A branch or snapshot, which must be valid; or nothing."""
        value = self.items.get((LINEAGE + number, TREE_ITEM, 0))
        if value is None:
            return None
        item = TREE_LAYOUT.at(value)
        end = TREE_LAYOUT.size + item.length
        item.name, item.tail = value[TREE_LAYOUT.size : end], value[end:]
        need(not item.tail or self.features and len(item.tail) <= 512, f"tree {number} has more than its name [1001]")
        bad = NO_NAME.search(item.name) or item.name in (b".", b"..")
        if item.kind == GOING:
            only = bytes(8) + value[8:16] + bytes(28) + bytes([GOING]) + bytes(TREE_LAYOUT.size - 45)
            need(value == only and item.branch <= COUNTER_LIMIT, f"tree {number} is none [1001]")
            return item
        need(item.kind in (BRANCH, SNAPSHOT) and len(item.name) == item.length and not bad, f"tree {number} is none [1001]")
        counts = (item.inode_count, item.referenced)
        numbers = (item.parent, item.branch, item.epoch, item.lsn, item.root_epoch, *counts)
        need(max(numbers) <= COUNTER_LIMIT and not item.pad and not any(item.reserved), f"tree {number} is none [1001]")
        if item.kind == SNAPSHOT:
            need(0 < item.root_epoch <= item.epoch and item.level < LEVELS, f"the root of {number} cannot be [1001]")
            need(item.branch and not item.limit, f"snapshot {number} is of no branch, or has a limit [1001]")
        else:
            only = (item.branch, item.epoch, item.level, item.root_block, item.root_epoch, *counts)
            need(not any(only), f"branch {number} has what only snapshots have [1001]")
        return item

    def numbers(self):
        """All of them but a `main` without an item, and branches that go."""
        return sorted(self.listed() - self.going())

    def listed(self):
        """All that have an item."""
        return {key[0] - LINEAGE for key in self.items if key[1] == TREE_ITEM and key[0] > LINEAGE}

    def going(self):
        """Branches that go."""
        return {number for number in self.listed() if self.items[LINEAGE + number, TREE_ITEM, 0][44:45] == bytes([GOING])}

    def deleted(self, number, item):
        """Whether a snapshot is being deleted, by itself or as its branch goes."""
        return self.cursor(number) is not None or self.goes_to(item.branch) == 0

    def goes_to(self, branch):
        """What the snapshots of a branch that goes are of now, 0 if they are deleted; of others nothing."""
        item = self.tree(branch)
        return item.branch if item and item.kind == GOING else None

    def branch_of(self, item):
        """The branch that a snapshot is of."""
        return self.goes_to(item.branch) or item.branch

    def joined(self, branch):
        """Branches that go whose snapshots are those of a branch."""
        return [key[2] for key in self.items if key[:2] == (LINEAGE + branch, CHILD_ITEM) and self.goes_to(key[2]) == branch]

    def root(self, number):
        """Root, level and number of inodes of a branch other than `main`; or nothing."""
        value = self.items.get((LINEAGE + number, ROOT_ITEM, 0))
        if value is None:
            return None
        item = ROOT_LAYOUT.at(value)
        need(len(value) == ROOT_LAYOUT.size and not any(item.reserved), f"the root of branch {number} is none [1001]")
        need(0 < item.epoch <= COUNTER_LIMIT and item.level < LEVELS, f"the root of branch {number} is none [1001]")
        need(max(item.inode_count, item.referenced) <= COUNTER_LIMIT, f"the root of branch {number} is none [1001]")
        return item

    def cursor(self, number):
        """The first place that the deletion of a snapshot has not passed; or nothing."""
        value = self.items.get((LINEAGE, WALK_ITEM, number))
        if value is None:
            return None
        item = WALK_LAYOUT.at(value)
        zeros = item.zeros + item.more + item.reserved
        right = len(value) == WALK_LAYOUT.size and not any(zeros) and (item.level < LEVELS or item.level == 255)
        need(right, f"the deletion of {number} is nowhere [1001]")
        return (item.inode, item.kind, item.offset), item.level

    def own(self, drop):
        """How many of the first blocks that a branch gives up are free."""
        branch = self.tree(drop.branch)
        parent = self.tree(branch.parent) if branch and branch.parent else None
        if parent is None or drop.birth > parent.epoch:
            return drop.count
        above = self.tree(parent.parent) if parent.parent else None
        cursor = self.cursor(branch.parent)
        if cursor is None or drop.birth <= (above.epoch if above else 0):
            return 0
        return passed(cursor, drop.inode, drop.offset, drop.count)

    def next(self):
        """The next number of a branch or snapshot."""
        return u64(self.items.get((LINEAGE, NEXT_ITEM, 0), (MAIN + 1).to_bytes(16, "little")), 0)

    def label(self, number):
        """What it is called."""
        item = self.tree(number)
        if item is None:
            return b"main" if number == MAIN else b"#%d" % number
        name = item.name or b"#%d" % number
        if item.kind == BRANCH:
            return name
        of = self.branch_of(item)
        branch = self.tree(of)
        is_branch = branch.kind == BRANCH if branch else of == MAIN
        return (self.label(of) if is_branch else b"#%d" % of) + b"@" + name

    def named(self, branch, name):
        """The number of what has a name, found by its hash; or nothing."""
        offset = crc64(name + branch.to_bytes(8, "little"))
        value = self.items.get((LINEAGE, NAME_ITEM, offset), b"")
        for number in struct.unpack(f"<{len(value) // 8}Q", value[: len(value) // 8 * 8]):
            item = self.tree(number)
            if item and (item.name, item.branch) == (name, branch):
                return number
        return MAIN if (branch, name) == (0, b"main") and self.tree(MAIN) is None else None

    def find(self, text):
        """The number of a branch, or of a snapshot of one."""
        branch, at, snapshot = os.fsencode(text).partition(b"@")
        number = self.named(0, branch)
        if at and number is not None:
            found = (self.named(of, snapshot) for of in [number, *self.joined(number)])
            number = next((it for it in found if it is not None), None)
        need(number is not None, f"{text}: no such branch or snapshot")
        return number


def passed(cursor, inode, offset, count):
    """How many of the first blocks of a part of a file lie before a cursor."""
    (at, kind, byte), _ = cursor
    if (at, kind) == (inode, EXTENT):
        return min(count, max(0, -(-(byte - offset) // BLOCK)))
    return count if item_place((inode, EXTENT, offset)) < cursor else 0


# Files.

Piece = namedtuple("Piece", "offset length data sum damage")
Extent = namedtuple("Extent", "start block count sums birth")


class Inode:
    """An inode with all its items."""

    def __init__(self, number, item):
        self.number, self.item = number, item
        self.type = item.mode >> 12
        self.inline = None
        self.extents, self.entries, self.attributes, self.pieces = [], {}, {}, {}
        self.punch = (0, 0)
        self.allocated = 0


class Files:
    """A files tree as inodes; items that cannot be are said and passed over."""

    def __init__(self, volume, items, lost, count):
        self.volume, self.findings, self.count = volume, volume.findings, count
        self.seed, self.geometry = volume.superblock.hash_seed, volume.geometry
        self.inodes, self.orphans, self.extents, self.longs = {}, set(), [], []
        self.lost = sorted(lost)
        readers = {INODE: self.inode, INLINE: self.inline, DENTRY: self.dentry, XATTR: self.attribute,
                   PIECE: self.piece, EXTENT: self.extent, ORPHAN: self.orphan, PUNCH: self.punch}
        # Items with inode 0 come last: what they lead to is known by then.
        for key in sorted(items, key=lambda key: (key[0] == 0, key)):
            number, kind, offset = key
            if kind not in readers:
                continue
            try:
                need((number == 0) == (kind in (ORPHAN, PUNCH)), "its inode is none [604]")
                of = offset if number == 0 else number
                need(kind == INODE or of in self.inodes, "its inode is not there [302]")
                readers[kind](of if kind == INODE else self.inodes[of], offset, items[key])
            except Damage as error:
                self.findings.add(f"item {key}: {error}")
        for step in (self.join_values, self.drop_shared, self.check_content):
            step()

    def inode(self, number, offset, value):
        """An inode's own item [301]."""
        superblock = self.volume.superblock
        item = INODE_ITEM.at(value)
        kind = item.mode >> 12
        flags = 31 | (0xFF << 16 if superblock.compat else 0) | (0xFF << 24 if superblock.unknown_ro_compat else 0)
        extra = (superblock.compat or superblock.unknown_ro_compat) and len(value) <= 512
        need(offset == 0 and (len(value) == INODE_ITEM.size or extra), "something follows its fields [301]")
        need(kind in TYPES and item.mode < 1 << 16, "its mode is none [301]")
        need(item.size <= FILE_LIMIT and item.nlink <= 10**9, "its size or nlink is too large [301]")
        times = (item.atime_ns, item.mtime_ns, item.ctime_ns, item.btime_ns)
        need(max(times) < 10**9 and not any(item.reserved), "a time is none, or reserved bytes are not zero [301]")
        need(not item.flags & ~flags, "a flag is not known [301]")
        need(item.parent or not item.parent_slot, "it has a slot without a parent [301]")
        need(kind in (CHARACTER, DEVICE) or not item.rdev, "it is no device and has a number of one [304]")
        need(kind in (REGULAR, SYMLINK) or not item.blocks, "it has blocks [304]")
        need(kind in (DIRECTORY, REGULAR, SYMLINK) or not item.size, "it has a size [304]")
        need(number == 1 or 16 <= number < self.volume.inode_next, "its number was never handed out [303]")
        self.inodes[number] = Inode(number, item)

    def inline(self, inode, offset, value):
        """Content that lies in the tree."""
        need(offset == 0 and inode.type in (REGULAR, SYMLINK), "it can have no inline content [310]")
        need(len(value) == inode.item.size, "its content is not as long as its size [311]")
        inode.inline = value

    def dentry(self, inode, offset, value):
        """A name in a directory."""
        item = DENTRY_ITEM.at(value)
        name = value[DENTRY_ITEM.size :]
        need(inode.type == DIRECTORY, "it is no directory [304]")
        need(item.inode and item.type in TYPES and item.length == len(name) > 0, "it is no entry [301]")
        need(b"/" not in name and b"\0" not in name and name not in (b".", b".."), "its name is none [301]")
        need(offset >> 8 == name_hash(name, self.seed), "it lies at a place of another name [504]")
        need(name not in inode.entries, "its name occurs twice [505]")
        inode.entries[name] = (item.inode, item.type, offset)

    def attribute(self, inode, offset, value):
        """An extended attribute, or the head of a long one."""
        item = XATTR_ITEM.at(value)
        name, rest = value[XATTR_ITEM.size :][: item.length], value[XATTR_ITEM.size + item.length :]
        need(len(name) == item.length > 0 and b"\0" not in name, "its name is none [301]")
        need(item.value_len <= 65536 and item.place < 2, "its value is none [301]")
        need(len(rest) == (0 if item.place else item.value_len), "its value has another length [301]")
        need(item.place or not item.value_id, "it has an id without pieces [301]")
        need(offset >> 8 == name_hash(name, self.seed), "it lies at a place of another name [313]")
        need(name not in inode.attributes, "its name occurs twice [313]")
        need(inode.item.flags & 1, "the inode has no attributes [314]")
        inode.attributes[name] = rest
        if item.place:
            need(item.value_id < inode.item.value_next, "its id was never handed out [314]")
            del inode.attributes[name]
            self.longs.append((inode, name, item))

    def piece(self, inode, offset, value):
        """A piece of a long value."""
        inode.pieces[offset] = value

    def extent(self, inode, offset, value):
        """A range of a file with its checksums."""
        item = EXTENT_ITEM.at(value)
        sums = None if item.state else value[EXTENT_ITEM.size :]
        need(item.state < 2 and not (item.codec or item.place or item.reserved), "it is of no kind [301]")
        need(len(value) == EXTENT_ITEM.size + (0 if item.state else 8 * item.count), "it has another length [301]")
        need(item.count and not item.block >> 56, "it has no blocks [301]")
        need(offset % BLOCK == 0 and offset + item.count * BLOCK <= FILE_LIMIT, "it is at no place of a file [306]")
        need(inode.type in (REGULAR, SYMLINK), "it is an extent of no file [304]")
        need(inode.inline is None, "there is inline content as well [310]")
        need(self.geometry.is_data(item.block, item.count), "it lies outside of the data zone [308]")
        need(1 <= item.birth <= self.volume.birth_limit, "its birth is none [316]")
        last = inode.extents[-1] if inode.extents else Extent(0, 0, 0, None, 0)
        need(offset // BLOCK >= last.start + last.count, "it overlaps another one [307]")
        inode.extents.append(Extent(offset // BLOCK, item.block, item.count, sums, item.birth))
        inode.allocated += item.count
        self.extents.append((item.block, item.block + item.count, inode, inode.extents[-1]))

    def orphan(self, inode, _, value):
        """An inode that is being removed."""
        need(not value and inode.item.nlink == 0, "it has links or a value [602]")
        self.orphans.add(inode.number)

    def punch(self, inode, _, value):
        """A range that reads as zeros."""
        item = PUNCH_ITEM.at(value)
        need(len(value) == PUNCH_ITEM.size and item.state < 2 and not any(item.reserved), "it is none [301]")
        need(item.first < item.end <= FILE_LIMIT // BLOCK, "it is at no place of a file [301]")
        need(inode.type == REGULAR, "it is of no regular file [605]")
        inode.punch = (item.first, item.end)

    def join_values(self):
        """Long values of attributes from their pieces [312]."""
        for inode, name, item in self.longs:
            parts, size = [], 0
            while size < item.value_len:
                part = inode.pieces.get(item.value_id << 16 | len(parts), b"")
                if not part:
                    break
                parts.append(part)
                size += len(part)
            whole = all(len(part) == self.geometry.value_limit for part in parts[:-1])
            if size == item.value_len and whole:
                inode.attributes[name] = b"".join(parts)
            else:
                self.findings.add(f"inode {inode.number}: the value of an attribute is not whole [312]")

    def drop_shared(self):
        """Blocks belong to one file [401]; so no image makes this reader read more than it holds."""
        end = 0
        for first, behind, inode, extent in sorted(self.extents, key=lambda found: found[:2]):
            if first < end:
                self.findings.add(f"inode {inode.number}: block {first} belongs to something else as well [401]")
                inode.extents.remove(extent)
            end = max(end, behind)

    def check_content(self):
        """What inodes say of their content must be so."""
        for number, inode in self.inodes.items():
            size = inode.item.size
            if inode.type == SYMLINK and not (1 <= size <= 4095 and (inode.inline or inode.extents)):
                self.findings.add(f"inode {number}: a symbolic link without a target [304]")
            if inode.item.nlink == 0 and number not in self.orphans:
                self.findings.add(f"inode {number}: no link, and no orphan [603]")

    def is_whole(self, number):
        """Whether no node with items of the inode is lost."""
        at = bisect.bisect_left(self.lost, ((number + 1,),))
        return at == 0 or self.lost[at - 1][1] <= (number,)

    def content(self, inode):
        """The content in pieces, in order. Holes have no data; what is damaged has neither data nor sum."""
        size = inode.item.size
        if not self.is_whole(inode.number):
            yield Piece(0, size, None, None, f"inode {inode.number}: a node with items of it is lost")
            return
        if inode.inline is not None:
            yield Piece(0, size, inode.inline, None, None)
            return
        at = 0
        for extent in inode.extents:
            start, end = extent.start * BLOCK, (extent.start + extent.count) * BLOCK
            if extent.sums is None or start >= size:
                continue
            if at < start:
                yield Piece(at, start - at, None, None, None)
            yield from self.written(inode, extent)
            at = min(end, size)
        if at < size:
            yield Piece(at, size - at, None, None, None)

    def written(self, inode, extent):
        """The blocks of an extent that lie before the file's end."""
        for at in range(extent.count):
            offset = (extent.start + at) * BLOCK
            length = min(BLOCK, inode.item.size - offset)
            if length <= 0:
                return
            if inode.punch[0] <= extent.start + at < inode.punch[1]:
                yield Piece(offset, length, None, None, None)
                continue
            wanted = u64(extent.sums, 8 * at)
            try:
                data = self.volume.data(extent.block + at)
                need(block_sum(data) == wanted, f"block {extent.block + at}: its sum does not match")
                yield Piece(offset, length, data[:length], wanted if length == BLOCK else None, None)
            except Damage as error:
                yield Piece(offset, length, None, None, f"inode {inode.number}, byte {offset}: {error}")

    def content_sum(self, inode):
        """The sum of the content; nothing if a part of it is damaged, which is said."""
        result, damaged = 0, False
        for piece in self.content(inode):
            if piece.damage:
                damaged = True
                self.findings.add(piece.damage)
            elif not damaged:
                own = zeros_sum(piece.length) if piece.data is None else piece.sum
                result = join(result, crc64(piece.data) if own is None else own, piece.length)
        return None if damaged else result

    def target(self, inode):
        """The target of a symbolic link; nothing if it is damaged."""
        if inode.item.size > 4095:
            return None
        pieces = list(self.content(inode))
        damage = [piece.damage for piece in pieces if piece.damage]
        for text in damage:
            self.findings.add(text)
        return None if damage else b"".join(piece.data or bytes(piece.length) for piece in pieces)

    def walk(self):
        """Paths and inodes from the root on, sorted; a directory comes before what is in it."""
        stack, seen = [(b"/", 1, DIRECTORY)], set()
        while stack:
            path, number, kind = stack.pop()
            inode = self.inodes.get(number)
            where = printable(path[:200])
            if inode is None:
                self.findings.add(f"{where}: inode {number} is not there [{501 if number == 1 else 502}]")
                continue
            if inode.type != kind:
                self.findings.add(f"{where}: it is of another type than its entry says [503]")
                continue
            if inode.item.nlink == 0:
                self.findings.add(f"{where}: inode {number} has a name and no link [507]")
            if inode.type == DIRECTORY and number in seen or len(path) > PATH_LIMIT:
                self.findings.add(f"{where}: a directory is reached twice, or its path is too long [509]")
                continue
            seen.add(number)
            yield path, inode
            base = path if path == b"/" else path + b"/"
            names = sorted(inode.entries, reverse=True)
            stack.extend((base + name, *inode.entries[name][:2]) for name in names)

    def find(self, path):
        """The inode at a path."""
        inode = self.inodes.get(1)
        for name in os.fsencode(path).split(b"/"):
            if name and inode is not None:
                found = inode.entries.get(name)
                inode = found and self.inodes.get(found[0])
        need(inode is not None, f"{path}: no such file")
        return inode


class Volume:
    """The state of a volume, read from an image."""

    def __init__(self, path, far, tree, findings):
        self.findings = findings
        self.image = Image(path)
        if far:
            self.superblock = find_far_copy(self.image)
        else:
            self.superblock = choose_superblock(self.image, findings)
        self.geometry = self.superblock.geometry
        need(self.superblock.volume_blocks <= self.image.blocks, "the device is shorter than the volume [104]")
        self.nodes = nodes = Nodes(self.image, self.superblock)
        self.journal = Journal(self.image, self.superblock, nodes, findings)
        self.journal.replay()
        state = self.journal.state
        self.reached, lost = {}, []
        roots = (state.space_block, state.space_epoch, state.space_level)
        self.space = dict(nodes.walk(SPACE, roots, findings, self.reached, lost))
        features = self.superblock.compat or self.superblock.unknown_ro_compat
        self.lineage = Lineage(self.space, features, any(upper > (LINEAGE,) for _, upper in lost))
        # Items of files trees, by their numbers, and what of them is lost; of the space tree with 0.
        self.trees, self.lost = {}, {0: lost}
        self.log = Log(self.image, self.superblock, self.journal, nodes, findings)
        if not self.journal.damaged:
            self.log.replay(self)
        self.inode_next, self.birth_limit = self.log.inode_next, self.journal.state_epoch + 1
        self.chosen = self.lineage.find(tree)
        self.files = self.files_of(self.chosen)

    def root(self, number):
        """Root and number of inodes of a branch or snapshot."""
        state, item = self.journal.state, self.lineage.tree(number)
        if number == MAIN:
            return (state.files_block, state.files_epoch, state.files_level), self.log.inode_count
        need(item, f"tree {number} is not there [1003]")
        if item.kind == SNAPSHOT:
            return (item.root_block, item.root_epoch, item.level), item.inode_count
        root = self.lineage.root(number)
        need(root, f"branch {number} has no root [1002]")
        return (root.block, root.epoch, root.level), self.log.counts.get(number, root.inode_count)

    def items(self, number):
        """All items of a tree, of the space tree with 0."""
        if number == 0:
            return self.space
        if not self.has(number):
            # What the log says of it is all that is known.
            self.lost.setdefault(number, [])
            return self.trees.setdefault(number, {})
        if number not in self.trees:
            # Into a set of its own: other trees have the same nodes.
            reached, self.lost[number], cursor = {}, [], self.lineage.cursor(number)
            root = self.root(number)[0]
            walk = self.nodes.walk(FILES, root, self.findings, reached, self.lost[number], cursor)
            self.trees[number] = dict(walk)
            self.reached |= reached
            if not self.lost[number] and not cursor:
                self.compare_referenced(number, reached)
        return self.trees[number]

    def has(self, number):
        """Whether a tree is there. One that is not may have stood in a damaged node."""
        return number == 0 or not self.lineage.lost or self.lineage.has_root(number)

    def is_lost(self, number, key):
        """Whether an item would have stood in a damaged node."""
        if not self.has(number):
            return True
        self.items(number)
        return any(lower <= key < upper for lower, upper in self.lost[number])

    def compare_referenced(self, number, nodes):
        """Says so if a tree does not count the blocks that it refers to. The log changes neither."""
        item = self.journal.state
        if number != MAIN:
            item = self.lineage.tree(number)
            item = item if item.kind == SNAPSHOT else self.lineage.root(number)
        extents = (value for key, value in self.trees[number].items() if key[1] == EXTENT)
        places = sum(len(self.geometry.places(block, *of)) for block, of in nodes.items())
        of_nodes = places * self.geometry.node_blocks
        found = of_nodes + sum(u32(value, 16) for value in extents if len(value) >= 20)
        if item.referenced != found:
            self.findings.add(f"tree {number} counts {item.referenced} blocks that it refers to, there are {found} [210]")

    def files_of(self, number):
        """The files of a tree."""
        items = self.items(number)
        return Files(self, items, self.lost[number], self.root(number)[1])

    def data(self, block):
        """A block of data: from the log, if it lies there."""
        return self.log.data.get(block) or self.image.read(block)


# Commands.


def printable(path):
    """A path on one line, without spaces."""
    return "".join(chr(byte) if 33 <= byte < 127 and byte != 37 else f"%{byte:02X}" for byte in path)


def info(volume, _):
    """What the volume is."""
    block, journal, log = volume.superblock, volume.journal, volume.log
    facts = {
        "version": block.version, "uuid": block.uuid.hex(), "label": block.label, "writer": block.writer,
        "epoch": block.epoch, "node_size": block.node_size, "volume_blocks": block.volume_blocks,
        "log_start": block.log_start, "log_blocks": block.log_blocks, "journal_start": block.journal_start,
        "journal_blocks": block.journal_blocks, "data_start": block.data_start,
        "features_compat": f"{block.compat:#x}", "features_ro_compat": f"{block.ro_compat:#x}",
        "fault": block.fault_reason or "none", "commits": journal.commits, "closed": journal.closed,
        "batches": log.applied, "lsn": log.lsn, "inode_next": log.inode_next, "inodes": len(volume.files.inodes),
    }
    for name, value in facts.items():
        print(f"{name} {value}")


def attributes_sum(volume, inode):
    """The sum of all attributes: names and values, each behind its length."""
    if not volume.files.is_whole(inode.number):
        return "damaged"
    parts = []
    for name in sorted(inode.attributes):
        value = inode.attributes[name]
        parts += [struct.pack("<II", len(name), len(value)), name, value]
    return f"{crc64(b''.join(parts)):016x}" if parts else "-"


def listing(volume, options):
    """One line for each name."""
    sums = {}
    for path, inode in volume.files.walk():
        if inode.type in (REGULAR, SYMLINK) and inode.number not in sums and not options.quick:
            found = volume.files.content_sum(inode)
            sums[inode.number] = "damaged" if found is None else f"{found:016x}"
        item = inode.item
        mtime = item.mtime * 10**9 + item.mtime_ns
        fields = (TYPES[inode.type], f"{item.mode & 0o7777:04o}", item.uid, item.gid, item.size, mtime, item.nlink,
                  item.rdev, sums.get(inode.number, "-"), attributes_sum(volume, inode), printable(path))
        print(*fields)


def cat(volume, options):
    """The content of a file, up to what is damaged."""
    inode = volume.files.find(options.argument)
    need(inode.type in (REGULAR, SYMLINK), f"{options.argument}: no regular file")
    for piece in volume.files.content(inode):
        need(not piece.damage, piece.damage)
        if piece.data is not None:
            sys.stdout.buffer.write(piece.data)
            continue
        for at in range(0, piece.length, 1 << 20):
            sys.stdout.buffer.write(bytes(min(1 << 20, piece.length - at)))
    sys.stdout.buffer.flush()


def extract(volume, options):
    """All files. A block that is damaged becomes a hole."""
    root = os.fsencode(options.argument)
    os.makedirs(root, mode=0o700, exist_ok=True)
    need(not os.listdir(root), f"{options.argument}: not empty")
    first, directories = {}, []
    for path, inode in volume.files.walk():
        target = root + path
        try:
            if inode.type == DIRECTORY:
                if path != b"/":
                    os.mkdir(target, 0o700)
                directories.append((target, inode))
            elif inode.number in first:
                os.link(first[inode.number], target, follow_symlinks=False)
            elif make(volume, inode, target):
                first[inode.number] = target
                dress(volume, inode, target)
        except (OSError, ValueError, OverflowError) as error:
            volume.findings.add(f"{printable(path[:200])}: {getattr(error, 'strerror', None) or error}")
    for target, inode in reversed(directories):
        dress(volume, inode, target)


def make(volume, inode, target):
    """Makes a file that is no directory; whether it could."""
    if inode.type == REGULAR:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            for piece in volume.files.content(inode):
                if piece.damage:
                    volume.findings.add(piece.damage)
                elif piece.data:
                    os.lseek(file, piece.offset, os.SEEK_SET)
                    with open(file, "wb", closefd=False) as out:
                        out.write(piece.data)
            os.truncate(file, inode.item.size)
        finally:
            os.close(file)
    elif inode.type == SYMLINK:
        link = volume.files.target(inode)
        if link is None:
            return False
        os.symlink(link, target)
    else:
        os.mknod(target, stat.S_IFMT(inode.item.mode) | 0o600, inode.item.rdev)
    return True


def dress(volume, inode, target):
    """Owner if root, attributes, mode and times."""
    item, mode = inode.item, inode.item.mode & 0o7777
    steps = [lambda: os.utime(target, ns=(item.atime * 10**9 + item.atime_ns, item.mtime * 10**9 + item.mtime_ns),
                              follow_symlinks=False)]
    if inode.type != SYMLINK:
        # Who gets the file instead of its owner gives nobody rights by it.
        steps.insert(0, lambda: os.chmod(target, mode if os.geteuid() == 0 else mode & 0o1777))
    for name, value in inode.attributes.items():
        steps.insert(0, lambda name=name, value=value: os.setxattr(target, name, value, follow_symlinks=False))
    if os.geteuid() == 0:
        steps.insert(0, lambda: os.chown(target, item.uid, item.gid, follow_symlinks=False))
    for step in steps:
        try:
            step()
        except (OSError, ValueError, OverflowError) as error:
            volume.findings.add(f"{printable(target[-200:])}: {getattr(error, 'strerror', None) or error}")


def list_trees(volume, _):
    """One line for each branch and snapshot."""
    for number in sorted({MAIN, *volume.lineage.numbers()}):
        item = volume.lineage.tree(number) or SimpleNamespace(kind=BRANCH, parent=0, epoch=0)
        kind = "branch" if item.kind == BRANCH else "snapshot"
        deleted = item.kind == SNAPSHOT and volume.lineage.deleted(number, item)
        state = "deleted" if deleted else f"holds={len(volume.lineage.tags(number))}"
        count = volume.root(number)[1]
        name = printable(volume.lineage.label(number))
        print(f"{number} {kind} parent={item.parent} epoch={item.epoch} inodes={count} {state} {name}")


def check(volume, options):
    """Everything else that can be held against the document."""
    check_lineage(volume)
    extents, seen = [], set()
    for number in sorted({MAIN, *volume.lineage.numbers()}):
        cursor = volume.lineage.cursor(number)
        if cursor:
            extents += behind(volume.items(number), cursor)
            continue
        files = volume.files if number == volume.chosen else volume.files_of(number)
        check_names(volume, files)
        for first, end, inode, extent in files.extents:
            extents.append((first, end, inode.number, extent.start, extent.birth))
        inodes = [] if options.quick else sorted(files.inodes.items())
        for of, inode in inodes:
            # What trees share is read once.
            what = (of, inode.item.size, inode.inline, inode.punch, tuple(inode.extents))
            if what not in seen:
                seen.add(what)
                files.content_sum(inode)
    check_space(volume, extents)
    counts = f"{len(volume.files.inodes)} inodes, {volume.journal.commits} commits, {volume.log.applied} batches"
    inside = sum(len(batch.patches) for batch in volume.log.batches)
    named = sum(count for batch in volume.log.batches for _, count, _ in batch.named)
    print(f"{counts}, {inside} blocks inside, {named} named: {volume.findings.count} findings")


def behind(items, cursor):
    """The extents of a tree that is being deleted, from its cursor on."""
    for (inode, kind, offset), value in items.items():
        if kind != EXTENT:
            continue
        item = EXTENT_ITEM.at(value)
        gone = passed(cursor, inode, offset, item.count)
        if gone < item.count:
            yield item.block + gone, item.block + item.count, inode, offset // BLOCK + gone, item.birth


def check_lineage(volume):
    """How branches and snapshots grew out of one another [10xx]."""
    lineage, add = volume.lineage, volume.findings.add
    trees = {number: lineage.tree(number) for number in lineage.numbers()}
    found = lineage.items.get((LINEAGE, NEXT_ITEM, 0), bytes(16))
    going = {number: lineage.goes_to(number) for number in lineage.going()}
    children = {(number, item.parent) for number, item in trees.items() if item.parent}
    children |= {(number, of) for number, to in going.items() for of in (0, to)}
    listed = {(key[2], key[0] - LINEAGE) for key in lineage.items if key[1] == CHILD_ITEM}
    for inode, kind, offset in lineage.items:
        if kind in (HOLD_ITEM, ORIGIN_ITEM):
            lineage.hold(inode, offset) if kind == HOLD_ITEM else lineage.origin(inode, offset)
            if inode - LINEAGE not in trees or trees[inode - LINEAGE].kind != SNAPSHOT:
                add(f"item {(inode, kind, offset)} is of no snapshot [1001]")
    for number, parent in children ^ listed:
        add(f"tree {number}: it grew out of {parent} and is not listed there, or the reverse [1005]")
    for number, to in going.items():
        if to not in (0, MAIN) and (to not in trees or trees[to].kind != BRANCH):
            add(f"tree {number}: its snapshots are of {to}, which is no branch [1011]")
    called = Counter((lineage.branch_of(item), item.name) for item in trees.values() if item.name)
    for (branch, name), count in called.items():
        if count > 1:
            add(f"{count} snapshots of {branch} are named {name} [1006]")
    for number, item in trees.items():
        parent = trees.get(item.parent)
        if number >= u64(found, 0):
            add(f"tree {number}: its number was never given [1010]")
        if item.name and lineage.named(item.branch, item.name) != number:
            add(f"tree {number}: it is not found by its name [1006]")
        if item.kind == SNAPSHOT and (item.epoch >= volume.birth_limit or item.lsn > volume.log.lsn):
            add(f"snapshot {number}: it is younger than the volume [1007]")
        if item.kind == SNAPSHOT and item.name and item.branch not in {*trees, *going, MAIN}:
            add(f"snapshot {number}: its branch is not there [1011]")
        if item.parent and (parent is None or parent.kind != SNAPSHOT):
            add(f"tree {number}: it grew out of {item.parent}, which is no snapshot [1003]")
            continue
        if item.parent and item.kind == SNAPSHOT and item.epoch < parent.epoch:
            add(f"snapshot {number}: it is older than {item.parent} [1007]")
        root = volume.root(number)[0]
        if item.parent and root[1] <= parent.epoch and root[:2] != (parent.root_block, parent.root_epoch):
            add(f"tree {number}: its root is neither that of {item.parent} nor younger [1008]")
        if lineage.cursor(number) and (item.kind != SNAPSHOT or item.name or lineage.tags(number)):
            add(f"tree {number}: it is being deleted and is no snapshot, or has a name or holds [1009]")
        if going.get(item.branch) == 0 and lineage.tags(number):
            add(f"snapshot {number}: its branch goes, and it is held [1009]")


def check_names(volume, files):
    """Numbers of names and entries, parents, sizes of directories [3xx] [5xx]."""
    add = volume.findings.add
    links, subdirectories, places = Counter(), Counter(), set()
    for number, inode in files.inodes.items():
        for child, kind, offset in inode.entries.values():
            links[child] += 1
            subdirectories[number] += kind == DIRECTORY
            places.add((child, number, offset))
    walked = {inode.number for _, inode in files.walk()}
    for number, inode in files.inodes.items():
        item, directory = inode.item, inode.type == DIRECTORY
        if item.blocks != inode.allocated:
            add(f"inode {number}: {inode.allocated} blocks, not {item.blocks} [309]")
        if item.nlink == 0:
            continue
        if item.nlink != (2 + subdirectories[number] if directory else links[number]):
            add(f"inode {number}: nlink {item.nlink} is not what is found [507]")
        if directory and item.size != len(inode.entries):
            add(f"inode {number}: {len(inode.entries)} entries, not {item.size} [506]")
        if number == 1:
            if (item.parent, item.parent_slot) != (1, 0):
                add("the root has another parent than itself [512]")
        elif item.parent and (number, item.parent, item.parent_slot) not in places:
            add(f"inode {number}: no name where its parent says [512]")
        if directory and number != 1 and links[number] != 1:
            add(f"inode {number}: a directory with {links[number]} names [509]")
        if number not in walked:
            add(f"inode {number}: not reached from the root [510]")
    if len(files.inodes) != files.count:
        add(f"{len(files.inodes)} inodes, not {files.count} [315]")


def check_space(volume, extents):
    """What is marked as in use against what all trees reach [40x]."""
    add, geometry = volume.findings.add, volume.geometry
    marked, groups, shared_items = [], {}, []
    counts = volume.superblock.ro_compat & SHARED_BLOCKS
    for (number, kind, offset), value in volume.space.items():
        if kind == GROUP_ITEM:
            groups[offset] = struct.unpack("<IIII", value) if len(value) == 16 and number == 0 else (-1, 0, 0, 0)
        elif kind == SHARED_ITEM and counts and len(value) == 8 and offset < GROUP:
            blocks, references = struct.unpack("<II", value)
            first = number * GROUP + offset
            right = 0 < blocks <= GROUP - offset and references > 1 and (not shared_items or shared_items[-1][1] <= first)
            shared_items += [(first, first + blocks, references)] if right else []
            if not right:
                add(f"shared blocks {(number, offset)} cannot be [404]")
        elif kind == BITMAP_ITEM and len(value) == 512 and offset < 8:
            bits = f"{int.from_bytes(value, 'little'):0{BITS_PER_ITEM}b}"[::-1]
            base = number * GROUP + offset * BITS_PER_ITEM
            marked += [(base + run.start(), base + run.end()) for run in re.finditer("1+", bits)]
        elif kind in KNOWN_KINDS[SPACE] - OF_LINEAGE:
            add(f"item {(number, kind, offset)} of the space tree is none [404] [408]")
    nodes = [(at, at + geometry.node_blocks) for block, of in volume.reached.items() for at in geometry.places(block, *of)]
    used, node_used, shared_used = per_group(marked), per_group(nodes), per_group([item[:2] for item in shared_items])
    for group in sorted(set(used) | set(groups)):
        *found, slots = groups.get(group, (0, 0, 0, 0))
        has = [used[group], node_used[group], shared_used[group]]
        if found != has:
            add(f"group {group}: says {found}, has {has} [406]")
        elif slots > free_slots(geometry, group, marked):
            add(f"group {group}: has fewer than {slots} free slots [406]")
    if sum(used.values()) != volume.journal.state.used_blocks:
        add(f"{sum(used.values())} blocks are marked, not {volume.journal.state.used_blocks} [407]")
    for first, end in marked:
        if not geometry.is_data(first, end - first):
            add(f"block {first} is marked and lies outside of the data zone [405]")
    taken, freed = sorted(volume.log.taken), sorted(volume.log.freed)
    if overlap(sorted(marked + taken)) or overlap(freed) or minus(freed, union(marked + taken)):
        add("the log takes blocks that are in use, or gives back others [904]")
    in_use = minus(union(marked + taken), freed)
    if counts and with_references(extents) != joined(shared_items):
        add("references to blocks are not as many as are counted [401] [406]")
    reached = nodes + union_of_files(extents, (lambda _: None) if counts else add)
    for first, end in minus(union(reached), in_use):
        add(f"blocks {first} to {end - 1} are in use and not marked [402]")
    for first, end in minus(in_use, union(reached)):
        add(f"blocks {first} to {end - 1} are marked and not in use [403]")
    if overlap(sorted(reached)):
        add(f"block {overlap(sorted(reached))[0]} belongs to two [401]")


def union_of_files(extents, add):
    """Runs of blocks of files: several trees may have the same block of the same file, born together [401]."""
    last, owner, runs = 0, None, []
    for first, end, inode, start, birth in sorted(extents):
        own = (inode, start - first, birth)
        if first < last and own != owner:
            add(f"block {first} belongs to two [401]")
        if end > last:
            runs.append((max(first, last), end))
            last, owner = end, own
    return union(runs)


def with_references(extents):
    """Runs of blocks with more than one reference, and how many: file, birth and place tell references apart."""
    own, change, result, last, count = {}, Counter(), [], 0, 0
    for first, end, inode, start, birth in extents:
        own.setdefault((inode, start - first, birth), []).append((first, end))
    for runs in own.values():
        for first, end in union(runs):
            change[first] += 1
            change[end] -= 1
    for at in sorted(change):
        result += [(last, at, count)] if count > 1 else []
        last, count = at, count + change[at]
    return joined(result)


def joined(counted):
    """Runs with a number, of which none touches another one with the same number."""
    result = []
    for first, end, count in counted:
        if result and result[-1][1:] == (first, count):
            first = result.pop()[0]
        result.append((first, end, count))
    return result


def per_group(runs):
    """How many blocks of runs lie in each group."""
    counts = Counter()
    for first, end in runs:
        while first < end:
            behind = min(end, (first // GROUP + 1) * GROUP)
            counts[first // GROUP] += behind - first
            first = behind
    return counts


def free_slots(geometry, group, marked):
    """How many nodes, each with its copy, have room in a group."""
    begin, end = group * GROUP, (group + 1) * GROUP
    taken = {block for first, behind in marked for block in range(max(first, begin), min(behind, end))}
    count = geometry.node_blocks
    places = (geometry.places(block, SPACE, 0) for block in range(begin, min(end, geometry.far), count))
    is_free = lambda at: geometry.is_data(at, count) and taken.isdisjoint(range(at, at + count))
    return sum(block[0] == min(block) and all(map(is_free, block)) for block in places)


def overlap(runs):
    """The first run of sorted ones that overlaps the one before it."""
    return next((later for run, later in zip(runs, runs[1:]) if later[0] < run[1]), None)


def run_with(runs, block):
    """The run that has a block, of sorted ones that do not overlap; or nothing."""
    at = bisect.bisect_right(runs, (block, 1 << 64)) - 1
    return runs[at] if at >= 0 and runs[at][1] > block else None


def is_touched(runs, run):
    """Whether sorted runs that do not overlap have any block of a run."""
    at = bisect.bisect_left(runs, (run[1], 0)) - 1
    return at >= 0 and runs[at][1] > run[0]


def insert_run(runs, run):
    """Adds a run to sorted ones that do not overlap."""
    first, end = run
    at = bisect.bisect_left(runs, (first, first))
    at -= at > 0 and runs[at - 1][1] >= first
    behind = at
    while behind < len(runs) and runs[behind][0] <= end:
        first, end = min(first, runs[behind][0]), max(end, runs[behind][1])
        behind += 1
    runs[at:behind] = [(first, end)]


def held_once(parts):
    """Parts of what trees had: where they lie over one another, a block is the first one's."""
    result, done = [], 0
    for first, end, birth, *place in sorted(parts, key=lambda part: (*part[:2], *part[3:], part[2])):
        if max(first, done) < end:
            result.append((max(first, done), end, birth, *place))
            done = end
    return result


def union(runs):
    """Sorted runs without overlap or touch."""
    result = []
    for first, end in sorted(runs):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return result


def minus(runs, others):
    """What sorted runs have and other sorted runs have not."""
    result, others, at = [], union(others), 0
    for first, end in runs:
        while at < len(others) and others[at][1] <= first:
            at += 1
        look = at
        while first < end:
            start, behind = others[look] if look < len(others) else (end, end)
            if first < min(start, end):
                result.append((first, min(start, end)))
            first, look = max(first, behind), look + 1
    return result


COMMANDS = {"info": info, "list": listing, "cat": cat, "extract": extract, "check": check}
LIST_TREES = "--list-trees"


def main():
    """Reads the command line and runs a command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    parser.add_argument("--far", action="store_true", help="begin from the far copy of the superblock")
    parser.add_argument("--quick", action="store_true", help="list and check without the data of files")
    parser.add_argument("--tree", metavar="BRANCH[@SNAPSHOT]", default="main", help="another branch than main, or a snapshot")
    parser.add_argument(LIST_TREES, action="store_true", help="list branches and snapshots instead")
    parser.add_argument("image", metavar="IMG")
    parser.add_argument("command", nargs="?", metavar="COMMAND", choices=COMMANDS, help=", ".join(COMMANDS))
    parser.add_argument("argument", nargs="?", metavar="PATH or DIR")
    options = parser.parse_intermixed_args()
    if (options.command is None) != options.list_trees:
        parser.error(f"a command is wanted, or {LIST_TREES}")
    if (options.command in ("cat", "extract")) != (options.argument is not None):
        parser.error("cat and extract want a path, the others none")
    command = list_trees if options.list_trees else COMMANDS[options.command]
    findings = Findings()
    try:
        command(Volume(options.image, options.far, options.tree, findings), options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (Damage, Refused, MemoryError) as error:
        findings.add(str(error) or "the volume wants more memory than there is")
    except OSError as error:
        findings.add(f"{error.filename or options.image}: {error.strerror}")
    return 1 if findings.count else 0


if __name__ == "__main__":
    sys.exit(main())
