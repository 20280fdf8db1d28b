//! All tests of the store, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod against_a_map;
mod behind_a_deletion;
mod behind_a_rollback;
#[path = "../branches/mod.rs"]
mod branches;
mod cold_reads;
mod completion_callbacks;
mod confirmed;
mod copies;
#[path = "../crash_generations/mod.rs"]
mod crash_generations;
mod difference;
mod failures;
mod far_copy;
mod guard;
#[path = "../held_back/mod.rs"]
mod held_back;
mod host_room;
mod hostile;
mod journal_for_readers;
mod last_commit;
#[path = "../last_lock/mod.rs"]
mod last_lock;
mod last_locks;
mod limits;
mod lineage;
mod log;
mod log_recovery;
mod many_branches;
mod power_cut;
mod power_cut_log;
mod recovery_time;
mod refused_deletions;
mod ring_places;
mod root_copies;
mod scrub_of_a_gone_device;
mod scrub_rings;
#[path = "../small/mod.rs"]
mod small;
mod shrink;
mod space;
mod superblock_rots;
mod superblock_says;
mod torn_again;
mod wiped_rings;
