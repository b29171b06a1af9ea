//! The command, run as people run it.

mod checking;
mod copying;
mod copying_in;
mod examples;
mod external_journal;
mod help;
mod hostile;
mod inode_rules;
mod lacking;
mod making;
mod mapping;
mod mount_ends;
mod mount_options;
mod mounting;
mod operands;
mod pretending;
mod quotas;
mod reading;
mod recognising;
mod repairing;
mod replacing;
mod resizing;
mod support;
mod taring;
mod tuning;
mod writing;
