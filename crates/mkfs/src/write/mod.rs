//! Writing a planned image, each block once.
