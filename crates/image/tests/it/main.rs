//! Locations opened, through public doors only.

mod descriptors;
mod parts;
mod refusals;
