//! The table of suites, each a script.
//!
//! A script finds the mount in `$DIR`, the workspace in `$ROOT`, programs from crates.io in `$BIN`
//! and room for what it prints in `$LOG`; how much to do is in `$SEED` and the numbers of
//! [`Amount`](super::options::Amount). It exits with 0 if all went well, and has written into
//! `$LOG/did` what it did.

use super::Setting;
use super::fixture::Fixture;
use super::job::Job;
use std::path::Path;
use std::time::{Duration, Instant};

/// A suite: a table's row.
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// Options of the mount.
    pub(super) options: &'static str,
    pub(super) script: &'static str,
    /// What must hold when the daemon was killed and the file system recovered; `$LOG` is that of
    /// the killed run.
    pub(super) recovered: &'static str,
    /// Whether the suite writes into `$LOG/rows` how many committed rows it looked for.
    pub(super) counts_rows: bool,
}

impl Suite {
    pub(super) const fn new(name: &'static str, script: &'static str) -> Suite {
        Suite {
            name,
            options: "",
            script,
            recovered: "",
            counts_rows: false,
        }
    }
}

/// No suite takes longer.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// fsx, with these weights of operations. No length is 0, for which `fallocate` is an error on
/// every file system, and an error of `fallocate` the end of fsx. It runs again, with the next
/// seed, after so many operations: what it maps to read it never unmaps, and a process has room for
/// 65,530 mappings, each of which makes the next truncation slower.
macro_rules! fsx {
    ($weights:literal, $run:literal) => {
        concat!(
            "cat > \"$LOG/fsx.toml\" <<END\n",
            "flen = 1048576\n",
            "[opsize]\n",
            "min = 1\n",
            "[weights]\n",
            "close_open = 1\nread = 10\nwrite = 10\ntruncate = 5\nfsync = 0.5\nfdatasync = 0.5\n",
            "posix_fallocate = 2\npunch_hole = 2\nsendfile = 2\ncopy_file_range = 2\nposix_fadvise = 1\n",
            $weights,
            "END\n",
            "rest=$FSX_OPS; seed=$SEED\n",
            "while [ \"$rest\" -gt 0 ]; do\n",
            "some=$((rest < ",
            $run,
            " ? rest : ",
            $run,
            "))\n",
            "\"$BIN/fsx\" -S \"$seed\" -N \"$some\" -P \"$LOG\" -f \"$LOG/fsx.toml\" \"$DIR/file\"\n",
            "rest=$((rest - some)); seed=$((seed + 1))\n",
            "done\n",
            "echo \"$FSX_OPS operations on a file of up to 1 MiB\" > \"$LOG/did\"\n",
        )
    };
}

const UNMAPPED: &str = fsx!("mapread = 0\nmapwrite = 0\ninvalidate = 0\n", "1000000000");
const MAPPED: &str = fsx!("mapread = 10\nmapwrite = 10\ninvalidate = 1\n", "5000");

const FIO: &str = r#"
fio --name=verified --directory="$DIR" --size="${FIO_MIB}m" --numjobs=4 --rw=randwrite --bsrange=512-64k \
    --ioengine=psync --fallocate=none --fsync=256 --verify=crc32c --verify_fatal=1 --do_verify=1 \
    --randseed="$SEED" --group_reporting
echo "random writes of 512 B to 64 KiB over $FIO_MIB MiB by 4 jobs, every block read back with its crc32c" > "$LOG/did"
"#;

const FIO_DIRECT: &str = r#"
fio --name=verified --directory="$DIR" --size="${FIO_MIB}m" --numjobs=4 --rw=randwrite --bs=4k \
    --ioengine=libaio --iodepth=16 --direct=1 --fallocate=none --verify=crc32c --verify_fatal=1 --do_verify=1 \
    --randseed="$SEED" --group_reporting
echo "random direct writes of 4 KiB over $FIO_MIB MiB by 4 jobs with 16 under way, read back with their crc32c" > "$LOG/did"
"#;

const FS_MARK: &str = r#"
fs_mark -d "$DIR/marks" -t 8 -D 64 -n "$FILES" -s 10240 -S 1 -L 3 -k -l "$LOG/fs_mark"
test "$(find "$DIR/marks" -type f -size 10240c | wc -l)" -eq $((FILES * 8 * 3))
echo "$((FILES * 8 * 3)) files of 10 KiB by 8 threads, each synced" > "$LOG/did"
"#;

const DBENCH: &str = r#"
dbench -D "$DIR" -t "$DBENCH_SECS" 16
echo "16 clients for $DBENCH_SECS s" > "$LOG/did"
"#;

/// Each stressor of the class for its share of the time, two processes each. What a stressor skips
/// says so in what it prints; `binderfs` makes a file system of its own.
const STRESS_NG: &str = r#"
names=$(stress-ng --class 'filesystem?' 2>&1 | sed -n "s/^class 'filesystem' stressors: //p" | sed 's/binderfs //')
count=$(echo "$names" | wc -w)
test "$count" -gt 0
each=$(((STRESS_SECS + count - 1) / count))
stress-ng --class filesystem --sequential 2 --timeout "$each" --temp-path "$DIR" --verify --seed "$SEED" \
    --exclude binderfs --oomable --metrics-brief > "$LOG/printed" 2>&1 || { cat "$LOG/printed"; exit 1; }
grep -q ' successful run completed' "$LOG/printed"
if grep -E ' (fail|error): ' "$LOG/printed"; then exit 1; fi
skipped=$(sed -n 's/.*\] \([a-z0-9-]*\): .*skipping.*/\1/p' "$LOG/printed" | sort -u | paste -s -d ' ')
echo "$count stressors one after the other, $each s each, 2 processes, with --verify; skipped: $skipped" > "$LOG/did"
"#;

const GIT: &str = r#"
git clone -q --no-hardlinks "file://$ROOT" "$DIR/clone"
cd "$DIR/clone"
head=$(git rev-parse HEAD)
git fsck --full --strict
git checkout -q --detach "$(git rev-list --max-count=40 HEAD | tail -n 1)"
git checkout -q --detach "@{1}"
git gc -q --aggressive --prune=now
git fsck --full --strict
test -z "$(git status --porcelain)"
test "$(git rev-parse HEAD)" = "$head"
git -C "$ROOT" cat-file -e "$head^{commit}"
echo "clone of this repository, fsck, checkout of older files and back, gc, fsck" > "$LOG/did"
"#;

const BUILD: &str = r#"
mkdir "$DIR/c" "$DIR/rust"
cd "$DIR/c"
for n in $(seq 200); do echo "int f$n(int x) { return x + $n; }" > "f$n.c"; done
{
    for n in $(seq 200); do echo "int f$n(int);"; done
    echo 'int main(void) { int x = 0;'
    for n in $(seq 200); do echo "x = f$n(x);"; done
    echo 'return x == 20100 ? 0 : 1; }'
} > main.c
seq 200 | xargs -P 4 -I N cc -c fN.c
ar rc all.a f*.o
cc -o main main.c all.a
./main
cd "$DIR/rust"
cargo init -q --vcs none --name tiny
cargo test -q --offline
echo "201 C files compiled by 4 processes, archived, linked and run; cargo test of a small crate" > "$LOG/did"
"#;

/// Each row is a transaction; what the shell prints is what was committed.
const SQLITE: &str = r#"
base() {
    {
        echo "pragma journal_mode=$1; pragma synchronous=extra;"
        echo "create table t(n integer primary key, v text);"
        seq "$ROWS" | sed "s/.*/insert into t values(&, hex(randomblob(300))); select 'row &';/"
    } | stdbuf -oL sqlite3 -bail "$DIR/$1.db" > "$LOG/$1"
    test "$(sqlite3 "$DIR/$1.db" 'pragma integrity_check')" = ok
    test "$(sqlite3 "$DIR/$1.db" 'select count(*) from t')" -eq "$ROWS"
}
base wal & wal=$!
base delete & delete=$!
wait $wal
wait $delete
echo "$ROWS rows, each a transaction, with a write-ahead log and as many with a rollback journal; integrity_check" > "$LOG/did"
"#;

const SQLITE_RECOVERED: &str = r#"
for mode in wal delete; do
    # The kill may have cut the last line.
    committed=$(sed -n '$!s/^row //p' "$LOG/$mode" | tail -n 1)
    echo "${committed:-0}" >> "$LOG/rows"
    test -n "$committed" || continue
    test "$(sqlite3 "$DIR/$mode.db" 'pragma integrity_check')" = ok
    test "$(sqlite3 "$DIR/$mode.db" 'select count(*) from t')" -ge "$committed"
done
"#;

/// As many links as a file may have.
const LINKS: &str = r#"
cd "$DIR"
perl -e '
    open(my $file, ">", "file") && mkdir("links") or die $!;
    for (2 .. 65000) { link("file", "links/$_") or die "link $_: $!" }
    link("file", "one-more") and die "65001 links";
    $!{EMLINK} or die $!;
'
test "$(stat -c %h file)" -eq 65000
echo "a file gets 65000 links, and EMLINK for one more" > "$LOG/did"
"#;

/// All but pjdfstest, which is compared.
pub(super) const ALL: &[Suite] = &[
    Suite::new("links", LINKS),
    Suite::new("fsx", UNMAPPED),
    Suite::new("fsx-mapped", MAPPED),
    Suite {
        options: "direct_from=4096",
        ..Suite::new("fsx-through", UNMAPPED)
    },
    Suite {
        options: "writeback_cache",
        ..Suite::new("fsx-gathered", MAPPED)
    },
    Suite {
        options: "direct_io",
        ..Suite::new("fsx-passed", MAPPED)
    },
    Suite::new("fio", FIO),
    Suite::new("fio-direct", FIO_DIRECT),
    Suite::new("fs_mark", FS_MARK),
    Suite::new("dbench", DBENCH),
    Suite::new("stress-ng", STRESS_NG),
    Suite::new("git", GIT),
    Suite::new("build", BUILD),
    Suite {
        recovered: SQLITE_RECOVERED,
        counts_rows: true,
        ..Suite::new("sqlite", SQLITE)
    },
];

/// How a suite went.
pub(super) struct Outcome {
    pub(super) suite: &'static Suite,
    /// What it says it did.
    pub(super) did: String,
    pub(super) took: Duration,
    /// The suite's own judgement, and that of `e2fsck` on the image afterwards.
    pub(super) verdict: Result<(), String>,
}

/// Runs a suite on an image of its own.
pub(super) fn run(setting: &Setting, suite: &'static Suite) -> Result<Outcome, String> {
    println!("{} ...", suite.name);
    let log = setting.log(suite.name)?;
    let begun = Instant::now();
    let verdict = judge(setting, suite, &log);
    let did = std::fs::read_to_string(log.join("did")).unwrap_or_default();
    let outcome = Outcome {
        suite,
        did: did.trim().to_owned(),
        took: begun.elapsed(),
        verdict,
    };
    match &outcome.verdict {
        Ok(()) => println!("{}: good: {}", suite.name, outcome.did),
        Err(e) => println!("{}: FAILED: {e}", suite.name),
    }
    Ok(outcome)
}

fn judge(setting: &Setting, suite: &Suite, log: &Path) -> Result<(), String> {
    let fixture = Fixture::new(setting, suite.name)?;
    let mount = fixture.mount(setting, suite.options)?;
    let told = (log, &setting.options.amount, setting.options.seed);
    let mut job = Job::start(setting, suite.script, &mount, told)?;
    let ended = job.wait(LIMIT);
    drop(job);
    let closed = mount.unmount().and_then(|()| fixture.check());
    match ended? {
        None => Err(format!("is not done after {LIMIT:?}")),
        Some(status) if !status.success() => {
            let output = log.join("output");
            Err(format!("{status}; see {}", output.display()))
        }
        Some(_) => closed,
    }
}
