//! The command, run as people run it.

mod copying;
mod help;
mod hostile;
mod making;
mod mapping;
mod reading;
mod support;
mod taring;
