//! Completion of names in images: by the shells themselves, at a terminal.

use crate::support::{Place, extant, extant_with, small_plan};
use extant_testkit::plan::Content;
use extant_testkit::tool::tool;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What gives completion all the time that a busy machine takes.
const PATIENT: (&str, &str) = ("EXTANT_COMPLETION_SECONDS", "600");

/// Types lines at a shell in a terminal. `\t` in a line asks for completion. Each line ends with
/// a word that the shell prints when it is done.
const TYPIST: &str = r#"
import os, pty, re, select, sys, time
shell, lines = sys.argv[1].split(), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(shell[0], shell)
def wait_for(word):
    seen, end = b"", time.time() + 120
    while word not in seen:
        if time.time() > end:
            sys.exit("no %r in %r" % (word, seen))
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                sys.exit("the shell ended: %r" % seen)
for number, line in enumerate(lines):
    # As typed, the word is not the one that is printed.
    end = "; echo do''ne%d\n" % number
    os.write(terminal, (line.encode("utf-8").decode("unicode_escape") + end).encode("latin-1"))
    wait_for(b"done%d" % number)
os.write(terminal, b"exit\n")
os.close(terminal)
os.waitpid(child, 0)
"#;

/// An image with names of many kinds.
fn image(place: &Place) -> String {
    let mut plan = small_plan();
    plan.file("etc/two words", Content::filled(7, 20));
    plan.file("etc/it's", Content::filled(8, 21));
    plan.file("etc/$HOME", Content::filled(9, 22));
    plan.file("etc/dollar$(touch hit)", Content::filled(11, 24));
    plan.file("etc/quote'$(touch hit)'", Content::filled(12, 25));
    plan.dir("etc/only");
    plan.dir("etc/only/deep");
    plan.file("etc/only/deep/er", Content::filled(10, 23));
    place.image(&plan, &[])
}

/// Has a shell complete names in an image, and compares what it then reads with what is there.
fn completes(shell: &str, set_up: &str, quoted: &[&str]) -> Place {
    let place = Place::new();
    let image = image(&place);
    let bin = place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), bin.join("extant")).unwrap();
    let name = shell.split(' ').next().unwrap();
    let script = extant(["completions", name]).ok().stdout;
    std::fs::write(place.join("script"), script).unwrap();
    let out = |n: usize| place.arg(&format!("out{n}"));
    let typed = [
        format!("extant cat {image}:/etc/hostn\\t > {}", out(0)),
        format!("extant cat {image}:/etc/tw\\t > {}", out(1)),
        format!("extant cat {image}:/etc/it\\t > {}", out(2)),
        format!("extant cat {image}:/etc/onl\\tde\\te\\t > {}", out(3)),
        // Nothing is offered, and what was typed stays.
        format!("extant cat {image}:/etc/hostname\\t > {}", out(4)),
        format!("extant ls nowhere.img:/x\\t 2> {}", out(5)),
        format!("extant cat {image}:/etc/do\\t > {}", out(6)),
        format!("extant cat {image}:/etc/qu\\t > {}", out(7)),
    ];
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let set_up = set_up.replace("SCRIPT", &place.arg("script"));
    let set_up = format!("cd; {set_up}");
    tool("python3")
        .args(["-c", TYPIST, shell, &set_up])
        .args(&typed)
        .args(quoted)
        .env(PATIENT.0, PATIENT.1)
        .env("PATH", path)
        .env("HOME", place.path())
        .env("TERM", "dumb")
        .ok();
    let read = |n: usize| std::fs::read(place.join(&format!("out{n}"))).unwrap();
    for (n, content) in [
        (0, Content::filled(1, 4)),
        (1, Content::filled(7, 20)),
        (2, Content::filled(8, 21)),
        (3, Content::filled(10, 23)),
        (4, Content::filled(1, 4)),
        (6, Content::filled(11, 24)),
        (7, Content::filled(12, 25)),
    ] {
        assert!(read(n) == content.to_bytes(), "{shell}: {}", typed[n]);
    }
    let said = String::from_utf8(read(5)).unwrap();
    assert!(said.contains("nowhere.img"), "{said}");
    assert!(!place.join("hit").exists(), "{shell} ran a name");
    place
}

#[test]
fn bash_completes_names_in_images() {
    // The image has the same path to all: where the shell is.
    let quoted = [
        "extant cat \"fs.img:/etc/tw\\t > in-double",
        "extant cat 'fs.img:/etc/tw\\t > in-single",
        "extant cat 'fs.img:/etc/do\\t > dollar-in-single",
        // A quote that is open still, as nothing was offered, ends here.
        "extant cat \"fs.img:/etc/do\\t\" 2> nothing-in-double",
        "extant cat \"fs.img:/etc/qu\\t\" 2> no-quote-in-double",
        "extant cat 'fs.img:/etc/qu\\t' 2> nothing-in-single",
    ];
    let place = completes("bash --norc --noprofile -i", ". SCRIPT", &quoted);
    let read = |name: &str| std::fs::read(place.join(name)).unwrap();
    assert!(read("in-double") == Content::filled(7, 20).to_bytes());
    assert!(read("in-single") == Content::filled(7, 20).to_bytes());
    assert!(read("dollar-in-single") == Content::filled(11, 24).to_bytes());
    for (name, path) in [
        ("nothing-in-double", "/etc/do:"),
        ("no-quote-in-double", "/etc/qu:"),
        ("nothing-in-single", "/etc/qu:"),
    ] {
        let said = String::from_utf8(read(name)).unwrap();
        assert!(said.contains(path), "{name}: {said}");
    }
}

#[test]
fn zsh_completes_names_in_images() {
    completes(
        "zsh -f -i",
        "autoload -U compinit; compinit -D; . SCRIPT; unsetopt zle_bracketed_paste",
        &[],
    );
}

#[test]
fn fish_completes_names_in_images() {
    completes("fish --no-config -i", "source SCRIPT", &[]);
}

/// What is offered for a word.
fn offered(word: &str) -> Vec<String> {
    let run = extant_with(["complete-path", word], |command| {
        command.env(PATIENT.0, PATIENT.1);
    })
    .ok();
    assert_eq!(run.stderr, "", "{word}");
    run.text().lines().map(str::to_owned).collect()
}

#[test]
fn what_is_offered_is_what_is_there() {
    let place = Place::new();
    let image = image(&place);
    let in_image = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{image}:{name}")).collect()
    };
    let below = |path: &str| offered(&format!("{image}:{path}"));
    assert_eq!(
        below(""),
        in_image(&["/etc/", "/loop", "/lost+found/", "/usr/"])
    );
    assert_eq!(below("/"), below(""));
    assert_eq!(below("/us"), in_image(&["/usr/"]));
    assert_eq!(below("/etc/."), in_image(&["/etc/.hidden"]));
    assert_eq!(below("/etc/$"), in_image(&["/etc/$HOME"]));
    assert_eq!(below("/etc/hostname"), in_image(&["/etc/hostname"]));
    assert_eq!(
        below("/usr/lib/b"),
        [""; 0],
        "a name that no terminal shows"
    );
    for nothing in ["/gone/", "/etc/hostname/", "etc", "/x"] {
        assert_eq!(below(nothing), [""; 0], "{nothing}");
    }
    for word in [
        "",
        ":",
        ":/",
        "none.img:/",
        "/dev/null:/",
        "/dev/zero:/",
        "https://x/y:/z",
        "-",
    ] {
        assert_eq!(offered(word), [""; 0], "{word}");
    }
    // Neither a pipe nor what is no image keeps anybody waiting.
    tool("mkfifo").args([&place.arg("pipe")]).ok();
    std::fs::write(place.join("text"), "text").unwrap();
    for name in ["pipe", "text"] {
        assert_eq!(offered(&format!("{}:/", place.arg(name))), [""; 0]);
    }
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 2], 1024 + 56).unwrap();
    assert_eq!(below("/"), [""; 0]);
}

#[test]
fn partitions_and_large_directories_are_completed() {
    let place = Place::new();
    let image = place.arg("many.img");
    extant(["mkfs", "-q", "--size", "64M", "--inodes", "4000", &image]).ok();
    std::fs::create_dir(place.join("d")).unwrap();
    for n in 0..3000 {
        std::fs::write(place.join(&format!("d/n{n}")), "").unwrap();
    }
    extant(["cp", "-r", &place.arg("d"), &format!("{image}:/")]).ok();
    assert_eq!(offered(&format!("{image}:/d/n")).len(), 1000);
    assert_eq!(offered(&format!("{image}:/d/n299")).len(), 11);
    let disk = place.arg("disk.img");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(80 << 20)
        .unwrap();
    tool("sgdisk").args(["-n", "1:2048:+70M", &disk]).ok();
    extant(["mkfs", "-q", "--partition", "1", &disk]).ok();
    extant(["mkdir", &format!("{disk}#1:/found")]).ok();
    assert_eq!(
        offered(&format!("{disk}#1:/f")),
        [format!("{disk}#1:/found/")]
    );
}

#[test]
fn completion_ends_although_nobody_reads() {
    let place = Place::new();
    // Longer in all than what a pipe takes.
    let image = place.arg(&"m".repeat(200));
    extant(["mkfs", "-q", "--size", "16M", "--inodes", "2000", &image]).ok();
    std::fs::create_dir(place.join("d")).unwrap();
    for n in 0..1000 {
        std::fs::write(place.join(&format!("d/n{n}")), "").unwrap();
    }
    extant(["cp", "-r", &place.arg("d"), &format!("{image}:/")]).ok();
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["complete-path", &format!("{image}:/d/")])
        .env_remove(PATIENT.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        if began.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("completion waits for its reader");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ended.success(), "{ended}");
    assert!(began.elapsed() >= Duration::from_secs(1), "it did not wait");
}
