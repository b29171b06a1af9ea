//! The checker against e2fsck: images that are sound, and images that are not.

mod charges;
mod cuts;
mod damage;
mod far;
mod hostile_images;
mod keeping;
mod kernel_images;
mod kinds_of_damage;
mod meaning;
mod mount_rules;
mod noise;
mod refused_fields;
mod repair;
mod repair_crashes;
mod repair_losses;
mod repair_names;
mod repair_net;
mod resize_crashes;
mod sound_images;
mod support;
mod tune_crashes;
mod tune_inodes;
mod tune_sweep;
mod tune_unused;
mod undo_sums;
mod verity;
