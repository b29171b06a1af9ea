//! What is kept comes back.

use super::super::model::{Entry, Times};
use super::*;
use proptest::prelude::*;

#[test]
fn a_node_stays_small() {
    assert_eq!(size_of::<Row>(), 40);
    assert_eq!(size_of::<FilePart>(), 24);
    assert_eq!(size_of::<DataExtent>(), 24);
    assert_eq!(size_of::<Entry>(), 8);
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    let secs = prop_oneof![
        Just(i64::from(i32::MIN)),
        Just(i64::from(i32::MIN) - 1),
        Just(i64::from(i32::MIN) + (1 << 34) - 1),
        Just(i64::from(i32::MIN) + (1 << 34)),
        any::<i64>(),
        0..1_i64 << 33,
    ];
    let nanos = prop_oneof![0..1_000_000_000_u32, any::<u32>(), Just(1_000_000_000)];
    (secs, nanos).prop_map(|(secs, nanos)| Timestamp { secs, nanos })
}

fn any_times() -> impl Strategy<Value = Times> {
    prop_oneof![
        any_time().prop_map(Times::all),
        [any_time(), any_time(), any_time(), any_time()]
            .prop_map(|[a, m, c, b]| Times::new(a, m, c, b)),
    ]
}

fn any_origin() -> impl Strategy<Value = Origin> {
    prop_oneof![
        (any::<u64>(), any::<u64>(), any_time()).prop_map(|(dev, ino, mtime)| Origin::Path {
            dev,
            ino,
            mtime_sec: mtime.secs,
            mtime_nsec: mtime.nanos,
        }),
        any::<u64>().prop_map(|at| Origin::Archive { at }),
        (0..1_u64 << 40).prop_map(|at| Origin::Inline { at }),
    ]
}

proptest! {
    #[test]
    fn what_is_kept_comes_back(
        nodes in proptest::collection::vec((
            any_times(), any::<[u32; 6]>(), any::<u64>(), any_origin(), any::<bool>(),
        ), 1..40),
    ) {
        let mut rows = Rows::new();
        let mut kept = Vec::new();
        for (times, [uid, gid, nlink, flags, a, b], size, origin, is_sparse) in nodes {
            let is_sparse = is_sparse && !matches!(origin, Origin::Inline { .. });
            let coverage = if is_sparse {
                Coverage::Sparse { first: a, len: b }
            } else {
                Coverage::Dense
            };
            let file = FileRow { origin, coverage };
            let node = Node {
                size,
                times,
                // Some are alike.
                uid: uid % 3,
                gid: gid % 2,
                nlink: nlink % 2,
                mode: 0o100_644,
                flags: flags % 2,
                parent: NodeId::ROOT,
                xattrs: 0,
                source: 0,
                payload: Payload::File(rows.add_file(file).unwrap()),
            };
            let id = rows.push(&node).unwrap();
            kept.push((id, node, file));
        }
        for (id, node, file) in &kept {
            prop_assert_eq!(&rows.get(*id), node);
            prop_assert_eq!(rows.file(*id), Some(*file));
        }
        // Neither the others nor what is not changed notice a change.
        let (id, node, _) = kept[kept.len() / 2];
        rows.change(id, |node| node.uid = 77).unwrap();
        for (other, before, _) in &kept {
            let uid = if *other == id { 77 } else { before.uid };
            prop_assert_eq!(rows.get(*other), Node { uid, ..*before });
        }
        rows.change(id, |changed| *changed = node).unwrap();
        // In another order, all are what they were.
        let len = kept.len() as u32;
        let numbers = (0..len).map(|at| if at == 0 { 0 } else { len - at }).collect();
        rows.arrange(numbers, kept.len());
        for (at, (_, node, file)) in kept.iter().enumerate() {
            let now = NodeId::from_index(if at == 0 { 0 } else { len - at as u32 });
            prop_assert_eq!(&rows.get(now), node);
            prop_assert_eq!(rows.file(now), Some(*file));
        }
    }
}
