//! `extant find` beside find(1): tests, operators and what is shown.

use super::{Looked, assert_same, extant_plain, sorted, squeezed};
use crate::support::{Place, extant, small_plan};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};

/// Random expressions that are compared.
const ROUNDS: usize = 150;

/// What both programs write for an expression, in which `@` begins a path.
fn both(looked: &Looked, words: &[String]) -> [(i32, String); 2] {
    let peer: Vec<String> = ["find".to_owned(), "@/tree".to_owned()]
        .iter()
        .chain(words)
        .map(|word| looked.in_mount(word))
        .collect();
    let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
    let peer = looked.peer(&peer);
    assert!(peer.stderr.is_empty(), "{words:?}: {}", peer.stderr);
    let mut mine = vec!["find".to_owned(), looked.in_image("@/tree")];
    mine.extend(["--prefix".to_owned(), looked.mounted()]);
    let mut is_file = false;
    for word in words {
        // A file to compare with is one of the image; a path in a pattern begins at its root.
        mine.push(if is_file {
            looked.in_image(word)
        } else {
            word.strip_prefix('@').unwrap_or(word).to_owned()
        });
        is_file = word.contains("newer") && !word.ends_with('t');
    }
    let mine = extant_plain(&mine);
    assert!(mine.stderr.is_empty(), "{words:?}: {}", mine.stderr);
    [(peer.code, peer.text()), (mine.code, mine.text())]
}

fn compare(looked: &Looked, words: &[String]) -> usize {
    let [(peer_code, peer), (code, mine)] = both(looked, words);
    assert_eq!(code, peer_code, "{words:?}");
    assert_same(&sorted(&mine), &sorted(&peer), &words);
    mine.lines().count()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn tests_and_operators_are_those_of_find() {
    require!(KernelExt4);
    let looked = Looked::new();
    let mut shown = 0;
    for line in [
        "-true",
        "-name *.txt",
        "-name .*",
        "-iname *.TXT*",
        "-name [a-b]*",
        "-path @/tree/sub/*",
        "-ipath *SUB/DEEP*",
        "-type f,l",
        "-type d -empty",
        "-type f -empty",
        "-empty",
        "-size +1",
        "-size 1",
        "-size -2k",
        "-size 0",
        "-size 513c",
        "-size +3w -size -1M",
        "-size 1M",
        "-perm 644",
        "-perm -4000",
        "-perm /6000",
        "-perm u=rw,go=r",
        "-perm -g+w,o+w",
        "-links +1",
        "-links 2 -type f",
        "-uid +1",
        "-gid 5",
        "-user root",
        "-user 7777",
        "-group daemon",
        "-nouser",
        "-nogroup -o -type d",
        "-mtime 0",
        "-mtime 3",
        "-mtime +3",
        "-mtime -3",
        "-mtime +1.5",
        "-mmin +40",
        "-mmin -60",
        "-ctime 0",
        "-cmin -600",
        "-atime +2",
        "-amin -30",
        "-newer @/tree/sub",
        "-newermt 2010-01-01",
        "-not -newermt 2010-01-01",
        "-anewer @/tree/sub -cnewer @/tree/old",
        "-newerac @/tree/old",
        "-newerct 2020-01-01",
        "-maxdepth 1",
        "-mindepth 2 -maxdepth 3 -type f",
        "-maxdepth 0",
        "-depth -name sub",
        "-name sub -prune -o -print",
        "-path */deep -prune -o -type f -print",
        "( -name a -o -name sub ) -type f",
        "! -type f ! -type d",
        "-type l -o -name a -print",
        "-name a -print -o -name b1 -print -print",
        "-false -o -name *c",
        "-name nothing",
    ] {
        shown += compare(&looked, &words(line));
    }
    assert!(shown > 300, "{shown}");
}

#[test]
fn random_expressions_choose_what_find_chooses() {
    require!(KernelExt4);
    let looked = Looked::new();
    let seed = seed_from_env("random_expressions_choose_what_find_chooses");
    let mut rng = Rng::new(seed);
    let (mut some, mut shown) = (0, 0);
    for _ in 0..ROUNDS {
        let mut line = Vec::new();
        if rng.one_in(6) {
            line.push("-depth".to_owned());
        }
        for word in ["-maxdepth", "-mindepth"] {
            if rng.one_in(6) {
                line.extend([word.to_owned(), rng.below(4).to_string()]);
            }
        }
        expression(&mut rng, 3, &mut line);
        let lines = compare(&looked, &line);
        some += usize::from(lines > 0);
        shown += lines;
    }
    // Most of them show something, or nothing would be compared.
    assert!(some > ROUNDS / 4 && shown > ROUNDS, "{some}, {shown}");
}

/// A random expression.
fn expression(rng: &mut Rng, depth: u64, out: &mut Vec<String>) {
    let kind = if depth == 0 { 0 } else { rng.below(9) };
    let mut two = |rng: &mut Rng, between: &[&str], closed: bool| {
        let parts = closed.then_some(["(", ")"]);
        out.extend(parts.map(|parts| parts[0].to_owned()));
        expression(rng, depth - 1, out);
        out.extend(between.iter().map(|word| (*word).to_owned()));
        expression(rng, depth - 1, out);
        out.extend(parts.map(|parts| parts[1].to_owned()));
    };
    match kind {
        0 | 1 => leaf(rng, out),
        2 => two(rng, &[], false),
        3 => two(rng, &["-a"], false),
        // No comma: find(1) exchanges what stands before and behind it where it takes that for
        // quicker, and then the wrong one says what holds.
        4..=6 => {
            let or = *rng.pick(&["-o", "-or"]);
            two(rng, &[or], true);
        }
        7 => {
            out.push(rng.pick(&["!", "-not"]).to_string());
            out.push("(".to_owned());
            expression(rng, depth - 1, out);
            out.push(")".to_owned());
        }
        _ => {
            out.push(rng.pick(&["!", "-not"]).to_string());
            leaf(rng, out);
        }
    }
}

/// A random test, or now and then something to do.
fn leaf(rng: &mut Rng, out: &mut Vec<String>) {
    let sign = |rng: &mut Rng, numbers: &[&str]| {
        format!("{}{}", rng.pick(&["", "+", "-"]), rng.pick(numbers))
    };
    let mut one = |word: &str, value: String| out.extend([word.to_owned(), value]);
    match rng.below(22) {
        0 => one(
            "-name",
            rng.pick(&["a*", "*.txt", "?", "*2", "sub", ".*", "[!a-z]*", "* *"])
                .to_string(),
        ),
        1 => one(
            "-iname",
            rng.pick(&["A*", "*TXT", "SUB", "*b?"]).to_string(),
        ),
        2 => one(
            "-path",
            rng.pick(&["*/sub/*", "@/tree/[a-d]*", "*deep*", "@/tree"])
                .to_string(),
        ),
        3 => one(
            "-type",
            rng.pick(&["f", "d", "l", "f,d", "p,s,c", "b", "l,f"])
                .to_string(),
        ),
        4 => {
            let unit = *rng.pick(&["", "c", "w", "b", "k", "M"]);
            let size = sign(rng, &["0", "1", "2", "10", "512", "1025"]);
            one("-size", size + unit);
        }
        5 => {
            let modes = [
                "644", "-4000", "/222", "-u+w", "/a+x", "-755", "7777", "0", "/u=s,g=s",
            ];
            one("-perm", rng.pick(&modes).to_string());
        }
        6 => one("-links", sign(rng, &["1", "2", "3"])),
        7 => one("-inum", sign(rng, &["12", "20", "30", "40"])),
        8 => one("-uid", sign(rng, &["0", "1", "2", "7777"])),
        9 => one("-gid", sign(rng, &["0", "1", "5", "8888"])),
        10 => one(
            "-user",
            rng.pick(&["root", "daemon", "2", "7777"]).to_string(),
        ),
        11 => one("-group", rng.pick(&["root", "tty", "8888"]).to_string()),
        12 => one("-mtime", sign(rng, &["0", "1", "2", "3", "6", "1.5"])),
        13 => one("-mmin", sign(rng, &["10", "20", "40", "70"])),
        14 => one(
            "-newer",
            rng.pick(&["@/tree/old", "@/tree/sub", "@/tree/link"])
                .to_string(),
        ),
        15 => one(
            "-newermt",
            rng.pick(&["2001-09-09", "2017-07-14 02:40:30", "2020-01-01"])
                .to_string(),
        ),
        16 => out.push(rng.pick(&["-nouser", "-nogroup"]).to_string()),
        17 => out.push("-empty".to_owned()),
        18 => out.push(rng.pick(&["-true", "-false"]).to_string()),
        19 => out.push("-prune".to_owned()),
        20 => out.push("-print".to_owned()),
        _ => one(
            "-printf",
            rng.pick(&["%p %s %m\\n", "%f:%y:%d\\n", "%P|%u|%g\\n"])
                .to_string(),
        ),
    }
}

#[test]
fn formats_say_what_those_of_find_say() {
    require!(KernelExt4);
    let looked = Looked::new();
    for format in [
        "%p|%P|%f|%h|%H|%s|%b|%k|%d|%i|%n\\n",
        "%m|%#m|%M|%y|%Y|%l|%u|%U|%g|%G\\n",
        "%p %a|%c|%t\\n",
        "%p %A@|%A+|%T@|%T+|%TX|%TS|%TT\\n",
        "%p %TY-%Tm-%Td %TH:%TM %Ta %TA %Tb %TB %Th %Tc %Tr %Tx %TD %TF\\n",
        "%p %Tj %Tk %Tl %TI %Tp %Ty %Tw %TR %TZ\\n",
        "%10s|%-10s|%010s|%.3p|%-20.5f|%5d|%04d|%05m|%%\\t\\101\\\\\\n",
        "%p\\n\\cnothing of this",
    ] {
        let [(_, peer), (_, mine)] = both(&looked, &["-printf".to_owned(), format.to_owned()]);
        assert_same(&sorted(&mine), &sorted(&peer), &format);
    }
    let [(_, peer), (_, mine)] = both(&looked, &words("-ls"));
    let (mut mine, mut peer) = (squeezed(&mine), squeezed(&peer));
    mine.sort();
    peer.sort();
    assert_same(&mine, &peer, &"-ls");
    let [(_, peer), (_, mine)] = both(&looked, &words("-type f -print0"));
    let list = |text: &str| {
        let mut names: Vec<String> = text.split('\0').map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(list(&mine), list(&peer));
}

#[test]
fn the_whole_image_is_searched_by_inodes_first_with_one_result() {
    require!(KernelExt4);
    let looked = Looked::new();
    let image = &looked.image;
    for line in [
        "-type f",
        "-name *a* -uid 0 -size +0",
        "-type d -o -size 0 -print",
        "-not -perm 644",
        "-newermt 2020-01-01 , -type l",
        "-nouser",
        "-type f -prune -o -uid 0 -print",
        "-empty",
    ] {
        let line: Vec<&str> = line.split(' ').collect();
        let whole = extant([&["find", image][..], &line].concat()).ok().text();
        // With a depth that nothing reaches, every inode is walked to.
        let walked = [&["find", image, "--max-depth", "1000"][..], &line].concat();
        assert_eq!(whole, extant(walked).ok().text(), "{line:?}");
        assert!(!whole.is_empty(), "{line:?}");
    }
}

#[test]
fn own_options_and_expressions_hold_together() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let find = |args: &[&str]| {
        let start = [&["find", &image], args].concat();
        extant(start).ok().text()
    };
    assert_eq!(find(&["--type", "l", "-name", "l*"]), "/etc/link\n/loop\n");
    assert_eq!(find(&["-name", "l*", "--type", "l"]), "/etc/link\n/loop\n");
    assert_eq!(find(&["--size", "+1M", "-type", "f"]), "/usr/lib/sparse\n");
    assert_eq!(
        find(&["--prefix", "/mnt", "-name", "hostname"]),
        "/mnt/etc/hostname\n"
    );
    assert_eq!(find(&["-type", "d", ",", "-name", "link"]), "/etc/link\n");
    let both = ["-name", "link", "-print", ",", "-name", "up", "-print"];
    assert_eq!(find(&both), "/etc/link\n/etc/up\n");
    assert_eq!(find(&["-maxdepth", "0"]), "/\n");
    assert_eq!(find(&["-name", "/"]), "/\n");
    assert_eq!(find(&["-name", "link", "-print0"]), "/etc/link\0");
    let quit = find(&["-type", "f", "-print", "-quit"]);
    assert_eq!(quit.lines().count(), 1);
    let record = extant(["find", &image, "-name", "link", "--json"])
        .ok()
        .lines();
    assert_eq!(record[0]["target"], "hostname");
    let record = extant(["find", &image, "--json", "-name", "link", "-print"]);
    assert_eq!(record.ok().lines().len(), 1);
    // Options of the program stand anywhere.
    let list = extant(["find", "--offset", "0", &image, "-name", "etc"]).ok();
    assert_eq!(list.text(), "/etc\n");
}

#[test]
fn several_places_and_patterns_are_searched_and_a_bad_one_is_said() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    let run = extant(["find", &at("/etc/h*"), &at("/usr/lib/*.so"), "-type", "f"]).ok();
    assert_eq!(run.text(), "/etc/hostname\n/usr/lib/libone.so\n");
    let gone = place.arg("gone.img");
    for bad in [at("/nothing"), at("/nothing*"), gone] {
        let run = extant(["find", &bad, &at("/etc"), "-name", "hostname"]).fails(1);
        assert_eq!(run.text(), "/etc/hostname\n", "{bad}");
    }
    let run = extant(["tree", &at("/nothing"), &at("/etc")]).fails(1);
    assert!(run.text().contains("hostname"), "{}", run.text());
    let run = extant(["find", &image, "-user", "nobody-knows"]).fails(1);
    assert!(run.stderr.contains("give a number"), "{}", run.stderr);
    let run = extant(["find", &image, "-newer", &at("/nothing")]).fails(1);
    assert!(run.stderr.contains("/nothing"), "{}", run.stderr);
}

#[test]
fn words_that_are_unknown_are_refused_with_the_nearest() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    for (line, said) in [
        ("-nmae x", "-nmae is unknown; -name is the nearest"),
        ("-maxdpeth 1", "-maxdepth is the nearest"),
        ("-frobnicate", "-frobnicate is unknown"),
        ("-name", "-name needs a word behind it"),
        ("( -name x", "`(` has no `)`"),
        ("-type q", "-type \"q\""),
        ("-printf %q", "%q is unknown"),
        ("-print0 --json", "give one of them"),
    ] {
        let line: Vec<&str> = line.split(' ').collect();
        let run = extant([&["find", &image][..], &line].concat()).fails(2);
        assert!(run.stderr.contains(said), "{line:?}: {}", run.stderr);
    }
}

#[test]
fn attributes_are_found() {
    require!(KernelExt4);
    let looked = Looked::new();
    let image = &looked.image;
    let all = extant(["find", image, "-xattr"]).ok().text();
    assert_eq!(all, "/tree/attributed\n");
    let named = extant(["find", image, "-xattrname", "user.origin"]).ok();
    assert_eq!(named.text(), "/tree/attributed\n");
    let other = extant(["find", image, "-xattrname", "user.other"]).ok();
    assert_eq!(other.text(), "");
}

#[test]
fn a_file_of_the_host_is_compared_with_as_well() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let stamp = place.arg("stamp");
    std::fs::write(&stamp, "").unwrap();
    // All files of the plan are from 2017.
    let younger = extant(["find", &format!("{image}:/etc"), "-newer", &stamp]).ok();
    assert_eq!(younger.text(), "");
    let older = ["find", &format!("{image}:/etc"), "!", "-newer", &stamp];
    assert_eq!(extant(older).ok().text().lines().count(), 6);
}

#[test]
fn commands_get_places_in_the_image() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = format!("{image}:/etc");
    let program = env!("CARGO_BIN_EXE_extant");
    let read = [
        "find", &at, "-name", "hostname", "-exec", program, "cat", "{}", ";",
    ];
    let content = extant(["cat", &format!("{at}/hostname")]).ok().stdout;
    assert_eq!(extant(read).ok().stdout, content);
    let echo = ["find", &at, "-type", "l", "-exec", "echo", "<{}>", ";"];
    let expected = ["absolute", "link", "up"].map(|name| format!("<{at}/{name}>\n"));
    assert_eq!(extant(echo).ok().text(), expected.concat());
    let many = ["find", &at, "-type", "l", "-exec", "echo", "{}", "+"];
    let expected = ["absolute", "link", "up"].map(|name| format!("{at}/{name}"));
    assert_eq!(extant(many).ok().text(), expected.join(" ") + "\n");
    // What a command exits with is what the test says.
    let chosen = [
        "find",
        &at,
        "-exec",
        "test",
        "{}",
        "=",
        &format!("{at}/up"),
        ";",
        "-print",
    ];
    assert_eq!(extant(chosen).ok().text(), "/etc/up\n");
    let run = extant(["find", &at, "-exec", "no-such-program", "{}", ";"]).fails(1);
    assert!(run.stderr.contains("cannot be run"), "{}", run.stderr);
    assert_eq!(extant(["find", &at, "-exec", "false", "{}", "+"]).code, 1);
    assert_eq!(extant(["find", &at, "-exec", "false", "{}", ";"]).code, 0);
}
