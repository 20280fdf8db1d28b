//! Repairs: of each finding, of accidents of all kinds, and cut short.

#[path = "../../../check/tests/common/mod.rs"]
mod common;
#[path = "../../../salvage/tests/all/common/mod.rs"]
mod salvaged;

mod accidents;
mod base_lost;
mod behind_hole;
mod copies;
mod cut;
mod every_finding;
mod fsck_md;
mod given_up;
mod holes;
mod lost_seal;
mod lost_step;
mod older;
mod one_block;
mod power_cuts;
mod ring_places;
mod ring_sweep;
mod room;
mod shared;
mod space_tree;
