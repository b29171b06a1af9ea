//! The engine on as many processors as this machine has not: whether it is correct, not how fast it
//! is. It is a debug build, which panics where locks are not taken in their order.

use super::machine::{PATIENCE, Place, all, off};
use crate::guest::Hardware;
use crate::programs::Done;
use crate::record::Steps;
use std::fs;

/// Virtual processors.
const PROCESSORS: &[u32] = &[2, 4, 8, 16];

/// What each worker does, in directories of its own and in one of all: `$1` is its number, `$2` how
/// often.
const WORKER: &str = "i=0; mkdir -p $D/$1; while [ $i -lt $2 ]; do \
    echo $i > $D/$1/f$i; mv $D/$1/f$i $D/all/$1-$i; ln $D/all/$1-$i $D/$1/l$i; \
    cat $D/all/$1-$i > /dev/null; dd if=/dev/zero of=$D/$1/big bs=16k count=8 2> /dev/null; \
    truncate -s $((i*100)) $D/$1/big; test $((i%3)) = 0 && rm $D/all/$1-$i; \
    test $((i%5)) = 0 && rm -f $D/$1/l$i; test $((i%3)) = 0 && dd if=/dev/zero of=$D/$1/big bs=4k count=1 conv=notrunc,fsync 2> /dev/null; \
    ls $D/all > /dev/null; i=$((i+1)); done";

/// Runs the steps.
pub(super) fn run(place: &Place, steps: &mut Steps) {
    for &processors in PROCESSORS {
        let what = format!("a mount on {processors} processors, a worker on each");
        steps.step(&what, || stressed(place, processors));
    }
}

fn stressed(place: &Place, processors: u32) -> Done<((), String)> {
    let image = place.path("processors.img");
    let _ = fs::remove_file(&image);
    place.extant(&["mkfs", &image.display().to_string(), "-q", "--size", "256M"])?;
    let hardware = Hardware {
        memory_mib: 2048,
        ..place.hardware(processors)
    };
    let mut console = place.start(std::slice::from_ref(&image), hardware)?;
    // The work is the same in all: what it takes is shared by as many.
    let rounds = (48 / processors).max(4);
    let said = all(
        &mut console,
        &[
            &format!("test $(nproc) = {processors}"),
            "mount -t tmpfs none /mnt && mkdir /mnt/d && D=/mnt/d",
            "extant mount /dev/vdb $D -o log=/tmp/log,errors=continue",
            "mkdir $D/all",
            &format!("w() {{ {WORKER}; }}"),
            &format!("for n in $(seq {processors}); do w $n {rounds} & done; wait"),
            "find $D | wc -l",
            "extant umount $D",
            "test ! -s /tmp/log || { cat /tmp/log; false; }",
        ],
    )?;
    let _ = console.run("true", PATIENCE)?;
    off(console)?;
    place.judge(&image)?;
    let names = said
        .lines()
        .filter_map(|line| line.trim().parse::<u32>().ok())
        .next_back();
    Ok((
        (),
        format!(
            "{} names, no lock out of order, both checkers find nothing",
            names.unwrap_or(0)
        ),
    ))
}
