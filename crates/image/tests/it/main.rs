//! Locations opened, through public doors only.

mod descriptors;
mod formats;
mod parts;
mod refusals;
