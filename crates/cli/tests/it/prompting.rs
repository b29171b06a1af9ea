//! `extant edit` at a terminal: lines are typed at a prompt and run at once.

use crate::support::{Place, extant, extant_with};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::tool::tool;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs a program in a terminal of its own. A step waits for a text, types one, or closes the
/// terminal. Writes what was shown and how the program ended.
const TYPIST: &str = r#"
import fcntl, json, os, pty, select, signal, struct, sys, termios, time
steps, program = json.loads(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    # What runs in the background may have been told to pass over it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(program[0], program)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
shown, seen, is_open, end = b"", 0, True, time.time() + 120
def more():
    global shown, is_open
    if not select.select([terminal], [], [], 0.2)[0]:
        return
    try:
        found = os.read(terminal, 65536)
    except OSError:
        found = b""
    shown += found
    is_open = found != b""
for step in steps:
    if "type" in step:
        os.write(terminal, step["type"].encode())
    elif "wait" in step:
        text = step["wait"].encode()
        while text not in shown[seen:]:
            if time.time() > end or not is_open:
                sys.exit("no %r in %r" % (text, shown[seen:]))
            more()
        seen = shown.index(text, seen) + len(text)
    else:
        os.close(terminal)
        is_open = False
while is_open and time.time() < end:
    more()
if is_open:
    os.kill(child, signal.SIGKILL)
_, status = os.waitpid(child, 0)
print(json.dumps({"shown": shown.decode("utf-8", "replace"), "code": os.waitstatus_to_exitcode(status)}))
"#;

const PROMPT: &str = "extant> ";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

/// What a terminal showed, and how the command ended: negative for a signal.
struct Shown {
    text: String,
    code: i64,
}

/// Steps at a terminal.
#[derive(Default)]
struct Steps(Vec<Value>);

impl Steps {
    /// Begins at the first prompt.
    fn new() -> Self {
        Self::default().wait(PROMPT)
    }

    fn wait(mut self, text: &str) -> Self {
        self.0.push(json!({"wait": text}));
        self
    }

    fn keys(mut self, keys: &str) -> Self {
        self.0.push(json!({"type": keys}));
        self
    }

    /// Types a line, and waits for the next prompt.
    fn line(self, line: &str) -> Self {
        self.keys(&format!("{line}\r")).wait("\n").wait(PROMPT)
    }

    /// Types a line, and waits for what is said and for the next prompt.
    fn says(self, line: &str, said: &str) -> Self {
        self.keys(&format!("{line}\r"))
            .wait("\n")
            .wait(said)
            .wait(PROMPT)
    }

    /// Types a line to which more belongs.
    fn begin(self, line: &str) -> Self {
        self.keys(&format!("{line}\r")).wait("\n").wait("      > ")
    }

    fn hang_up(mut self) -> Self {
        self.0.push(json!({"close": true}));
        self
    }

    /// Does the steps at `extant edit`, with its history below `place`.
    fn at(self, place: &Place, terminal: &str, args: &[&str]) -> Shown {
        let run = tool("python3")
            .args(["-c", TYPIST, &Value::Array(self.0).to_string()])
            .args([env!("CARGO_BIN_EXE_extant"), "edit"])
            .args(args)
            .env("XDG_STATE_HOME", place.join("state"))
            .env("TERM", terminal)
            .ok();
        let found: Value = serde_json::from_str(&run.text()).unwrap();
        Shown {
            text: found["shown"].as_str().unwrap().to_owned(),
            code: found["code"].as_i64().unwrap(),
        }
    }

    fn run(self, place: &Place, args: &[&str]) -> Shown {
        self.at(place, "xterm", args)
    }
}

fn image(place: &Place) -> String {
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    image
}

fn names(image: &str) -> String {
    let listed = extant(["ls", image]).ok().text();
    let names = listed
        .split_whitespace()
        .filter(|name| *name != "lost+found");
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_typed_is_in_the_image_after_commit_and_not_before() {
    let place = Place::new();
    let image = image(&place);
    let before = fs::read(&image).unwrap();
    let shown = Steps::new()
        .line("mkdir /dir")
        .begin("write /dir/file <<END")
        .begin("first")
        .line("END")
        .says("cat /dir/file", "first")
        .begin("if exists /dir/file")
        .begin("  mkdir /yes")
        .begin("else")
        .begin("  mkdir /no")
        .line("end")
        .says("ls", "yes")
        .says("status", "mkdir /dir")
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_clean(Path::new(&image));
    assert_eq!(names(&image), "dir yes");
    let text = extant(["cat", &format!("{image}:/dir/file")]).ok().text();
    assert_eq!(text, "first\n");
    // All of it but for `commit`.
    fs::write(&image, &before).unwrap();
    for ends in [
        &["abort\r"][..],
        &["quit\r", "quit\r"],
        &["exit\r", CTRL_D],
        &[CTRL_D, CTRL_D],
    ] {
        let (end, begin) = ends.split_last().unwrap();
        let steps = Steps::new().line("mkdir /dir");
        // What is typed before there is a prompt again means something else to the terminal.
        let steps = begin.iter().fold(steps, |steps, keys| {
            steps.keys(keys).wait("\n").wait(PROMPT)
        });
        let shown = steps.keys(end).run(&place, &[&image]);
        assert_eq!(shown.code, 1, "{ends:?}: {}", shown.text);
        assert!(shown.text.contains("nothing is changed"), "{}", shown.text);
        assert_eq!(fs::read(&image).unwrap(), before, "{ends:?}");
    }
    // Where nothing was done, nothing is lost.
    for end in ["quit\r", "exit\r", "abort\r", CTRL_D] {
        let shown = Steps::new()
            .says("expect exists /x", "/x")
            .keys(end)
            .run(&place, &[&image]);
        assert_eq!(shown.code, 0, "{end:?}: {}", shown.text);
        assert_eq!(fs::read(&image).unwrap(), before, "{end:?}");
    }
}

#[test]
fn what_fails_changes_nothing_and_ends_nothing() {
    let place = Place::new();
    let image = image(&place);
    let shown = Steps::new()
        .line("mkdir /a /b")
        // In part it could be done.
        .says("rm -r /a /missing /b", "/missing")
        .says("mkdirs /x", "no command of a script")
        .says("mkdir 'x", "no other one")
        .says("chmod 600 x", "begin with /")
        .says("commit now", "nothing follows")
        .says("expect absent /a", "/a exists")
        .says("cat /missing", "/missing")
        .begin("if exists /a")
        .begin("  mkdir /c")
        .says("  rm /missing\rend", "line 3 of the block")
        .begin("if exists /a")
        .begin("  mkdirs /c")
        .says("end", "line 2 of the block")
        .says("uuid 12", "not a UUID")
        .line("mkdir /d")
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_clean(Path::new(&image));
    assert_eq!(names(&image), "a b d");
}

#[test]
fn keys_forget_what_was_begun_and_no_more() {
    let place = Place::new();
    let image = image(&place);
    let shown = Steps::new()
        .line("mkdir /a")
        .keys(&format!("mkdir /b{CTRL_C}"))
        .wait(PROMPT)
        .begin("write /c <<END")
        .begin("text")
        .keys(CTRL_C)
        .wait(PROMPT)
        .begin("if exists /a")
        .begin("mkdir /d")
        .keys(CTRL_D)
        .wait("no line `end`")
        .wait(PROMPT)
        // The end has to be asked for twice, one after the other.
        .keys(CTRL_D)
        .wait("not in the image yet")
        .wait(PROMPT)
        .line("mkdir /e")
        .keys(CTRL_D)
        .wait("not in the image yet")
        .wait(PROMPT)
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_clean(Path::new(&image));
    assert_eq!(names(&image), "a e");
}

/// Also where the program would hear of it.
#[test]
fn a_terminal_that_is_closed_commits_nothing() {
    let place = Place::new();
    let image = image(&place);
    let before = fs::read(&image).unwrap();
    for terminal in ["xterm", "dumb"] {
        let shown = Steps::new()
            .line("mkdir /a")
            .hang_up()
            .at(&place, terminal, &[&image]);
        assert_eq!(shown.code, -1, "{terminal}: {}", shown.text);
        assert_eq!(fs::read(&image).unwrap(), before, "{terminal}");
        // Where the signal is ignored.
        let ignoring = "import os, signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
                        os.execv(sys.argv[1], sys.argv[1:])";
        let steps = Steps::new().line("mkdir /a").hang_up();
        let run = tool("python3")
            .args(["-c", TYPIST, &Value::Array(steps.0).to_string()])
            .args(["/usr/bin/env", "python3", "-c", ignoring])
            .args([env!("CARGO_BIN_EXE_extant"), "edit", "--no-history", &image])
            .env("TERM", terminal)
            .ok();
        let found: Value = serde_json::from_str(&run.text()).unwrap();
        assert_eq!(found["code"], 1, "{terminal}: {}", run.text());
        assert_eq!(fs::read(&image).unwrap(), before, "{terminal}");
    }
    // It lets go of the image.
    extant(["mkdir", &format!("{image}:/later")]).ok();
}

/// Ctrl-C is a signal there, which ends the program.
#[test]
fn where_no_line_can_be_edited_lines_come_as_they_are() {
    let place = Place::new();
    let image = image(&place);
    let shown = Steps::new()
        .line("mkdir /a")
        .begin("write /b <<END")
        .begin("text")
        .line("END")
        .says("rm /missing", "/missing")
        .keys("commit\n")
        .at(&place, "dumb", &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert!(!shown.text.contains('\x1b'), "{:?}", shown.text);
    assert_clean(Path::new(&image));
    assert_eq!(names(&image), "a b");
    let before = fs::read(&image).unwrap();
    let shown = Steps::new()
        .line("mkdir /c")
        .keys(CTRL_C)
        .at(&place, "dumb", &[&image]);
    assert_eq!(shown.code, -2, "{}", shown.text);
    assert_eq!(fs::read(&image).unwrap(), before);
    assert!(!place.join("state").exists(), "nothing is kept there");
}

#[test]
fn words_and_paths_are_completed() {
    let place = Place::new();
    let image = image(&place);
    fs::write(place.join("on the host"), "text\n").unwrap();
    let host = place.arg("on");
    let shown = Steps::new()
        .line("mkd\t-p /some/where")
        // What is not committed is there, too.
        .line(&format!("put {host}\t /so\twh\t"))
        .line("mv /some/where/on\t '/some/two words'")
        .line("chmod 600 /some/tw\t")
        .keys("get /some/tw\t")
        .keys(&format!("{}\r", place.arg("out")))
        .wait(PROMPT)
        // The second Tab lists what there is.
        .keys("rm /some/\t\t")
        .wait("two words")
        .wait("where/")
        .keys(CTRL_C)
        // The line is given up: what comes before is that line, drawn anew.
        .wait("[?2004l")
        .wait(PROMPT)
        .keys("commi\t\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_clean(Path::new(&image));
    let file = format!("{image}:/some/two words");
    let found = extant(["stat", "--json", &file]).ok().json();
    assert_eq!(found["mode"], "0600", "{found}");
    assert_eq!(fs::read_to_string(place.join("out")).unwrap(), "text\n");
}

#[test]
fn lines_are_kept_for_the_next_time() {
    let place = Place::new();
    let image = image(&place);
    let kept = place.join("state/extant/edit-history");
    let shown = Steps::new()
        .line("mkdir /a")
        .line(" mkdir /secret")
        .begin("write /b <<END")
        .begin("text")
        .line("END")
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    let lines = || fs::read_to_string(&kept).unwrap();
    assert_eq!(lines(), "mkdir /a\nwrite /b <<END\ncommit\n");
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // Up to the line before the last two.
    let up = "\x1b[A";
    let shown = Steps::new()
        .keys(&format!("{up}{up}{up}"))
        .wait("mkdir /a")
        .line("2")
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_eq!(names(&image), "a a2 b secret");
    let before = lines();
    let shown = Steps::new()
        .line("mkdir /c")
        .keys("commit\r")
        .run(&place, &[&image, "--no-history"]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_eq!(lines(), before);
    // What cannot be kept is told, and the work goes on.
    fs::remove_file(&kept).unwrap();
    fs::create_dir(&kept).unwrap();
    let shown = Steps::default()
        .wait("lines are not kept for the next time")
        .wait(PROMPT)
        .line("mkdir /d")
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_eq!(names(&image), "a a2 b c d secret");
}

/// As an editor of the terminal gives it: in one piece.
#[test]
fn what_is_pasted_is_done_line_by_line_up_to_the_first_that_fails() {
    let place = Place::new();
    let image = image(&place);
    let paste = |text: &str| format!("\x1b[200~{text}\x1b[201~\r");
    let shown = Steps::new()
        .keys(&paste(
            "mkdir /a\nwrite /b <<END\ntext\nEND\nrm /missing\nmkdir /c",
        ))
        .wait("missing")
        .wait("missing")
        .wait(PROMPT)
        .keys("commit\r")
        .run(&place, &[&image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert_eq!(names(&image), "a b");
}

#[test]
fn objects_of_json_go_to_standard_output_and_the_prompt_does_not() {
    let place = Place::new();
    let image = image(&place);
    let out = place.arg("out");
    for terminal in ["xterm", "dumb"] {
        let steps = Steps::new()
            .line("mkdir /a")
            .says("mkdir /a", "exists")
            .line("rm -r /a")
            .says("status", "rm -r /a")
            .keys("commit\r");
        let script = "exec \"$1\" edit --json --no-history \"$2\" > \"$3\"";
        let run = tool("python3")
            .args(["-c", TYPIST, &Value::Array(steps.0).to_string()])
            .args(["/bin/sh", "-c", script, "sh"])
            .args([env!("CARGO_BIN_EXE_extant"), &image, &out])
            .env("TERM", terminal)
            .ok();
        let found: Value = serde_json::from_str(&run.text()).unwrap();
        assert_eq!(found["code"], 0, "{}", run.text());
        let text = fs::read_to_string(&out).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(
            lines[0],
            json!({"line": 1, "do": ["mkdir", "/a"], "ok": true})
        );
        assert_eq!(lines[1]["line"], 2);
        assert_eq!(lines[1]["ok"], false);
        assert_eq!(lines[2]["line"], 3);
        assert_eq!(lines[3]["committed"], true);
        assert_eq!(lines[3]["lines_done"], 2);
    }
}

#[test]
fn a_dry_run_at_a_terminal_changes_nothing() {
    let place = Place::new();
    let image = image(&place);
    let before = fs::read(&image).unwrap();
    let shown = Steps::new()
        .line("mkdir /a")
        .says("ls", "a")
        .keys("commit\r")
        .run(&place, &["--dry-run", &image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert!(shown.text.contains("nothing is changed"), "{}", shown.text);
    assert_eq!(fs::read(&image).unwrap(), before);
}

/// Neither a prompt, nor lines that fail and are left out.
#[test]
fn what_is_no_terminal_is_a_script() {
    let place = Place::new();
    let image = image(&place);
    let script = "mkdir /a\nrm /missing\ncommit\n";
    for options in [&[][..], &["-f", "-"]] {
        let args = [&["edit", &image], options].concat();
        let run = extant_with(args, |command| {
            command.write_stdin(script);
        })
        .fails(2);
        assert!(
            run.stderr.contains("`commit` is no command"),
            "{}",
            run.stderr
        );
        assert!(!run.stderr.contains(PROMPT), "{}", run.stderr);
    }
    let run = extant_with(["edit", &image], |command| {
        command.write_stdin("mkdir /a\n");
    })
    .ok();
    assert_eq!((run.text(), run.stderr), (String::new(), String::new()));
    // At a terminal too, if it is called a file.
    let shown = Steps::default()
        .wait("Ctrl-D ends it")
        .keys("mkdir /b\n\x04")
        .run(&place, &["-f", "-", &image]);
    assert_eq!(shown.code, 0, "{}", shown.text);
    assert!(!shown.text.contains(PROMPT), "{}", shown.text);
    assert_eq!(names(&image), "a b");
    extant(["edit", &image, "-e", "mkdir /c", "--no-history"]).fails(2);
}
