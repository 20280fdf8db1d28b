//! All tests that run the engine on simulated devices, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod agree;
mod branches;
mod broken;
mod campaign;
mod cases;
mod damage_matrix;
mod dead_threads;
mod differences;
mod engine_against_model;
mod fault_loops;
#[path = "../full/mod.rs"]
mod full;
mod full_volume;
mod golden;
mod golden_image;
mod guard_faults;
mod io_errors;
mod log_errors;
mod lying_devices;
#[path = "../many_nodes/mod.rs"]
mod many_nodes;
mod power_cut;
mod power_cut_journal;
mod power_cut_log;
mod power_cut_random;
mod power_cut_reserved;
mod power_cut_threads;
mod refused_in_flight;
mod repeats;
mod second_reader;
mod seeds;
mod superblock_lost;
