//! Directory hashes against `debugfs dx_hash`.

use extant_format::dir::{HashVersion, NameHasher, fold_name};
use std::process::{Command, Stdio};

/// A small generator: good enough to make names, and repeatable from its printed seed.
struct Random(u64);

impl Random {
    fn from_clock(what: &str) -> Self {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = since.as_nanos() as u64 | 1;
        println!("{what}: seed {seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}

/// One request of `dx_hash` and the hash expected of it.
struct Request {
    version: HashVersion,
    seed: [u8; 16],
    casefold: bool,
    name: Vec<u8>,
}

/// What debugfs answers to each request, in order.
fn ask_debugfs(requests: &[Request]) -> Vec<(u32, u32)> {
    let mut script = Vec::new();
    for r in requests {
        let hex: String = r.seed.iter().map(|b| format!("{b:02x}")).collect();
        let uuid = format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        );
        let casefold = if r.casefold { "-c -e utf8 " } else { "" };
        let head = format!("dx_hash -h {} -s {uuid} {casefold}", r.version.raw());
        script.extend_from_slice(head.as_bytes());
        script.extend_from_slice(&r.name);
        script.push(b'\n');
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &script).unwrap();
    let output = Command::new("debugfs")
        .arg("-f")
        .arg(file.path())
        .stdin(Stdio::null())
        .output()
        .expect("debugfs (package e2fsprogs) is needed by this test");
    let mut answers = Vec::new();
    for line in output.stdout.split(|&b| b == b'\n') {
        if !line.starts_with(b"Hash of ") {
            continue;
        }
        // "Hash of NAME is 0xHASH (minor 0xMINOR)", the name being any bytes.
        let at = line.windows(6).rposition(|w| w == b" is 0x").unwrap();
        let text = std::str::from_utf8(&line[at + 6..]).unwrap();
        let (hash, minor) = text.split_once(" (minor 0x").unwrap();
        let minor = minor.trim_end().trim_end_matches(')');
        answers.push((
            u32::from_str_radix(hash, 16).unwrap(),
            u32::from_str_radix(minor, 16).unwrap(),
        ));
    }
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert_eq!(answers.len(), requests.len(), "{complaints}");
    answers
}

fn compare(requests: &[Request]) {
    for (r, answer) in requests.iter().zip(ask_debugfs(requests)) {
        let mut seed = [0; 4];
        for (word, bytes) in seed.iter_mut().zip(r.seed.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
        let hasher = NameHasher::new(r.version, seed).unwrap();
        let hash = hasher.casefolded(r.casefold).hash(&r.name);
        assert_eq!(
            (hash.major, hash.minor),
            answer,
            "{:?} casefold {} of {:x?} ({}), folded {:x?}",
            r.version,
            r.casefold,
            r.name,
            String::from_utf8_lossy(&r.name),
            fold_name(&r.name),
        );
    }
}

fn any_version(random: &mut Random) -> HashVersion {
    HashVersion::from_raw(random.below(6) as u8).unwrap()
}

fn any_seed(random: &mut Random) -> [u8; 16] {
    let mut seed = [0; 16];
    if random.below(4) != 0 {
        seed[..8].copy_from_slice(&random.next().to_le_bytes());
        seed[8..].copy_from_slice(&random.next().to_le_bytes());
    }
    seed
}

#[test]
fn hashes_of_random_names_agree_with_debugfs() {
    let mut random = Random::from_clock("directory hashes");
    let requests: Vec<_> = (0..1200)
        .map(|_| {
            let len = 1 + random.below(200) as usize;
            // Bytes that the script's own syntax leaves alone; half of them above 127.
            let name = (0..len)
                .map(|_| match random.below(2) {
                    0 => {
                        b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+"
                            [random.below(65) as usize]
                    }
                    _ => 0x80 + random.below(0x80) as u8,
                })
                .collect::<Vec<u8>>();
            Request {
                version: any_version(&mut random),
                seed: any_seed(&mut random),
                casefold: false,
                name: [b"n", &name[..]].concat(),
            }
        })
        .collect();
    compare(&requests);
}

#[cfg(feature = "casefold")]
#[test]
fn casefolded_hashes_of_random_unicode_names_agree_with_debugfs() {
    let mut random = Random::from_clock("casefolded directory hashes");
    // Scripts with case, marks to reorder, ignorables, Hangul, and everything else.
    let blocks: [(u32, u32); 14] = [
        (0x41, 0x5b),
        (0x61, 0x7b),
        (0xa1, 0x250),
        (0x300, 0x370),
        (0x370, 0x400),
        (0x400, 0x530),
        (0x1e00, 0x2000),
        (0x200b, 0x2010),
        (0x2100, 0x2190),
        (0xac00, 0xd7a4),
        (0xfb00, 0xfb07),
        (0x10400, 0x10430),
        (0x1e900, 0x1e944),
        (0xa1, 0x2fa1e),
    ];
    let requests: Vec<_> = (0..3000)
        .map(|_| {
            let len = 1 + random.below(12) as usize;
            let mut name = String::from("n");
            let mut wild = 0;
            while name.chars().count() <= len {
                let (low, high) = blocks[random.below(14) as usize];
                // Most of the code space is unassigned: one wild code point per name at most, or
                // hardly any name would be folded at all.
                if high == 0x2fa1e {
                    wild += 1;
                    if wild > 1 {
                        continue;
                    }
                }
                let Some(c) = char::from_u32(low + random.below(u64::from(high - low)) as u32)
                else {
                    continue;
                };
                // White space ends a name in the script.
                if !c.is_whitespace() {
                    name.push(c);
                }
            }
            Request {
                version: any_version(&mut random),
                seed: any_seed(&mut random),
                casefold: true,
                name: name.into_bytes(),
            }
        })
        .collect();
    compare(&requests);
}

/// Every code point by itself: slow in `debugfs`, so in strides that cover all of them over runs.
#[cfg(feature = "casefold")]
#[test]
fn single_code_points_fold_as_debugfs_folds_them() {
    let mut random = Random::from_clock("single code points");
    let first = random.below(61) as u32;
    let requests: Vec<_> = (0x80..0x11_0000u32)
        .filter(|c| *c < 0x3000 || c % 61 == first)
        .filter_map(char::from_u32)
        .filter(|c| !c.is_whitespace())
        .map(|c| Request {
            version: HashVersion::HalfMd4,
            seed: [0; 16],
            casefold: true,
            name: format!("n{c}").into_bytes(),
        })
        .collect();
    compare(&requests);
}
