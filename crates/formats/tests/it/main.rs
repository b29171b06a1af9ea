//! Integration tests of formats: each is judged by the programs of others.

mod compressed_images;
mod crash;
mod hostile;
mod interchange;
mod locks;
mod saying;
mod support;
