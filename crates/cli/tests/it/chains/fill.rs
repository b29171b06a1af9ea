//! What is written into images between the steps.

use super::{Chain, OPTIONS, Step};
use crate::support::extant;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::dumpe2fs_header;
use extant_testkit::plan::{NodeKind, TreePlan};
use extant_testkit::torture::random_plan;
use std::fs;

/// Writes a directory more, and perhaps takes one away, by Linux or by us.
pub(super) fn write(chain: &mut Chain) -> Step {
    let linux = chain.rng.one_in(2) || chain.next_dir == 0;
    if linux && chain.linux_can() {
        by_linux(chain)?
    } else {
        by_us(chain)?
    }
    chain.learn()
}

/// What is free.
struct Free {
    bytes: u64,
    inodes: u64,
    /// The least that a file, a directory or a block of attributes takes, in bytes.
    cluster: u64,
}

fn free(chain: &Chain) -> Free {
    let header = dumpe2fs_header(chain.path());
    // Linux keeps a fiftieth back for itself, up to 4,096 clusters.
    let kept = header.number("Block count") / 50;
    let size = header.number("Block size");
    let cluster = if header.has_feature("bigalloc") {
        header.number("Cluster size")
    } else {
        size
    };
    Free {
        bytes: header.number("Free blocks").saturating_sub(kept) * size,
        inodes: header.number("Free inodes"),
        cluster,
    }
}

/// A tree for which there is room.
fn plan(chain: &mut Chain) -> Option<TreePlan> {
    let Free {
        bytes,
        inodes,
        cluster,
    } = free(chain);
    // A file with its last block, attributes and a node of its map.
    let least = (3 * cluster).max(10_000);
    let mut entries = chain.rng.between(5, 60).min(inodes / 2);
    while entries > 3 {
        let mut plan = random_plan(chain.rng.next_u64(), entries as usize);
        // With a small journal, quota files hold some dozens of owners.
        for node in plan.nodes_mut() {
            node.owner(node.uid % 5 * 800_000_000, node.gid % 5 * 20_000);
        }
        let needed: u64 = plan
            .nodes()
            .iter()
            .map(|node| match &node.kind {
                NodeKind::File(content) => content.size + least,
                _ => least,
            })
            .sum();
        if needed < bytes / 3 {
            return Some(plan);
        }
        entries /= 2;
    }
    None
}

fn by_linux(chain: &mut Chain) -> Step {
    let Free { bytes, .. } = free(chain);
    let plan = plan(chain);
    let mount = KernelMount::try_mount(chain.path(), Mode::ReadWrite, OPTIONS)
        .map_err(|e| format!("Linux does not mount it: {e}"))?;
    // What lies before the rest goes again, so that there are holes.
    let filler = mount.path().join("filler");
    let size = chain.rng.below(bytes / 2);
    let filled = fs::write(&filler, vec![0x5a; size as usize]).is_ok();
    if filled && let Some(plan) = &plan {
        let name = format!("d{}", chain.next_dir);
        chain.next_dir += 1;
        chain.tell(format!(
            "Linux writes {size} bytes, /{name} behind them, and takes them away"
        ));
        fs::create_dir(mount.path().join(&name)).map_err(|e| format!("mkdir: {e}"))?;
        plan.plant(&mount.path().join(&name));
        chain.dirs.push(name);
    } else {
        chain.tell("Linux finds no room to write");
    }
    let _ = fs::remove_file(&filler);
    if let Some(gone) = one_to_go(chain) {
        chain.tell(format!("Linux removes /{gone}"));
        fs::remove_dir_all(mount.path().join(&gone)).map_err(|e| format!("rm: {e}"))?;
    }
    mount.unmount();
    Ok(())
}

fn by_us(chain: &mut Chain) -> Step {
    if let Some(gone) = one_to_go(chain) {
        chain.tell(format!("extant rm -r fs.img:/{gone}"));
        let run = extant(["rm", "-r", &format!("{}:/{gone}", chain.image)]);
        if run.code != 0 {
            return Err(run.stderr);
        }
    }
    let Some(plan) = plan(chain) else {
        chain.tell("there is no room to write");
        return Ok(());
    };
    let name = format!("d{}", chain.next_dir);
    chain.next_dir += 1;
    let from = chain.place.join(&name);
    fs::create_dir(&from).map_err(|e| e.to_string())?;
    plan.plant(&from);
    chain.tell(format!("extant cp -a {name} fs.img:/"));
    let to = format!("{}:/", chain.image);
    let run = extant(["cp", "-a", &from.display().to_string(), &to]);
    let _ = fs::remove_dir_all(&from);
    chain.dirs.push(name);
    match run.code {
        0 => Ok(()),
        code => Err(format!("{code}: {}", run.stderr)),
    }
}

fn one_to_go(chain: &mut Chain) -> Option<String> {
    if chain.dirs.len() < 2 || !chain.rng.one_in(2) {
        return None;
    }
    let at = chain.rng.below(chain.dirs.len() as u64) as usize;
    Some(chain.dirs.swap_remove(at))
}
