//! A plan written as tar, in the dialects found in the wild.
//!
//! Written from the formats' descriptions (POSIX pax, the GNU tar manual's appendix on sparse
//! formats) and on purpose not through a tar library, so that a reader built on one is tested
//! against something else.

use std::io::{self, Write};
use std::ops::Range;

use super::{Content, Node, NodeKind, TreePlan};
use crate::tree::Time;

const BLOCK: usize = 512;

/// The dialect of the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarForm {
    /// POSIX pax: everything is kept (`SCHILY.xattr.*`, nanoseconds, any number).
    Pax,
    /// GNU: long names in entries of their own, big and negative numbers in base 256, whole
    /// seconds, no xattrs.
    Gnu,
}

/// How files with holes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseForm {
    /// Not at all: holes are written as zeros.
    Plain,
    /// Type `S` with the map in the header and extension blocks (needs [`TarForm::Gnu`]).
    OldGnu,
    /// The map in one pax record (`GNU.sparse.map`), version 0.1.
    Pax01,
    /// The map before the data, version 1.0.
    Pax10,
}

impl TreePlan {
    /// Returns the plan as this dialect keeps it: no sockets, and with [`TarForm::Gnu`] no xattrs
    /// and whole seconds. What an extraction is compared with.
    pub fn kept_by(self, form: TarForm) -> TreePlan {
        let mut plan = self.filtered(|node| node.kind != NodeKind::Socket);
        if form == TarForm::Gnu {
            for node in &mut plan.nodes {
                node.xattrs.clear();
                node.mtime.nsec = 0;
            }
        }
        plan
    }

    /// Writes the tree as an uncompressed tar archive, the root as `./`. Sockets are left out.
    ///
    /// # Errors
    ///
    /// What writing to `out` returned.
    ///
    /// # Panics
    ///
    /// When `sparse` does not belong to `form`.
    pub fn write_tar(
        &self,
        out: &mut dyn Write,
        form: TarForm,
        sparse: SparseForm,
    ) -> io::Result<()> {
        let fits = match sparse {
            SparseForm::Plain => true,
            SparseForm::OldGnu => form == TarForm::Gnu,
            SparseForm::Pax01 | SparseForm::Pax10 => form == TarForm::Pax,
        };
        assert!(fits, "{sparse:?} does not belong to {form:?}");
        let mut writer = Writer { out, form, sparse };
        for node in self.nodes.iter().filter(|n| n.kind != NodeKind::Socket) {
            writer.node(self, node)?;
        }
        // End of archive: two blocks of zeros, filled up to a record.
        writer.out.write_all(&[0; 2 * BLOCK])
    }
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    form: TarForm,
    sparse: SparseForm,
}

/// The header fields of one entry before they are squeezed into 512 bytes.
struct Header<'a> {
    name: Vec<u8>,
    link: Vec<u8>,
    kind: u8,
    stored: u64,
    device: (u32, u32),
    /// Whose attributes count: for a hard link, the node it names.
    node: &'a Node,
}

impl Writer<'_> {
    fn node(&mut self, plan: &TreePlan, node: &Node) -> io::Result<()> {
        let mut name = b"./".to_vec();
        name.extend_from_slice(&node.path);
        if node.kind == NodeKind::Directory && !node.path.is_empty() {
            name.push(b'/');
        }
        let mut header = Header {
            name,
            link: Vec::new(),
            kind: b'0',
            stored: 0,
            device: (0, 0),
            node,
        };
        match &node.kind {
            NodeKind::File(content) => return self.file(header, content),
            NodeKind::Directory => header.kind = b'5',
            NodeKind::Symlink(target) => {
                header.kind = b'2';
                header.link.clone_from(target);
            }
            NodeKind::HardLink(target) => {
                header.kind = b'1';
                header.link = [b"./", target.as_slice()].concat();
                header.node = &plan.nodes[plan.index[target]];
            }
            NodeKind::Fifo => header.kind = b'6',
            NodeKind::CharDevice(major, minor) => {
                (header.kind, header.device) = (b'3', (*major, *minor));
            }
            NodeKind::BlockDevice(major, minor) => {
                (header.kind, header.device) = (b'4', (*major, *minor));
            }
            NodeKind::Socket => return Ok(()),
        }
        self.header(&header, Vec::new(), None)
    }

    fn file(&mut self, mut header: Header<'_>, content: &Content) -> io::Result<()> {
        let map = stored_map(content);
        let data: u64 = map.iter().map(|r| r.end - r.start).sum();
        let sparse = if data == content.size {
            SparseForm::Plain
        } else {
            self.sparse
        };
        match sparse {
            SparseForm::Plain => {
                header.stored = content.size;
                self.header(&header, Vec::new(), None)?;
                self.plain_data(content)
            }
            SparseForm::OldGnu => {
                header.kind = b'S';
                header.stored = data;
                self.header(&header, Vec::new(), Some(content))?;
                self.packed_data(content, &map)
            }
            SparseForm::Pax01 => {
                let pairs = with_end(&map, content.size);
                let list: Vec<String> = pairs.iter().map(|(o, n)| format!("{o},{n}")).collect();
                let records = vec![
                    (
                        b"GNU.sparse.size".to_vec(),
                        content.size.to_string().into_bytes(),
                    ),
                    (
                        b"GNU.sparse.numblocks".to_vec(),
                        pairs.len().to_string().into_bytes(),
                    ),
                    (b"GNU.sparse.map".to_vec(), list.join(",").into_bytes()),
                    (b"GNU.sparse.name".to_vec(), header.name.clone()),
                ];
                header.name = b"./GNUSparseFile.0/x".to_vec();
                header.stored = data;
                self.header(&header, records, None)?;
                self.packed_data(content, &map)
            }
            SparseForm::Pax10 => {
                let records = vec![
                    (b"GNU.sparse.major".to_vec(), b"1".to_vec()),
                    (b"GNU.sparse.minor".to_vec(), b"0".to_vec()),
                    (b"GNU.sparse.name".to_vec(), header.name.clone()),
                    (
                        b"GNU.sparse.realsize".to_vec(),
                        content.size.to_string().into_bytes(),
                    ),
                ];
                let pairs = with_end(&map, content.size);
                let mut text = format!("{}\n", pairs.len()).into_bytes();
                for (offset, count) in pairs {
                    text.extend(format!("{offset}\n{count}\n").bytes());
                }
                text.resize(text.len().next_multiple_of(BLOCK), 0);
                header.name = b"./GNUSparseFile.0/x".to_vec();
                header.stored = text.len() as u64 + data;
                self.header(&header, records, None)?;
                self.out.write_all(&text)?;
                self.packed_data(content, &map)
            }
        }
    }

    /// The content with its holes as zeros.
    fn plain_data(&mut self, content: &Content) -> io::Result<()> {
        let mut position = 0;
        let out = &mut *self.out;
        content.for_each_chunk(|at, chunk| {
            zeros(out, at - position)?;
            position = at + chunk.len() as u64;
            out.write_all(chunk)
        })?;
        zeros(out, content.size - position)?;
        pad(out, content.size)
    }

    /// The data of the stored runs, one after the other.
    fn packed_data(&mut self, content: &Content, map: &[Range<u64>]) -> io::Result<()> {
        let out = &mut *self.out;
        let mut runs = map.iter();
        // Nothing to write before the first run is taken up.
        let mut run = 0..0;
        let mut position = 0;
        content.for_each_chunk(|at, chunk| {
            while at >= run.end {
                zeros(out, run.end - position)?;
                let Some(next) = runs.next() else { break };
                run = next.clone();
                position = run.start;
            }
            zeros(out, at - position)?;
            position = at + chunk.len() as u64;
            out.write_all(chunk)
        })?;
        zeros(out, run.end - position)?;
        pad(out, map.iter().map(|r| r.end - r.start).sum())
    }

    fn header(
        &mut self,
        header: &Header<'_>,
        records: Vec<(Vec<u8>, Vec<u8>)>,
        old_sparse: Option<&Content>,
    ) -> io::Result<()> {
        match self.form {
            TarForm::Pax => self.pax_records(header, records)?,
            TarForm::Gnu => {
                if header.link.len() > 100 {
                    self.gnu_long(b'K', &header.link)?;
                }
                if header.name.len() > 100 {
                    self.gnu_long(b'L', &header.name)?;
                }
            }
        }
        let mut block = self.block(header);
        let mut extensions = Vec::new();
        if let Some(content) = old_sparse {
            extensions = old_gnu_map(&mut block, content);
        }
        seal(&mut block);
        self.out.write_all(&block)?;
        self.out.write_all(&extensions)
    }

    /// The extended header with what the old one cannot say.
    fn pax_records(
        &mut self,
        header: &Header<'_>,
        mut records: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> io::Result<()> {
        let mut add = |key: &[u8], value: Vec<u8>| records.push((key.to_vec(), value));
        let node = header.node;
        if header.name.len() > 100 || !header.name.is_ascii() {
            add(b"path", header.name.clone());
        }
        if header.link.len() > 100 || !header.link.is_ascii() {
            add(b"linkpath", header.link.clone());
        }
        add(b"mtime", decimal(node.mtime));
        add(b"atime", decimal(node.mtime));
        for (key, id) in [(b"uid", node.uid), (b"gid", node.gid)] {
            if u64::from(id) >= 1 << 21 {
                add(key, id.to_string().into_bytes());
            }
        }
        if header.stored >= 1 << 33 {
            add(b"size", header.stored.to_string().into_bytes());
        }
        for (name, value) in node.xattrs.iter().filter(|_| header.kind != b'1') {
            add(&[b"SCHILY.xattr.", name.as_slice()].concat(), value.clone());
        }
        let body: Vec<u8> = records.iter().flat_map(|(k, v)| pax_record(k, v)).collect();
        let mut block = [0; BLOCK];
        block[..14].copy_from_slice(b"./PaxHeaders/x");
        octal(&mut block[100..108], 0o644);
        octal(&mut block[108..116], 0);
        octal(&mut block[116..124], 0);
        octal(&mut block[124..136], body.len() as u64);
        octal(&mut block[136..148], 0);
        block[156] = b'x';
        block[257..265].copy_from_slice(b"ustar\x0000");
        seal(&mut block);
        self.out.write_all(&block)?;
        self.out.write_all(&body)?;
        pad(self.out, body.len() as u64)
    }

    /// An entry whose data is the long name (`L`) or link target (`K`) of the next one.
    fn gnu_long(&mut self, kind: u8, text: &[u8]) -> io::Result<()> {
        let mut block = [0; BLOCK];
        block[..13].copy_from_slice(b"././@LongLink");
        octal(&mut block[100..108], 0o644);
        octal(&mut block[108..116], 0);
        octal(&mut block[116..124], 0);
        octal(&mut block[124..136], text.len() as u64 + 1);
        octal(&mut block[136..148], 0);
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar  \0");
        seal(&mut block);
        self.out.write_all(&block)?;
        self.out.write_all(text)?;
        self.out.write_all(b"\0")?;
        pad(self.out, text.len() as u64 + 1)
    }

    fn block(&self, header: &Header<'_>) -> [u8; BLOCK] {
        let node = header.node;
        let gnu = self.form == TarForm::Gnu;
        let number = |field: &mut [u8], value: i64| {
            // An octal field holds three bits a byte, the last byte is its end.
            let limit = 1i64 << (3 * (field.len() - 1));
            match u64::try_from(value) {
                Ok(plain) if value < limit => octal(field, plain),
                // Pax has the true number in its record.
                _ if !gnu => octal(field, 0),
                _ => base256(field, value),
            }
        };
        let mut block = [0; BLOCK];
        copy_cut(&mut block[..100], &header.name);
        copy_cut(&mut block[157..257], &header.link);
        octal(&mut block[100..108], node.mode.into());
        number(&mut block[108..116], node.uid.into());
        number(&mut block[116..124], node.gid.into());
        number(&mut block[124..136], header.stored.cast_signed());
        number(&mut block[136..148], node.mtime.sec);
        block[156] = header.kind;
        block[257..265].copy_from_slice(if gnu { b"ustar  \0" } else { b"ustar\x0000" });
        if matches!(header.kind, b'3' | b'4') {
            number(&mut block[329..337], header.device.0.into());
            number(&mut block[337..345], header.device.1.into());
        }
        block
    }
}

/// The runs of a sparse file as stored: grown to whole blocks of the archive, as readers start each
/// run at such a block.
fn stored_map(content: &Content) -> Vec<Range<u64>> {
    let mut map: Vec<Range<u64>> = Vec::new();
    for run in content.data_map() {
        let start = run.start / BLOCK as u64 * BLOCK as u64;
        let end = run.end.next_multiple_of(BLOCK as u64).min(content.size);
        match map.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => map.push(start..end),
        }
    }
    map
}

/// The map as (offset, length) pairs; a file that ends in a hole closes with an empty run.
fn with_end(map: &[Range<u64>], size: u64) -> Vec<(u64, u64)> {
    let mut pairs: Vec<(u64, u64)> = map.iter().map(|r| (r.start, r.end - r.start)).collect();
    if map.last().is_none_or(|r| r.end < size) {
        pairs.push((size, 0));
    }
    pairs
}

/// Puts the first four runs and the real size into the header block and returns the extension
/// blocks with the rest, 21 runs each.
fn old_gnu_map(block: &mut [u8; BLOCK], content: &Content) -> Vec<u8> {
    let pairs = with_end(&stored_map(content), content.size);
    let put = |field: &mut [u8], value: u64| {
        if value < 1 << 33 {
            octal(field, value)
        } else {
            base256(field, value.cast_signed())
        }
    };
    let put_run = |run: &mut [u8], pair: &(u64, u64)| {
        let (offset, count) = run.split_at_mut(12);
        put(offset, pair.0);
        put(count, pair.1);
    };
    let (first, rest) = pairs.split_at(pairs.len().min(4));
    for (run, pair) in block[386..482].chunks_mut(24).zip(first) {
        put_run(run, pair);
    }
    block[482] = u8::from(!rest.is_empty());
    put(&mut block[483..495], content.size);
    let mut extensions = Vec::new();
    let chunks: Vec<_> = rest.chunks(21).collect();
    for (n, chunk) in chunks.iter().enumerate() {
        let mut extension = [0; BLOCK];
        for (run, pair) in extension[..504].chunks_mut(24).zip(*chunk) {
            put_run(run, pair);
        }
        extension[504] = u8::from(n + 1 < chunks.len());
        extensions.extend(extension);
    }
    extensions
}

/// `LENGTH KEY=VALUE\n`, where LENGTH counts the whole record, itself included.
fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    if rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    let mut record = length.to_string().into_bytes();
    record.push(b' ');
    record.extend_from_slice(key);
    record.push(b'=');
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

/// Seconds with nine decimals. A time before 1970 is the negative of a positive number, so the
/// fraction counts backwards.
fn decimal(time: Time) -> Vec<u8> {
    let total = i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let sign = if total < 0 { "-" } else { "" };
    let size = total.unsigned_abs();
    format!("{sign}{}.{:09}", size / 1_000_000_000, size % 1_000_000_000).into_bytes()
}

fn octal(field: &mut [u8], value: u64) {
    let width = field.len() - 1;
    field[..width].copy_from_slice(format!("{value:0width$o}").as_bytes());
    field[width] = 0;
}

/// GNU's form for numbers octal cannot hold: two's complement, big endian, top bit of the first
/// byte set as a mark.
fn base256(field: &mut [u8], value: i64) {
    let bytes = i128::from(value).to_be_bytes();
    let len = field.len();
    field.copy_from_slice(&bytes[bytes.len() - len..]);
    field[0] |= 0x80;
}

/// Writes the checksum: the sum of all bytes with the field itself as spaces.
fn seal(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|&b| u64::from(b)).sum();
    octal(&mut block[148..155], sum);
}

fn copy_cut(field: &mut [u8], text: &[u8]) {
    let n = text.len().min(field.len());
    field[..n].copy_from_slice(&text[..n]);
}

fn pad(out: &mut dyn Write, written: u64) -> io::Result<()> {
    zeros(out, written.next_multiple_of(BLOCK as u64) - written)
}

fn zeros(out: &mut dyn Write, mut count: u64) -> io::Result<()> {
    let block = [0; 64 << 10];
    while count > 0 {
        let n = count.min(block.len() as u64);
        out.write_all(&block[..n as usize])?;
        count -= n;
    }
    Ok(())
}
