//! `extant grep` beside grep(1).

use super::{Looked, assert_same, sorted};
use crate::support::{Place, Run, extant, small_plan};
use extant_testkit::plan::TreePlan;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::path::Path;

/// Random patterns that are compared.
const ROUNDS: usize = 200;

/// How deep groups of random patterns lie in each other.
const DEPTH: u64 = 2;

/// Files with lines of few letters, so that patterns match some of them.
fn texts(dir: &Path, rng: &mut Rng) {
    let dir = dir.join("texts");
    std::fs::create_dir_all(dir.join("below/deep")).unwrap();
    let line = |rng: &mut Rng| {
        let length = rng.below(12);
        let letters = b"aabbcAB1_ .*+(x\t";
        let mut line: Vec<u8> = (0..length).map(|_| *rng.pick(letters)).collect();
        line.push(b'\n');
        line
    };
    for name in [
        "one",
        "two.conf",
        "below/three.conf",
        "below/deep/four.txt",
        ".five",
    ] {
        let lines: Vec<u8> = (0..40).flat_map(|_| line(rng)).collect();
        std::fs::write(dir.join(name), lines).unwrap();
    }
    std::fs::write(dir.join("no-end"), "abc\nlast line a").unwrap();
    std::fs::write(dir.join("empty"), "").unwrap();
    std::fs::write(dir.join("binary"), b"aab\0abc\nab\n\0\0b").unwrap();
    std::fs::write(dir.join("high"), b"\xff\xfea b\xe4\n\xc3\xa4ab\n").unwrap();
    let long = [
        &vec![b'x'; 300_000][..],
        b"abc\n",
        &vec![b'b'; 200_000],
        b"\nab\n",
    ]
    .concat();
    std::fs::write(dir.join("long"), long).unwrap();
    let many: String = (0..60_000).map(|n| format!("line {n} ab\n")).collect();
    std::fs::write(dir.join("many"), many).unwrap();
}

fn looked(seed: u64) -> Looked {
    let mut rng = Rng::new(seed);
    let mut plan = TreePlan::new();
    plan.dir("tree");
    Looked::with(&plan, |dir| texts(dir, &mut rng))
}

/// What both programs write, in which `@` begins a path.
fn both(looked: &Looked, words: &[String]) -> [Run; 2] {
    let mut peer = vec!["grep".to_owned()];
    peer.extend(words.iter().map(|word| looked.in_mount(word)));
    let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
    let mut mine = vec!["grep".to_owned()];
    mine.extend(words.iter().map(|word| looked.in_image(word)));
    [looked.peer(&peer), super::extant_plain(&mine)]
}

fn compare(looked: &Looked, words: &[String]) -> usize {
    let [peer, mine] = both(looked, words);
    assert_eq!(
        mine.code, peer.code,
        "{words:?}: {}{}",
        mine.stderr, peer.stderr
    );
    let mounted = looked.mounted();
    let plain = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).replace(&mounted, "");
        text.replace("grep: ", "")
    };
    let (of_mine, of_peer) = (plain(&mine.stdout), plain(&peer.stdout));
    let lines = |text: &str| {
        if words.iter().any(|word| word.starts_with("-r")) {
            sorted(text)
        } else {
            text.lines().map(str::to_owned).collect()
        }
    };
    assert_same(&lines(&of_mine), &lines(&of_peer), &words);
    of_mine.lines().count()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn lines_are_those_that_grep_finds() {
    require!(KernelExt4);
    let looked = looked(7);
    let mut shown = 0;
    for line in [
        "a @/texts/one",
        "ab @/texts/one @/texts/two.conf",
        "-n b @/texts/one",
        "-i AB @/texts/one",
        "-v a @/texts/one",
        "-vn a @/texts/no-end",
        "-c a @/texts/one @/texts/empty",
        "-vc a @/texts/no-end @/texts/empty",
        "-l a @/texts/one @/texts/empty @/texts/no-end",
        "-H a @/texts/one",
        "-h a @/texts/one @/texts/no-end",
        "-o a. @/texts/one",
        "-on b* @/texts/one",
        "-q a @/texts/one",
        "-q zzz @/texts/one",
        "zzz @/texts/one",
        "-F .* @/texts/one",
        "-w a @/texts/one",
        "-wo ab* @/texts/one",
        "-x a* @/texts/one",
        "-e a -e ^b @/texts/one",
        "-E (a|ab)(c|bcd)* @/texts/one",
        "-Eo (a|ab)(c|bcd)* @/texts/one",
        "-r ab @/texts",
        "-rn --include *.conf a @/texts",
        "-rl --exclude *.conf a @/texts",
        "-rc --exclude-dir deep a @/texts",
        "-rh ^a @/texts",
        "ab @/texts/binary",
        "-c ab @/texts/binary",
        "-a ab @/texts/binary",
        "-v ab @/texts/binary",
        "-l ab @/texts/binary",
        "zzz @/texts/binary",
        "a @/texts/high",
        "-o . @/texts/high",
        "-c abc @/texts/long",
        "-n ^ab$ @/texts/long",
        "-c 9.*ab$ @/texts/many",
        "-n 59999 @/texts/many",
        "-vc 1 @/texts/many",
        "-nv [0-8] @/texts/many",
        "[[:upper:]] @/texts/one",
        "[^[:alpha:]]$ @/texts/one",
        "\\<a @/texts/one",
        "-E a{2,3}$ @/texts/one",
        "a\\{2\\} @/texts/one",
        "\\(a\\|b\\)c @/texts/one",
        "a$ @/texts/nothing",
        "a @/texts/nothing @/texts/one",
        "-q a @/texts/nothing @/texts/one",
    ] {
        shown += compare(&looked, &words(line));
    }
    shown += compare(&looked, &["-c".into(), String::new(), "@/texts/one".into()]);
    shown += compare(&looked, &["-n".into(), "^$".into(), "@/texts/one".into()]);
    shown += compare(&looked, &["a\nb".into(), "@/texts/one".into()]);
    shown += compare(
        &looked,
        &["-Fx".into(), "a\n\nb".into(), "@/texts/one".into()],
    );
    assert!(shown > 500, "{shown}");
}

#[test]
fn random_patterns_find_what_grep_finds() {
    require!(KernelExt4);
    let seed = seed_from_env("random_patterns_find_what_grep_finds");
    let looked = looked(seed);
    let mut rng = Rng::new(seed);
    let mut some = 0;
    for _ in 0..ROUNDS {
        let extended = rng.one_in(2);
        let mut line = Vec::new();
        if extended {
            line.push("-E".to_owned());
        }
        // Of whole lines and whole words at once only one can be meant.
        let whole = *rng.pick(&["-x", "-w"]);
        for option in ["-i", "-n", "-v", "-c", whole] {
            if rng.one_in(6) {
                line.push(option.to_owned());
            }
        }
        // grep does not look for all shorter words where the longest match is none.
        let no_parts = line.iter().any(|option| option == "-v" || option == "-w");
        if !no_parts && rng.one_in(4) {
            line.push("-o".to_owned());
        }
        let mut pattern = String::new();
        expression(&mut rng, extended, DEPTH, &mut pattern);
        line.extend(["-e".to_owned(), pattern]);
        line.extend(["@/texts/one", "@/texts/two.conf", "@/texts/no-end"].map(str::to_owned));
        some += usize::from(compare(&looked, &line) > 0);
    }
    assert!(some > ROUNDS / 2, "{some}");
}

/// A random expression that means the same to both.
fn expression(rng: &mut Rng, extended: bool, depth: u64, out: &mut String) {
    let (open, close, or) = if extended {
        ("(", ")", "|")
    } else {
        ("\\(", "\\)", "\\|")
    };
    for part in 0..rng.between(1, 3) {
        // Within groups grep does not find all that repeated anchors match.
        let anchor = part == 0 && depth == DEPTH && rng.one_in(8);
        if anchor {
            out.push('^');
        }
        match rng.below(if depth == 0 { 8 } else { 10 }) {
            0..=3 => out.push_str(rng.pick::<&str>(&["a", "b", "c", "A", "1", "x", "ab", " "])),
            4 => out.push('.'),
            5 => out.push_str(rng.pick::<&str>(&[
                "[ab]",
                "[^a]",
                "[a-c]",
                "[[:alpha:]]",
                "[[:space:]_]",
                "[]x]",
            ])),
            6 => out.push_str(rng.pick::<&str>(&["\\w", "\\W", "\\s", "\\S"])),
            7 => out.push_str(rng.pick::<&str>(&["\\.", "\\*", "_", "\\["])),
            _ => {
                out.push_str(open);
                expression(rng, extended, depth - 1, out);
                if rng.one_in(2) {
                    out.push_str(or);
                    expression(rng, extended, depth - 1, out);
                }
                out.push_str(close);
            }
        }
        let repeats: &[&str] = if extended {
            &["*", "+", "?", "{2}", "{1,2}", "{0,1}"]
        } else {
            &["*", "\\+", "\\?", "\\{2\\}", "\\{1,2\\}", "\\{0,1\\}"]
        };
        if rng.one_in(3) {
            out.push_str(rng.pick::<&str>(repeats));
        }
    }
    if depth == DEPTH && rng.one_in(10) {
        out.push('$');
    }
}

#[test]
fn json_has_a_line_for_each_line() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let text = place.arg("text");
    std::fs::write(&text, b"one\ntwo \xff\nthree\n").unwrap();
    extant(["cp", &text, &format!("{image}:/text")]).ok();
    let lines = extant(["grep", "-r", "--json", "t", &image, "--include", "text"])
        .ok()
        .lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["path"], &lines[0]["line"]),
        (&"/text".into(), &2.into())
    );
    assert_eq!(lines[0]["text_hex"], "74776f20ff");
    assert_eq!(lines[1]["text"], "three");
    let counts = extant(["grep", "--json", "-c", "t", &format!("{image}:/text")]).ok();
    assert_eq!(counts.lines()[0]["count"], 2);
}

#[test]
fn what_cannot_be_searched_has_the_code_of_trouble() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = format!("{image}:/etc/hostname");
    for line in [
        &["grep", "x"][..],
        &["grep", "(a)\\1", "-E", &at],
        &["grep", "[a", &at],
        &["grep", "-E", "a{30000}{30000}", &at],
        &["grep", "x", &format!("{image}:/etc")],
        &["grep", "x", &place.arg("gone.img")],
    ] {
        extant(line).fails(2);
    }
}

#[test]
fn holes_are_passed_over() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = format!("{image}:/hole");
    extant(["touch", &at]).ok();
    extant(["truncate", "--size", "1T", &at]).ok();
    assert_eq!(extant(["grep", "-c", "a", &at]).code, 1);
}
