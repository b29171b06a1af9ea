//! The command, run as people run it.

mod checking;
mod copying;
mod copying_in;
mod external_journal;
mod help;
mod hostile;
mod making;
mod mapping;
mod mounting;
mod quotas;
mod reading;
mod repairing;
mod resizing;
mod support;
mod taring;
mod tuning;
mod writing;
