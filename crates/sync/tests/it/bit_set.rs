//! The bit set against a plain one.

use extant_sync::{AtomicBitSet, RmwClass};
use std::collections::BTreeSet;

use super::rng::Rng;

static MEMBER: RmwClass = RmwClass::new("test set");

#[test]
fn it_holds_what_a_plain_set_holds() {
    let mut rng = Rng::new(super::seed("bit_set"));
    for limit in [1, 63, 64, 65, 4096, 5000, 300_000] {
        let set = AtomicBitSet::new(&MEMBER, limit);
        let mut plain = BTreeSet::new();
        for _ in 0..4000 {
            let number = rng.below(limit as u64) as usize;
            match rng.below(6) {
                5 => {
                    let first = number / 64 * 64;
                    let mut which = rng.below(1 << 32) << rng.below(32);
                    if limit - first < 64 {
                        which &= (1 << (limit - first)) - 1;
                    }
                    set.insert_all(number, which);
                    let bits = (0..64).filter(|bit| which & 1 << bit != 0);
                    plain.extend(bits.map(|bit| first + bit));
                }
                0 | 1 => {
                    set.insert(number);
                    plain.insert(number);
                }
                2 => {
                    let member = plain.range(number..).next().copied();
                    if let Some(member) = member {
                        set.remove(member);
                        plain.remove(&member);
                    }
                }
                _ => {
                    let next = plain.range(number..).next().copied();
                    assert_eq!(set.next(number), next, "from {number} below {limit}");
                    assert_eq!(set.contains(number), plain.contains(&number));
                }
            }
        }
    }
}
