//! Every target over its corpus, over mutations of it, and over random bytes.

use extant_fuzz_targets::{TARGETS, Target, corpus};
use extant_testkit::rng::{Rng, seed_from_env};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Longest input of random bytes.
const RANDOM_MAX: u64 = 2048;

/// Changes an input as fuzzers do.
fn mutate(rng: &mut Rng, input: &mut Vec<u8>) {
    for _ in 0..rng.between(1, 8) {
        let at = rng.below(input.len() as u64) as usize;
        match rng.below(6) {
            0 => input.truncate(at),
            1 => {
                let more = rng.below(64) as usize;
                input.resize(input.len() + more, rng.next_u64() as u8);
            }
            2 => input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << rng.below(8)),
            3 => input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte = rng.next_u64() as u8),
            // Numbers at the edges.
            4 => {
                let edge = *rng.pick(&[0, 1, u32::MAX, u32::MAX >> 1, 1 << 31, 0xffff]);
                let word = edge.to_le_bytes();
                let width = *rng.pick(&[1, 2, 4]);
                input
                    .iter_mut()
                    .skip(at & !3)
                    .zip(word)
                    .take(width)
                    .for_each(|(to, from)| *to = from);
            }
            _ => {
                let from = rng.below(input.len() as u64) as usize;
                let len = rng.between(1, 16) as usize;
                let piece: Vec<u8> = input.iter().skip(from).take(len).copied().collect();
                input
                    .iter_mut()
                    .skip(at)
                    .zip(piece)
                    .for_each(|(to, from)| *to = from);
            }
        }
    }
}

fn run(target: &Target, input: &[u8], what: &str) -> bool {
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let broke = || panic!("{} broke by {what}: {input:?}", target.name);
    ended.unwrap_or_else(|_| broke())
}

#[test]
fn all_targets_take_what_is_valid() {
    let mut refused = Vec::new();
    for target in TARGETS {
        for (at, input) in corpus::of(target.name).iter().enumerate() {
            if !run(target, input, &format!("input {at} of its corpus")) {
                refused.push((target.name, at));
            }
        }
    }
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn all_targets_keep_their_promises() {
    let seed = seed_from_env("fuzz targets");
    for (index, target) in TARGETS.iter().enumerate() {
        let corpus = corpus::of(target.name);
        let mut rng = Rng::new(seed.wrapping_add(index as u64));
        for turn in 0..target.inputs {
            let mut input = if rng.one_in(4) {
                vec![0; rng.below(RANDOM_MAX) as usize]
            } else {
                rng.pick(&corpus).clone()
            };
            if input.is_empty() || rng.one_in(4) {
                rng.fill(&mut input)
            } else {
                mutate(&mut rng, &mut input)
            }
            run(
                target,
                &input,
                &format!("input {turn} of EXTANT_SEED={seed}"),
            );
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_a_file_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(folder.join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    let expected: Vec<_> = names.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(files, expected);
    for name in names {
        assert!(!corpus::of(name).is_empty(), "{name} has no corpus");
        let file = folder.join(format!("fuzz_targets/{name}.rs"));
        let text = std::fs::read_to_string(file).unwrap();
        assert!(
            text.contains(&format!("extant_fuzz_targets::{name}(input)")),
            "{name}"
        );
        assert!(
            manifest.contains(&format!("\"fuzz_targets/{name}.rs\"")),
            "{name}"
        );
    }
}
