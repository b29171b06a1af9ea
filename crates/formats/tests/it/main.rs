//! Integration tests of formats: each is judged by the programs of others.

mod compressed_images;
mod interchange;
mod support;
