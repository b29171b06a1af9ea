//! Cuts placed pieces into segments: stretches of the device that are filled in memory and
//! written with one call.
//!
//! Because a placement is dense, a segment usually holds many small files, their directories and
//! their maps, or one part of a large file: the number of writes depends on bytes, not on files.

use crate::place::{Content, Piece};

/// Bytes of a segment; what stays in a core's own cache between filling and writing.
pub(crate) const SEGMENT_BYTES: u64 = 1 << 20;

/// Blocks to fill: part of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) blocks: u32,
    pub(crate) content: Content,
}

/// A stretch of the device with nothing in it unplanned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) pblk: u64,
    pub(crate) blocks: u64,
    pub(crate) parts: Vec<Part>,
}

/// Iterator over the segments of pieces in ascending order.
pub(crate) struct Segments<P> {
    pieces: P,
    rest: Option<Piece>,
    limit: u64,
}

impl<P: Iterator<Item = Piece>> Segments<P> {
    /// Segments of at most [`SEGMENT_BYTES`]. A directory that is larger has one of its own: it is
    /// laid out once, and its blocks are made some at a time.
    pub(crate) fn new(pieces: P, block_bytes: u64) -> Self {
        let limit = (SEGMENT_BYTES / block_bytes).max(1);
        Self {
            pieces,
            rest: None,
            limit,
        }
    }

    fn is_alone(&self, piece: &Piece) -> bool {
        let is_directory = matches!(piece.content, Content::Directory { .. });
        is_directory && u64::from(piece.blocks) > self.limit
    }

    /// The next piece, or its rest if it was cut. Seals are written elsewhere.
    fn next_piece(&mut self) -> Option<Piece> {
        let is_filled = |piece: &Piece| !matches!(piece.content, Content::Seal { .. });
        self.rest.take().or_else(|| self.pieces.find(is_filled))
    }
}

impl<P: Iterator<Item = Piece>> Iterator for Segments<P> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let mut segment = Segment::default();
        while segment.blocks < self.limit {
            let Some(piece) = self.next_piece() else {
                break;
            };
            if segment.parts.is_empty() {
                segment.pblk = piece.pblk;
            } else if piece.pblk != segment.pblk + segment.blocks || self.is_alone(&piece) {
                self.rest = Some(piece);
                break;
            }
            let room = self.limit - segment.blocks;
            let (part, rest) = cut(piece, room);
            segment.blocks += u64::from(part.blocks);
            segment.parts.push(Part {
                blocks: part.blocks,
                content: part.content,
            });
            self.rest = rest;
        }
        (!segment.parts.is_empty()).then_some(segment)
    }
}

/// At most `room` blocks of a piece, and the rest of it.
fn cut(piece: Piece, room: u64) -> (Piece, Option<Piece>) {
    let Content::File { node, lblk } = piece.content else {
        return (piece, None);
    };
    if u64::from(piece.blocks) <= room {
        return (piece, None);
    }
    let head = room as u32;
    let rest = Piece {
        pblk: piece.pblk + room,
        blocks: piece.blocks - head,
        content: Content::File {
            node,
            lblk: lblk + head,
        },
    };
    (
        Piece {
            blocks: head,
            ..piece
        },
        Some(rest),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::NodeId;

    fn file(pblk: u64, blocks: u32) -> Piece {
        Piece {
            pblk,
            blocks,
            content: Content::File {
                node: NodeId::ROOT,
                lblk: 0,
            },
        }
    }

    fn outline(pieces: &[Piece], block_bytes: u64) -> Vec<(u64, u64, usize)> {
        Segments::new(pieces.iter().copied(), block_bytes)
            .map(|s| (s.pblk, s.blocks, s.parts.len()))
            .collect()
    }

    #[test]
    fn neighbours_share_a_segment_and_a_gap_ends_it() {
        let pieces = [file(10, 2), file(12, 3), file(20, 1)];
        assert_eq!(outline(&pieces, 4096), [(10, 5, 2), (20, 1, 1)]);
    }

    #[test]
    fn a_large_file_is_cut_and_goes_on_where_it_was_cut() {
        let pieces = [file(10, 1), file(11, 600), file(611, 1)];
        let segments: Vec<Segment> = Segments::new(pieces.into_iter(), 4096).collect();
        let blocks: Vec<u64> = segments.iter().map(|s| s.blocks).collect();
        assert_eq!(blocks, [256, 256, 90]);
        let Content::File { lblk, .. } = segments[1].parts[0].content else {
            panic!("a file")
        };
        assert_eq!(lblk, 255);
        assert_eq!(segments[2].parts.len(), 2);
    }

    #[test]
    fn a_large_directory_is_whole_and_alone() {
        let content = Content::Directory {
            ino: extant_format::Ino::ROOT,
            lblk: 0,
        };
        let pieces = [
            file(10, 1),
            Piece {
                pblk: 11,
                blocks: 1000,
                content,
            },
        ];
        assert_eq!(outline(&pieces, 4096), [(10, 1, 1), (11, 1000, 1)]);
    }
}
