//! The checker against e2fsck: images that are sound, and images that are not.

mod beside_others;
mod charges;
mod clean;
mod damage;
mod hostile;
mod kernel;
mod kinds;
mod meaning;
mod mount_rules;
mod repair;
mod repair_crashes;
mod repair_losses;
mod repair_names;
mod repair_net;
mod resize_crashes;
mod support;
mod tune_crashes;
