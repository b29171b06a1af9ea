//! What is read out of the output of programs, theirs and ours, in one form for both.

use serde_json::Value;

/// What stands between two pieces of a text.
fn between<'a>(text: &'a str, before: &str, after: char) -> Option<&'a str> {
    let from = text.find(before)? + before.len();
    let rest = &text[from..];
    Some(rest.split(after).next().unwrap_or(rest).trim())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn sorted(mut items: Vec<String>) -> String {
    items.sort();
    items.join("\n")
}

/// The value of a field of dumpe2fs, tune2fs and debugfs.
fn field(text: &str, name: &str) -> String {
    let start = format!("{name}:");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    let value = lines.next().map(str::trim);
    value
        .unwrap_or_else(|| panic!("there is no {name}: {text}"))
        .to_owned()
}

pub(super) fn trimmed(text: &str) -> String {
    text.trim().to_owned()
}

/// All that is said, if it is more than nothing: for what is the same in both.
pub(super) fn whole(text: &str) -> String {
    text.to_owned()
}

/// Words, in their order.
pub(super) fn words(text: &str) -> String {
    sorted(text.split_whitespace().map(str::to_owned).collect())
}

/// The numbers of a superblock that both tell.
pub(super) fn superblock_of_dumpe2fs(text: &str) -> String {
    let names = [
        "Filesystem volume name",
        "Filesystem UUID",
        "Block count",
        "Free blocks",
        "Reserved block count",
        "Block size",
        "Inode count",
        "Free inodes",
        "Inode size",
        "Blocks per group",
        "Inodes per group",
        "Default directory hash",
    ];
    let mut told: Vec<String> = names.iter().map(|name| field(text, name)).collect();
    told.push(words(&field(text, "Filesystem features")));
    told.join("\n")
}

/// Those of `superblock_of_dumpe2fs`, of `extant info --json`.
pub(super) fn superblock_of_info(text: &str) -> String {
    let info = json(text);
    let names = [
        "label",
        "uuid",
        "blocks",
        "free_blocks",
        "reserved_blocks",
        "block_size",
        "inodes",
        "free_inodes",
        "inode_size",
        "blocks_per_group",
        "inodes_per_group",
        "directory_hash",
    ];
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let mut told: Vec<String> = names.iter().map(|name| plain(&info[name])).collect();
    let mut features = Vec::new();
    for kind in ["compat", "incompat", "ro_compat"] {
        let of_kind = info["features"][kind].as_array().unwrap();
        features.extend(of_kind.iter().map(|name| name.as_str().unwrap().to_owned()));
    }
    told.push(sorted(features));
    told.join("\n")
}

/// Label, UUID and features, of dumpe2fs, tune2fs and debugfs.
pub(super) fn identity_of_dumpe2fs(text: &str) -> String {
    let names = ["Filesystem volume name", "Filesystem UUID"];
    let told = names.map(|name| field(text, name)).join("\n");
    format!("{told}\n{}", words(&field(text, "Filesystem features")))
}

/// Label, UUID and features, of `extant info`.
pub(super) fn identity_of_info(text: &str) -> String {
    let label = between(text, ", label ", '\n').expect("a label");
    let uuid = field(text, "UUID");
    format!("{label}\n{uuid}\n{}", words(&field(text, "Features")))
}

/// Label and UUID, of blkid.
pub(super) fn identity_of_blkid(text: &str) -> String {
    let told = ["LABEL=\"", " UUID=\""].map(|name| between(text, name, '"').expect("a field"));
    told.join("\n")
}

/// Label and UUID, of `extant info`.
pub(super) fn label_and_uuid_of_info(text: &str) -> String {
    let identity = identity_of_info(text);
    identity.lines().take(2).collect::<Vec<_>>().join("\n")
}

pub(super) fn features_of_debugfs(text: &str) -> String {
    words(&field(text, "Filesystem features"))
}

pub(super) fn features_of_info(text: &str) -> String {
    words(&field(text, "Features"))
}

/// Of each group: where its bitmaps and its table lie, and how much is free. In the words of
/// dumpe2fs and of debugfs.
pub(super) fn groups_of_dumpe2fs(text: &str) -> String {
    let text = text.to_lowercase();
    let from = ["\ngroup ", "\n group "].iter().find_map(|g| text.find(g));
    let groups = text[from.expect("groups")..].replace("\n group ", "\ngroup ");
    let mut told = Vec::new();
    let is_group = |text: &&str| text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    for group in groups.split("\ngroup ").skip(1).filter(is_group) {
        let number = |before: &str| -> u64 {
            let from = group.find(before).unwrap_or_else(|| panic!("{group}")) + before.len();
            let digits = group[from..].chars().take_while(char::is_ascii_digit);
            digits.collect::<String>().parse().unwrap()
        };
        let counted = |after: &str| -> u64 {
            let before = &group[..group.find(after).unwrap_or_else(|| panic!("{group}"))];
            before.split_whitespace().last().unwrap().parse().unwrap()
        };
        let places = ["block bitmap at ", "inode bitmap at ", "inode table at "].map(number);
        let is_of_debugfs = group.contains("used directories");
        let directories = if is_of_debugfs {
            " used directories"
        } else {
            " directories"
        };
        let counts = [" free blocks", " free inodes", directories].map(counted);
        told.push(format!("{places:?} {counts:?}"));
    }
    told.join("\n")
}

/// Those of `groups_of_dumpe2fs`, of `extant info --groups --json`.
pub(super) fn groups_of_info(text: &str) -> String {
    let info = json(text);
    let groups = info["group_list"].as_array().unwrap().iter();
    let told = groups.map(|group| {
        let of = |name: &str| group[name].as_u64().unwrap();
        let places = ["block_bitmap", "inode_bitmap", "inode_table"].map(of);
        let counts = ["free_blocks", "free_inodes", "directories"].map(of);
        format!("{places:?} {counts:?}")
    });
    told.collect::<Vec<_>>().join("\n")
}

/// Names of `debugfs -R ls`, but for the two that every directory has.
pub(super) fn names_of_debugfs(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut names = Vec::new();
    // An inode, a length in parentheses, which may have a blank in it, and the name.
    for (at, word) in words.iter().enumerate() {
        if word.ends_with(')') && word.contains('(') {
            names.extend(words.get(at + 1).map(|name| (*name).to_owned()));
        }
    }
    names.retain(|name| name != "." && name != "..");
    sorted(names)
}

/// Names of deleted entries of `debugfs -R 'ls -d'`.
pub(super) fn deleted_of_debugfs(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut names = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if word.starts_with('<') {
            names.extend(words.get(at + 2).map(|name| (*name).to_owned()));
        }
    }
    sorted(names)
}

/// Names of what `extant deleted` lists.
pub(super) fn deleted_names(text: &str) -> String {
    let paths = text.lines().filter_map(|line| {
        let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
        path.rsplit('/').next().map(str::to_owned)
    });
    sorted(paths.collect())
}

/// Inode numbers of `debugfs -R lsdel`.
pub(super) fn inodes_of_lsdel(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        let first = line.split_whitespace().next()?;
        let is_row = line.starts_with(' ') && first.parse::<u32>().is_ok();
        is_row.then(|| first.to_owned())
    });
    sorted(lines.collect())
}

/// Inode numbers of `extant deleted`.
pub(super) fn inodes_of_deleted(text: &str) -> String {
    let numbers = text.lines().filter_map(|line| {
        let words = line.split_whitespace().skip(1);
        words
            .take(2)
            .find(|word| word.parse::<u32>().is_ok())
            .map(str::to_owned)
    });
    sorted(numbers.collect())
}

/// Inode, permissions, owner, group, size and name, of `debugfs -R 'ls -l'`.
pub(super) fn list_of_debugfs(text: &str) -> String {
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ino, mode, _kind, uid, gid, size, _date, _time, name] = words[..] else {
            return None;
        };
        let bits = &mode[mode.len() - 4..];
        Some(format!("{ino} {bits} {uid} {gid} {size} {name}"))
    });
    sorted(rows.collect())
}

/// Those of `list_of_debugfs`, of `extant ls -lian`.
pub(super) fn list_of_ls(text: &str) -> String {
    let rows = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (ino, mode, uid, gid, size) = (words[0], words[1], words[3], words[4], words[5]);
        format!("{ino} {} {uid} {gid} {size} {}", octal(mode), words[8])
    });
    sorted(rows.collect())
}

/// Inode, letters, size, date and name, of `e2ls -l`, where all belongs to root.
pub(super) fn list_of_e2ls(text: &str) -> String {
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ino, mode, "root", "root", size, _date, _time, name] = words[..] else {
            return None;
        };
        Some(format!("{ino} {} 0 0 {size} {name}", octal(mode)))
    });
    sorted(rows.collect())
}

/// Permissions in octal, of ten letters.
fn octal(letters: &str) -> String {
    let bits = letters.chars().skip(1).take(9);
    let value = bits.fold(0_u32, |sum, letter| sum * 2 + u32::from(letter != '-'));
    format!("{value:04o}")
}

/// Those of `list_of_debugfs`, of `debugfs -R 'ls -p'`.
pub(super) fn list_of_parseable(text: &str) -> String {
    let rows = text.lines().filter_map(|line| {
        let parts: Vec<&str> = line.split('/').collect();
        let ["", ino, mode, uid, gid, name, size, ""] = parts[..] else {
            return None;
        };
        let bits = &mode[mode.len() - 4..];
        let is_of_all = name == "." || name == "..";
        (!is_of_all).then(|| format!("{ino} {bits} {uid} {gid} {size} {name}"))
    });
    sorted(rows.collect())
}

/// Those of `list_of_parseable`, of `extant ls --json -A`.
pub(super) fn list_of_json(text: &str) -> String {
    let rows = text.lines().map(|line| {
        let entry = json(line);
        let of = |name: &str| entry[name].to_string();
        let path = entry["path"].as_str().unwrap();
        let size = of("size");
        let (mode, name) = (&entry["mode"], path.rsplit('/').next().unwrap());
        let mode = mode.as_str().unwrap();
        let (ino, uid, gid) = (of("inode"), of("uid"), of("gid"));
        format!("{ino} {mode} {uid} {gid} {size} {name}")
    });
    sorted(rows.collect())
}

/// Inode, permissions, owner, group, size, links and generation, of `debugfs -R stat`.
pub(super) fn inode_of_debugfs(text: &str) -> String {
    let words = text.replace(':', ": ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name);
        *words
            .get(at.unwrap_or_else(|| panic!("{text}")) + 1)
            .unwrap()
    };
    let names = ["Inode:", "Mode:", "User:", "Group:", "Size:", "Links:"];
    let told = names.map(after).join(" ");
    format!("{told} {}", after("Generation:"))
}

/// Those of `inode_of_debugfs`, of `extant stat --json`.
pub(super) fn inode_of_stat(text: &str) -> String {
    let inode = json(text);
    let names = ["inode", "mode", "uid", "gid", "size", "links", "generation"];
    let told = names.map(|name| match &inode[name] {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    });
    told.join(" ")
}

/// Those of `inode_of_debugfs`, of `extant stat` for people.
pub(super) fn inode_of_stat_text(text: &str) -> String {
    let after = |before: &str, until| between(text, before, until).expect("a field");
    let (uid, gid) = after("Owner: ", '\n').split_once(':').unwrap();
    let ino = after(" Inode: ", ',');
    let generation = after("generation ", ',');
    let rest = between(text, "generation ", '\n').unwrap();
    let links = rest.split(", ").nth(1).unwrap().split(' ').next().unwrap();
    let (mode, size) = (after("Mode: ", ' '), after("Size: ", ' '));
    format!("{ino} {mode} {uid} {gid} {size} {links} {generation}")
}

/// The paths of `debugfs -R ncheck`.
pub(super) fn paths_of_ncheck(text: &str) -> String {
    let lines = text.lines().skip(1);
    sorted(
        lines
            .filter_map(|line| Some(line.split_once('\t')?.1.to_owned()))
            .collect(),
    )
}

/// The inodes of `debugfs -R icheck`.
pub(super) fn inodes_of_icheck(text: &str) -> String {
    let lines = text.lines().skip(1);
    sorted(
        lines
            .filter_map(|line| Some(line.split_once('\t')?.1.to_owned()))
            .collect(),
    )
}

/// The inode to which `extant map --block` says that a block belongs.
pub(super) fn inode_of_block(text: &str) -> String {
    let number = between(text, "of inode ", ',').or_else(|| between(text, "directory ", ','));
    number.expect("an inode").to_owned()
}

/// Whether `debugfs -R testb` says that a block is in use.
pub(super) fn use_of_testb(text: &str) -> String {
    text.contains("marked in use").to_string()
}

/// Whether `extant map --block` says that a block is in use.
pub(super) fn use_of_block(text: &str) -> String {
    (!text.contains("nothing")).to_string()
}

/// Whether `debugfs -R testi` says that an inode is in use.
pub(super) fn use_of_testi(text: &str) -> String {
    text.contains("is marked in use").to_string()
}

/// Whether anything was found.
pub(super) fn is_found(text: &str) -> String {
    (!text.trim().is_empty()).to_string()
}

/// Whether a command says that it found an entry of a directory.
pub(super) fn entry_of_dirsearch(text: &str) -> String {
    text.contains("Entry found").to_string()
}

/// The blocks of `extant map --json` of a file.
pub(super) fn blocks_of_map(text: &str) -> String {
    let map = json(text);
    let block = map["block_size"].as_u64().unwrap();
    let mut blocks = Vec::new();
    for extent in map["extents"].as_array().unwrap() {
        if let Some(at) = extent["device_offset"].as_u64() {
            let len = extent["len"].as_u64().unwrap();
            blocks.extend((at / block..(at + len) / block).map(|block| block.to_string()));
        }
    }
    sorted(blocks)
}

/// First logical and physical block of each extent, of `debugfs -R ex` of a tree of one level.
pub(super) fn extents_of_debugfs(text: &str) -> String {
    let rows = text.lines().skip(1).filter_map(|line| {
        let line = line.replace(['/', '-'], " ");
        let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        let [_, _, _, _, first, _, place, ..] = numbers[..] else {
            return None;
        };
        Some(format!("{first} {place}"))
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Those of `extents_of_debugfs`, of `filefrag -v`.
pub(super) fn extents_of_filefrag(text: &str) -> String {
    let rows = text.lines().filter_map(|line| {
        let line = line.replace([':', '.'], " ");
        let words = line.split_whitespace();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [_, first, _, place, ..] = numbers[..] else {
            return None;
        };
        Some(format!("{first} {place}"))
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Those of `extents_of_debugfs`, of `extant map` of a file in blocks of 1024 bytes.
pub(super) fn extents_of_map(text: &str) -> String {
    assert!(text.contains("a block has 1024 bytes"), "{text}");
    let rows = text.lines().filter(|line| line.ends_with(" data"));
    let rows = rows.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let first: u64 = words[0].parse().unwrap();
        format!("{} {}", first / 1024, words[words.len() - 2])
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// The number of extents, of `debugfs -R filefrag`.
pub(super) fn count_of_filefrag(text: &str) -> String {
    let text = text.trim();
    let count = text.split(": ").last().unwrap().split(' ').next();
    count.unwrap().to_owned()
}

/// The number of extents, of `extant map` of a file.
pub(super) fn count_of_map(text: &str) -> String {
    between(text, "bytes in ", ' ').unwrap().to_owned()
}

/// Names of attributes, of `debugfs -R ea_list`.
pub(super) fn names_of_ea_list(text: &str) -> String {
    let lines = text.lines().filter(|line| line.starts_with("  "));
    sorted(
        lines
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect(),
    )
}

/// Transactions that wait, of `debugfs -R logdump`.
pub(super) fn waiting_of_logdump(text: &str) -> String {
    let numbers = text
        .lines()
        .filter_map(|line| between(line, "expected sequence ", ','));
    let mut numbers: Vec<String> = numbers.map(str::to_owned).collect();
    numbers.dedup();
    numbers.join("\n")
}

/// Transactions that wait, of `extant log`.
pub(super) fn waiting_of_log(text: &str) -> String {
    let waiting = text.lines().filter(|line| line.contains(" (waiting), "));
    let numbers = waiting.filter_map(|line| between(line, "transaction ", ' '));
    numbers.collect::<Vec<_>>().join("\n")
}

/// Transaction and journal block, of `debugfs -R 'logdump -b'`.
pub(super) fn logged_of_logdump(text: &str) -> String {
    let lines = text.lines().filter(|line| line.contains(" logged at "));
    let told = lines.map(|line| {
        let tid = between(line, "sequence ", ',').unwrap();
        format!("{tid} {}", between(line, "journal block ", ' ').unwrap())
    });
    told.collect::<Vec<_>>().join("\n")
}

/// Transaction and journal block, of `extant log --block 4386`.
pub(super) fn logged_of_log(text: &str) -> String {
    let mut tid = "";
    let mut told = Vec::new();
    for line in text.lines() {
        if line.starts_with("transaction ") {
            tid = between(line, "transaction ", ' ').unwrap();
        } else if line.contains("  block 4386: ") {
            told.push(format!("{tid} {}", line.split_whitespace().next().unwrap()));
        }
    }
    told.join("\n")
}

/// The number of free blocks, of e2freefrag.
pub(super) fn free_of_freefrag(text: &str) -> String {
    let free = field(text, "Free blocks");
    free.split(' ').next().unwrap().to_owned()
}

/// The number of free blocks that extents of `extant info --json --free` have together.
pub(super) fn free_of_info(text: &str) -> String {
    let info = json(text);
    let sizes = info["free_extents"].as_array().unwrap().iter();
    let blocks = sizes.map(|size| size["blocks"].as_u64().unwrap());
    blocks.sum::<u64>().to_string()
}

/// Number, space and inodes of each user, of `debugfs -R 'lq user'`.
pub(super) fn quota_of_debugfs(text: &str) -> String {
    let rows = text.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{} {} {}", words[0], words[1], words[4])
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn use_of(entry: &Value) -> String {
    let of = |name: &str| entry[name].as_u64().unwrap();
    format!("{} {} {}", of("id"), of("space"), of("inodes"))
}

/// Those of `quota_of_debugfs`, of `extant quota --json`.
pub(super) fn quota_of_ours(text: &str) -> String {
    let quota = json(text);
    let entries = quota["user"]["entries"].as_array().unwrap().iter();
    entries.map(use_of).collect::<Vec<_>>().join("\n")
}

/// Those of `quota_of_debugfs`, of one entry in JSON.
pub(super) fn quota_of_entry(text: &str) -> String {
    use_of(&json(text))
}

/// The block that `debugfs -R 'ffb 1'` finds.
pub(super) fn block_of_ffb(text: &str) -> String {
    text.trim().rsplit(' ').next().unwrap().to_owned()
}

/// The first sixteen bytes of `debugfs -R block_dump`.
pub(super) fn bytes_of_block_dump(text: &str) -> String {
    text.split_whitespace().skip(1).take(8).collect()
}

/// The first sixteen bytes of `od -An -tx1`, or fewer.
pub(super) fn bytes_of_od(text: &str) -> String {
    text.lines().next().unwrap_or_default().replace(' ', "")
}

/// Whether a size in blocks of 1 KiB, the last number that is said, is that of a file system that
/// was made small.
pub(super) fn is_small(text: &str) -> String {
    let number: u64 = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
    (number < 20_000).to_string()
}

/// Whether the number of blocks that `extant resize` says first is such.
pub(super) fn is_small_by_resize(text: &str) -> String {
    is_small(text.split(' ').next().unwrap())
}

/// Whether `du -k` says that a file takes little.
pub(super) fn takes_little(text: &str) -> String {
    let number: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    (number < 3_000).to_string()
}

/// Owner and group of an inode, of `debugfs -R stat`.
pub(super) fn owner_of_debugfs(text: &str) -> String {
    let of = |name| between(text, name, '\n').unwrap().split_whitespace().next();
    let group = between(text, "Group:", '\n')
        .unwrap()
        .split_whitespace()
        .next();
    format!("{:?}:{group:?}", of("User:"))
}

/// Whether a number is more than one.
pub(super) fn is_many(text: &str) -> String {
    let number: u64 = text.trim().parse().unwrap();
    (number > 0).to_string()
}

/// The flags of an inode, of `debugfs -R stat`.
pub(super) fn flags(text: &str) -> String {
    between(text, "Flags: ", '\n').unwrap().to_owned()
}

/// The letters of lsattr alone.
pub(super) fn letters(text: &str) -> String {
    text.split_whitespace().next().unwrap().to_owned()
}

/// Inodes of a file system: all, used and free, of `df -i`.
pub(super) fn inodes_of_df(text: &str) -> String {
    let line = text.lines().nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    words[1..4].join(" ")
}

/// Those of `inodes_of_df`, of `extant df`.
pub(super) fn inodes_of_ours(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("inodes"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    words[1..4].join(" ")
}

/// The first word of each line, which a digest is, and the last name of its path.
pub(super) fn sums(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let (sum, path) = line.split_once("  ").unwrap();
        format!("{sum} {}", path.rsplit('/').next().unwrap())
    });
    sorted(lines.collect())
}

/// Paths without what is before the first `/`, sorted, the top left out.
pub(super) fn paths_below(text: &str) -> String {
    let paths = text.split(['\n', '\0']).filter_map(|path| {
        let path = path.trim_start_matches('.').trim_start_matches("/etc");
        (!path.is_empty()).then(|| path.to_owned())
    });
    sorted(paths.collect())
}

/// Attributes as `name=value`, of `getfattr -d`.
pub(super) fn attributes_of_getfattr(text: &str) -> String {
    let lines = text.lines().filter(|line| line.contains('='));
    sorted(lines.map(|line| line.replace('"', "")).collect())
}

/// Attributes as `name=value`, of `extant stat --json | jq .xattrs`.
pub(super) fn attributes_of_stat(text: &str) -> String {
    let list = json(text);
    let pairs = list.as_array().unwrap().iter().map(|pair| {
        let of = |name: &str| pair[name].as_str().unwrap().to_owned();
        format!("{}={}", of("name"), of("value"))
    });
    sorted(pairs.collect())
}

/// Entries of a list of access, without comments.
pub(super) fn entries(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| line.contains("::") || line.contains(':'));
    sorted(
        lines
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect(),
    )
}

/// Number, first byte and size of each partition, of `sfdisk -d`, as a list in JSON.
pub(super) fn partitions_of_sfdisk(text: &str) -> String {
    let rows = text.lines().filter(|line| line.contains("start="));
    let mut number = 0;
    let rows = rows.map(|line| {
        number += 1;
        let sectors = |name: &str| -> u64 { between(line, name, ',').unwrap().parse().unwrap() };
        format!(
            "[{number},{},{}]",
            sectors("start=") * 512,
            sectors("size=") * 512
        )
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// What partitions hold, by their names: those of `lsblk`-like lines of blkid.
pub(super) fn kinds(text: &str) -> String {
    let lines = text.lines().filter(|line| line.contains("ext4"));
    lines.map(|_| "ext4").collect::<Vec<_>>().join("\n")
}

/// Names of diff(1)'s `Only in` lines, with the side that has them.
pub(super) fn only_of_diff(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        let (place, name) = line.strip_prefix("Only in ")?.split_once(": ")?;
        let sign = if place.starts_with("old") { '-' } else { '+' };
        Some(format!("{sign} {name}"))
    });
    sorted(lines.collect())
}

/// Those of `only_of_diff`, of `extant diff`.
pub(super) fn only_of_ours(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let (sign, rest) = line.split_once(' ').unwrap();
        let path = rest.split(": ").next().unwrap();
        format!("{sign} {}", path.rsplit('/').next().unwrap())
    });
    sorted(lines.collect())
}
