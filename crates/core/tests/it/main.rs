//! Tests of the engine through its public doors.

mod beyond;
mod corpus;
mod crash;
mod crashing;
mod cut_clusters;
mod dirs;
mod fast_commits;
mod gauntlet;
mod hostile;
mod large;
mod limits;
mod memory;
mod meta_cache;
mod opening;
mod owners;
mod pressure;
mod protected;
mod quotas;
mod reading;
mod recovering;
mod support;
mod threads;
mod trees;
mod walk;
mod writing;
mod xattrs;
