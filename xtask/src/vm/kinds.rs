//! Images with what the kernel of this machine may not have: made here and judged there, made there
//! and judged here, and left behind there by a machine that loses its power.

use super::machine::{PATIENCE, Place, all, off};
use crate::guest::Console;
use crate::programs::{Done, make_dir};
use crate::record::Steps;
use std::fs;
use std::path::{Path, PathBuf};

/// One kind of image.
struct Kind {
    name: &'static str,
    /// What `extant mkfs` is told beside the size and the source.
    mkfs: &'static [&'static str],
    /// What `mke2fs` is told.
    mke2fs: &'static str,
    /// How it is mounted.
    options: &'static str,
    /// What Linux is asked about an image that was made here, mounted on `/mnt`. Whatever fails
    /// ends it.
    judge: &'static [&'static str],
    /// What makes files of that kind in an empty image.
    make: &'static [&'static str],
    /// What `extant` must say of an image that was made there: arguments, in which `IMAGE` is the
    /// image, and what is in the answer.
    asked: &'static [(&'static [&'static str], &'static str)],
    /// What `extant` changes in it, after which Linux looks again.
    change: &'static [&'static [&'static str]],
    /// What Linux is asked then.
    again: &'static [&'static str],
    /// Directories of that kind in which files come and go until the power does.
    busy: &'static [&'static str],
}

/// Makes a key of 64 bytes. Policies of version 1 derive keys block by block, and two halves that
/// are alike are refused for XTS.
const KEY: &str = "seq 1000 | head -c 64 > /tmp/key";

/// Gives the file system the key, for policies of both versions.
const ADD: &str = "OLD=0011223344556677; xfs_io -c \"add_enckey -d $OLD\" /mnt < /tmp/key && \
    ID=$(xfs_io -c add_enckey /mnt < /tmp/key | sed 's/.* //')";

const KINDS: &[Kind] = &[
    Kind {
        name: "case folding",
        mkfs: &["--features", "casefold"],
        mke2fs: "-O casefold",
        options: "rw",
        judge: &[
            "lsattr -d /mnt/fold | grep -q F",
            "test \"$(cat /mnt/fold/STRASSE)\" = ours",
            "test \"$(cat /mnt/fold/straße)\" = ours",
            "echo changed > /mnt/fold/Strasse && test $(ls /mnt/fold | wc -l) = 1",
            "mkdir /mnt/fold/Ärger && rmdir /mnt/fold/ärger",
        ],
        make: &[
            "mkdir /mnt/fold && chattr +F /mnt/fold",
            "for i in $(seq 300); do echo $i > /mnt/fold/Datei$i; done",
            "echo theirs > /mnt/fold/Größe",
        ],
        asked: &[
            (&["cat", "IMAGE:/fold/GRÖSSE"], "theirs"),
            (&["cat", "IMAGE:/fold/DATEI177"], "177"),
        ],
        change: &[
            &["rm", "IMAGE:/fold/datei5"],
            &["mv", "IMAGE:/fold/DATEI6", "IMAGE:/fold/Sechs"],
        ],
        again: &[
            "test $(ls /mnt/fold | wc -l) = 300 && test \"$(cat /mnt/fold/SECHS)\" = 6",
            "! test -e /mnt/fold/Datei5",
        ],
        busy: &["fold"],
    },
    Kind {
        name: "quotas",
        mkfs: &[
            "--features",
            "quota,project",
            "--quota",
            "user,group,project",
        ],
        mke2fs: "-O quota,project -E quotatype=usrquota:grpquota:prjquota",
        options: "rw,usrquota,grpquota,prjquota",
        judge: &[
            "chmod 777 /mnt",
            "repquota -u /mnt | grep -q '^#*\\(user\\|1000\\) '",
            "setpriv --reuid 1000 --regid 1000 --clear-groups dd if=/dev/zero of=/mnt/small bs=64k count=4 2>&1",
            "! setpriv --reuid 1000 --regid 1000 --clear-groups dd if=/dev/zero of=/mnt/large bs=64k count=100 2>&1",
            "rm /mnt/large",
        ],
        make: &[
            "chmod 777 /mnt",
            "setquota -u 1000 0 2000 0 50 /mnt",
            "setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'for i in $(seq 40); do echo $i > /mnt/u$i; done'",
            "mkdir /mnt/p && xfs_io -c 'chproj 42' /mnt/p && chattr +P /mnt/p && echo x > /mnt/p/x",
        ],
        asked: &[
            (
                &["quota", "IMAGE", "--user", "--id", "1000", "--json"],
                "\"inodes\":40",
            ),
            (
                &["quota", "IMAGE", "--project", "--id", "42", "--json"],
                "\"inodes\":2",
            ),
        ],
        change: &[
            &["rm", "IMAGE:/u1", "IMAGE:/u2"],
            &[
                "quota",
                "IMAGE",
                "--user",
                "--id",
                "1000",
                "--inode-hard",
                "40",
            ],
        ],
        again: &[
            "setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'echo 1 > /mnt/v1; echo 2 > /mnt/v2'",
            "! setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'echo 3 > /mnt/v3'",
        ],
        busy: &["p"],
    },
    Kind {
        name: "fs-verity",
        mkfs: &[
            "--features",
            "verity",
            "--fs-verity",
            "/sealed",
            "--block-size",
            "4K",
        ],
        mke2fs: "-O verity -b 4096",
        options: "rw",
        judge: &[
            "fsverity measure /mnt/sealed",
            "cmp /mnt/sealed /mnt/plain",
            "! sh -c 'echo x >> /mnt/sealed'",
            "echo more >> /mnt/plain && mv /mnt/sealed /mnt/moved",
        ],
        make: &[
            "head -c 300000 /dev/urandom > /mnt/there && cp /mnt/there /mnt/same",
            "cp /mnt/there /mnt/salted && fsverity enable /mnt/there",
            "fsverity enable --hash-alg=sha512 --salt=0a0b0c /mnt/salted",
        ],
        asked: &[
            (&["check", "--verity", "IMAGE"], ""),
            (&["cat", "--verify", "IMAGE:/there"], ""),
            (&["cat", "--verify", "IMAGE:/salted"], ""),
        ],
        change: &[&["mv", "IMAGE:/there", "IMAGE:/elsewhere"]],
        again: &[
            "fsverity measure /mnt/elsewhere && cmp /mnt/elsewhere /mnt/same",
            "fsverity measure /mnt/salted && cmp /mnt/salted /mnt/same",
        ],
        busy: &[],
    },
    Kind {
        name: "encryption policies",
        mkfs: &["--features", "encrypt,stable_inodes"],
        mke2fs: "-O encrypt,stable_inodes",
        options: "rw",
        judge: &[
            KEY,
            "mkdir /mnt/secret && ID=$(xfs_io -c add_enckey /mnt < /tmp/key | sed 's/.* //'); \
             xfs_io -c \"set_encpolicy -v 2 $ID\" /mnt/secret",
            "echo hidden > /mnt/secret/name && test \"$(cat /mnt/secret/name)\" = hidden",
            "ln -s target /mnt/secret/link && test $(readlink /mnt/secret/link) = target",
        ],
        make: &[
            KEY,
            "mkdir /mnt/secret && ID=$(xfs_io -c add_enckey /mnt < /tmp/key | sed 's/.* //'); \
             xfs_io -c \"set_encpolicy -v 2 $ID\" /mnt/secret",
            "for i in $(seq 200); do echo $i > /mnt/secret/file$i; done; mkdir /mnt/secret/dir",
            "echo below > /mnt/secret/dir/below; ln -s nowhere /mnt/secret/dir/link",
        ],
        asked: &[(
            &["stat", "--json", "IMAGE:/secret"],
            "\"flags\":\"---------E",
        )],
        change: &[
            &["mkdir", "IMAGE:/open"],
            &["mv", "IMAGE:/secret", "IMAGE:/open/secret"],
        ],
        again: &[
            KEY,
            "xfs_io -c add_enckey /mnt < /tmp/key",
            "test $(ls /mnt/open/secret | wc -l) = 201",
            "test \"$(cat /mnt/open/secret/file177 /mnt/open/secret/dir/below | tr '\\n' ' ')\" = '177 below '",
        ],
        busy: &["open/secret"],
    },
    Kind {
        name: "the first kind of policies, other ciphers, encryption with case folding",
        mkfs: &["--features", "encrypt,casefold,stable_inodes"],
        mke2fs: "-O encrypt,casefold,stable_inodes",
        options: "rw",
        judge: &[
            KEY,
            ADD,
            "mkdir /mnt/old && xfs_io -c \"set_encpolicy -v 1 $OLD\" /mnt/old",
            "mkdir /mnt/both && xfs_io -c \"set_encpolicy -v 2 $ID\" /mnt/both && chattr +F /mnt/both",
            "echo hidden > /mnt/old/name && test \"$(cat /mnt/old/name)\" = hidden",
            "echo folded > /mnt/both/Name && test \"$(cat /mnt/both/nAME)\" = folded",
            "for i in $(seq 150); do echo $i > /mnt/both/Datei$i; done; test \"$(cat /mnt/both/DATEI99)\" = 99",
        ],
        make: &[
            KEY,
            ADD,
            "P() { d=/mnt/$1; shift; mkdir $d && xfs_io -c \"set_encpolicy $*\" $d; }",
            "P old -v 1 $OLD; P cbc -v 2 -c AES-128-CBC -n AES-128-CTS $ID",
            "P wide -v 2 -c Adiantum -n Adiantum -f 3 $ID; P number -v 2 -f 8 $ID",
            "P both -v 2 $ID; chattr +F /mnt/both",
            "for d in old cbc wide number both; do for i in $(seq 150); do echo $d$i > /mnt/$d/File$i; done; \
             mkdir /mnt/$d/Dir; echo $d > /mnt/$d/Dir/below; ln -s nowhere /mnt/$d/Link; done",
        ],
        asked: &[
            (&["stat", "--json", "IMAGE:/wide"], "\"flags\":\"---------E"),
            (&["ls", "IMAGE:/"], "number"),
        ],
        change: &[
            &["mkdir", "IMAGE:/open"],
            &["mv", "IMAGE:/both", "IMAGE:/open/both"],
        ],
        again: &[
            KEY,
            ADD,
            "mv /mnt/open/both /mnt/both",
            "ok=0; for d in old cbc wide number both; do test $(ls /mnt/$d | wc -l) = 152 && \
             test \"$(cat /mnt/$d/File77 /mnt/$d/Dir/below | tr '\\n' ' ')\" = \"${d}77 $d \" || ok=1; done; test $ok = 0",
            "test \"$(cat /mnt/both/FILE150)\" = both150",
        ],
        busy: &["old", "both", "number"],
    },
    Kind {
        name: "inline data, bigalloc, an orphan file, fast commits",
        mkfs: &[
            "--features",
            "inline_data,bigalloc,orphan_file,fast_commit,ea_inode,large_dir",
        ],
        mke2fs: "-O inline_data,bigalloc,orphan_file,fast_commit,ea_inode,large_dir",
        options: "rw",
        judge: &[
            "test \"$(cat /mnt/plain | head -c 4)\" = data",
            "for i in $(seq 200); do echo $i > /mnt/small$i; done; rm /mnt/small1*",
            "echo y >> /mnt/small2 && sync",
        ],
        make: &[
            "for i in $(seq 400); do echo $i > /mnt/f$i; done; rm /mnt/f1*; mkdir /mnt/d",
            "head -c 3000000 /dev/urandom > /mnt/d/large; truncate -s 1000001 /mnt/d/large",
        ],
        asked: &[(&["cat", "IMAGE:/f222"], "222")],
        change: &[
            &["rm", "-r", "IMAGE:/d"],
            &["truncate", "IMAGE:/f2", "--size", "1000"],
        ],
        again: &["! test -e /mnt/d && test $(ls /mnt | grep -c ^f) = 289"],
        busy: &[],
    },
];

/// Bytes of an image.
const SIZE: &str = "64M";

/// Runs the steps.
pub(super) fn run(place: &Place, steps: &mut Steps) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let image = place.path(&format!("ours{}.img", ours.len()));
        let made = steps.step(&format!("{}: made here", kind.name), || {
            made(place, kind, &image)
        });
        if made.is_none() {
            return;
        }
        let empty = place.path(&format!("theirs{}.img", theirs.len()));
        if let Err(e) = blank(&empty) {
            println!("{e}");
            return;
        }
        ours.push(image);
        theirs.push(empty);
    }
    let images = [ours.clone(), theirs.clone()].concat();
    let Some(mut console) = steps.step("a machine with these images", || {
        let console = place.start(&images, place.hardware(2))?;
        Ok((console, format!("Linux {}", place.kernel.version)))
    }) else {
        return;
    };
    for (number, kind) in KINDS.iter().enumerate() {
        let what = format!("{}: judged by Linux", kind.name);
        steps.step(&what, || judged(&mut console, kind, &drive(number)));
        let what = format!("{}: made by Linux", kind.name);
        let device = drive(KINDS.len() + number);
        steps.step(&what, || made_there(&mut console, kind, &device));
    }
    if steps
        .step("switched off", || Ok((off(console)?, String::new())))
        .is_none()
    {
        return;
    }
    for (number, kind) in KINDS.iter().enumerate() {
        let what = format!("{}: what Linux left, judged here", kind.name);
        steps.step(&what, || {
            judged_here(place, kind, &ours[number], &theirs[number])
        });
    }
    let Some(mut console) = steps.step("the machine again, with what was changed here", || {
        Ok((place.start(&theirs, place.hardware(2))?, String::new()))
    }) else {
        return;
    };
    for (number, kind) in KINDS.iter().enumerate() {
        let what = format!(
            "{}: judged by Linux again, then changed until the power goes",
            kind.name
        );
        steps.step(&what, || busy_again(&mut console, kind, &drive(number)));
    }
    let killed = steps.step("the power goes", || {
        // All are under way, the last one too, and a commit of some of it was.
        let last = format!("/tmp/vd{}/busy", drive_letter(KINDS.len() - 1));
        let line =
            format!("until test $(ls {last} | wc -l) -gt 10; do sleep 1; echo -n .; done; sleep 6");
        console.run(&line, PATIENCE)?;
        console.kill()?;
        Ok(((), "in the middle of changes of all images".to_owned()))
    });
    if killed.is_none() {
        return;
    }
    for (number, kind) in KINDS.iter().enumerate() {
        let what = format!("{}: recovered here", kind.name);
        steps.step(&what, || recovered(place, &theirs[number]));
    }
    let what = "what was recovered here, used by Linux again";
    steps.step(what, || used_again(place, &theirs));
}

/// Has Linux use images that were recovered here.
fn used_again(place: &Place, images: &[PathBuf]) -> Done<((), String)> {
    let mut console = place.start(images, place.hardware(2))?;
    for (number, kind) in KINDS.iter().enumerate() {
        mount(&mut console, kind, &drive(number))?;
        all(
            &mut console,
            &[
                "test \"$(cat /mnt/busy/kept)\" = kept",
                "find /mnt | wc -l; echo more > /mnt/busy/more; rm -r /mnt/busy; umount /mnt",
            ],
        )?;
    }
    off(console)?;
    for image in images {
        place.judge(image)?;
    }
    Ok((
        (),
        "mounted, changed; both checkers find nothing".to_owned(),
    ))
}

fn drive(number: usize) -> String {
    format!("/dev/vd{}", drive_letter(number))
}

/// The letter of a drive after that of the root.
fn drive_letter(number: usize) -> char {
    char::from(b'b' + number as u8)
}

fn blank(image: &PathBuf) -> Done<()> {
    let file = fs::File::create(image).and_then(|file| file.set_len(64 << 20));
    file.map_err(|e| format!("{}: {e}", image.display()))
}

/// Makes an image of a kind, with files of that kind.
fn made(place: &Place, kind: &Kind, image: &PathBuf) -> Done<((), String)> {
    let tree = place.path("files");
    let _ = fs::remove_dir_all(&tree);
    make_dir(&tree)?;
    let data: Vec<u8> = b"data".iter().copied().cycle().take(300_001).collect();
    for name in ["plain", "sealed"] {
        fs::write(tree.join(name), &data).map_err(|e| e.to_string())?;
    }
    let _ = fs::remove_file(image);
    let (name, from) = (image.display().to_string(), tree.display().to_string());
    let args = [
        "mkfs", &name, "-q", "--size", SIZE, "--from", &from, "--owner", "0:0",
    ];
    place.extant(&[&args[..], kind.mkfs].concat())?;
    if kind.mkfs.contains(&"casefold") {
        place.extant(&["mkdir", &format!("{name}:/fold")])?;
        place.extant(&["chattr", "+F", &format!("{name}:/fold")])?;
        put(place, &format!("{name}:/fold/Straße"), "ours")?;
    }
    if kind.mkfs.contains(&"--quota") {
        put(place, &format!("{name}:/mine"), "mine")?;
        place.extant(&["chown", "1000:1000", &format!("{name}:/mine")])?;
        place.extant(&[
            "quota",
            &name,
            "--user",
            "--id",
            "1000",
            "--space-hard",
            "1M",
        ])?;
    }
    place.judge(image)?;
    Ok((
        (),
        "`extant check` and `e2fsck -fn` find nothing".to_owned(),
    ))
}

/// Puts a small file into an image.
fn put(place: &Place, path: &str, text: &str) -> Done<()> {
    let host = place.path("text");
    fs::write(&host, text).map_err(|e| e.to_string())?;
    place
        .extant(&["cp", &host.display().to_string(), path])
        .map(drop)
}

fn mount(console: &mut Console, kind: &Kind, device: &str) -> Done<()> {
    let line = format!("mount -t ext4 -o {} {device} /mnt", kind.options);
    console.run(&line, PATIENCE).map(drop)
}

/// Has Linux use an image that was made here.
fn judged(console: &mut Console, kind: &Kind, device: &str) -> Done<((), String)> {
    mount(console, kind, device)?;
    all(console, kind.judge)?;
    all(console, &["umount /mnt"])?;
    let check = format!("e2fsck -fn {device} > /tmp/said 2>&1 || {{ cat /tmp/said; false; }}");
    console.run(&check, PATIENCE)?;
    Ok((
        (),
        "used as its own; `e2fsck -fn` finds nothing after that".to_owned(),
    ))
}

/// Has Linux and e2fsprogs make an image.
fn made_there(console: &mut Console, kind: &Kind, device: &str) -> Done<((), String)> {
    console.run(
        &format!("mke2fs -q -t ext4 {} {device}", kind.mke2fs),
        PATIENCE,
    )?;
    mount(console, kind, device)?;
    all(console, kind.make)?;
    let count = console.run("find /mnt | wc -l", PATIENCE)?;
    all(console, &["umount /mnt"])?;
    Ok(((), format!("{} names", count.trim())))
}

/// Judges what Linux left, and changes what it made.
fn judged_here(place: &Place, kind: &Kind, ours: &Path, theirs: &Path) -> Done<((), String)> {
    place.judge(ours)?;
    place.judge(theirs)?;
    let image = theirs.display().to_string();
    let named = |args: &[&str]| -> Vec<String> {
        args.iter()
            .map(|arg| arg.replace("IMAGE", &image))
            .collect()
    };
    let ask = |args: &[&str]| {
        let args = named(args);
        place.extant(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (args, expected) in kind.asked {
        let said = ask(args)?;
        let said: String = said.split_whitespace().collect();
        if !said.contains(expected) {
            return Err(format!("{args:?}: {expected} is not in {said}"));
        }
    }
    for args in kind.change {
        ask(args)?;
    }
    place.judge(theirs)?;
    let seen = format!(
        "nothing is wrong; {} questions, {} changes",
        kind.asked.len(),
        kind.change.len()
    );
    Ok(((), seen))
}

/// Has Linux judge what was changed here, and leaves it changing the image.
fn busy_again(console: &mut Console, kind: &Kind, device: &str) -> Done<((), String)> {
    mount(console, kind, device)?;
    all(console, kind.again)?;
    let name = device.trim_start_matches("/dev/");
    let place = format!("/tmp/{name}");
    all(
        console,
        &[
            &format!("mkdir {place} && mount -o move /mnt {place}"),
            &format!(
                "mkdir {place}/busy && echo kept > {place}/busy/kept && sync -f {place}/busy/kept || sync"
            ),
        ],
    )?;
    for busy in std::iter::once(&"busy").chain(kind.busy) {
        let busy = format!("{place}/{busy}");
        let changes = format!(
            "(i=0; while :; do i=$((i+1)); echo $i > {busy}/f$i; mv {busy}/f$i {busy}/g$((i%50)); \
             test $((i%7)) = 0 && rm -f {busy}/g$((i%40)); done) > /dev/null 2>&1 & true"
        );
        all(console, &[&changes])?;
    }
    Ok(((), "all is as it was changed".to_owned()))
}

/// Recovers an image that was in use when the power went.
fn recovered(place: &Place, image: &Path) -> Done<((), String)> {
    let name = image.display().to_string();
    // What the journal holds is shown before it is replayed, and the same after it.
    let before = place.extant(&["cat", &format!("{name}:/busy/kept")])?;
    place.extant(&["replay", &name])?;
    place.judge(image)?;
    let after = place.extant(&["cat", &format!("{name}:/busy/kept")])?;
    if (before.trim(), after.trim()) != ("kept", "kept") {
        return Err(format!(
            "what was synced is {before:?}, and {after:?} after replaying"
        ));
    }
    let left = place.extant(&["ls", &format!("{name}:/busy")])?;
    let seen = format!(
        "{} names; nothing is wrong, and what was synced is there",
        left.lines().count()
    );
    Ok(((), seen))
}
