//! Extent tree nodes: headers, extents, index entries and tails.
