//! File capabilities: from text or a mask to the value of `security.capability`.
//!
//! The value is `struct vfs_cap_data` of revision 2 (`linux/capability.h`). The text is that of
//! `cap_from_text(3)`: clauses of names, an operator and the sets it is about.

use super::error::Parsed;
use super::text::shown;

/// The attribute that holds them.
pub(super) const ATTRIBUTE: &[u8] = b"security.capability";

const REVISION_2: u32 = 0x0200_0000;
/// The last revision: with the number of the user that is root where they count.
const REVISION_3: u32 = 0x0300_0000;
const REVISION_MASK: u32 = 0xff00_0000;
const FLAG_EFFECTIVE: u32 = 1;

/// Names without their `cap_`, by number.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];
const ALL: u64 = (1 << NAMES.len()) - 1;

/// What a program may get when it is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    permitted: u64,
    inheritable: u64,
    effective: u64,
}

impl Capabilities {
    /// Those of a mask, permitted and effective, as Android's tables have them.
    pub(super) const fn of_mask(mask: u64) -> Self {
        Self {
            permitted: mask,
            inheritable: 0,
            effective: mask,
        }
    }

    /// Parses text such as `cap_net_raw+ep` or `cap_chown,cap_fowner=ep`; `onto` are those that the
    /// text goes on from.
    pub(super) fn parse(text: &[u8], onto: Self) -> Parsed<Self> {
        let wrong = || {
            format!(
                "{} are no capabilities: write some such as cap_net_raw+ep",
                shown(text)
            )
        };
        let words = std::str::from_utf8(text).map_err(|_| wrong())?;
        let mut all = onto;
        let mut clauses = words.split_ascii_whitespace().peekable();
        clauses.peek().ok_or_else(wrong)?;
        for clause in clauses {
            let operators = clause.find(['=', '+', '-']).ok_or_else(wrong)?;
            let (names, mut rest) = clause.split_at(operators);
            let mask = mask_of(names)?;
            while let Some(operator) = rest.bytes().next() {
                let end = rest[1..]
                    .find(['=', '+', '-'])
                    .map_or(rest.len(), |at| at + 1);
                let sets = &rest[1..end];
                rest = &rest[end..];
                if operator == b'=' {
                    all.clear(mask);
                } else if sets.is_empty() {
                    return Err(wrong());
                }
                for set in sets.bytes() {
                    let set = match set {
                        b'p' => &mut all.permitted,
                        b'i' => &mut all.inheritable,
                        b'e' => &mut all.effective,
                        _ => return Err(wrong()),
                    };
                    if operator == b'-' {
                        *set &= !mask;
                    } else {
                        *set |= mask;
                    }
                }
            }
        }
        if all.effective != 0 && all.effective != all.permitted | all.inheritable {
            return Err(format!(
                "{} cannot be kept with a file: either all of its capabilities are effective, or none",
                shown(text)
            ));
        }
        Ok(all)
    }

    fn clear(&mut self, mask: u64) {
        self.permitted &= !mask;
        self.inheritable &= !mask;
        self.effective &= !mask;
    }

    /// Whether there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.permitted == 0 && self.inheritable == 0
    }

    /// The value of the attribute.
    pub(super) fn value(&self) -> Box<[u8]> {
        let mut magic = REVISION_2;
        if self.effective != 0 {
            magic |= FLAG_EFFECTIVE;
        }
        let words = [
            magic,
            self.permitted as u32,
            self.inheritable as u32,
            (self.permitted >> 32) as u32,
            (self.inheritable >> 32) as u32,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The bits of names that commas separate; of none, all.
fn mask_of(names: &str) -> Parsed<u64> {
    if names.is_empty() || names.eq_ignore_ascii_case("all") {
        return Ok(ALL);
    }
    names.split(',').try_fold(0, |mask, name| {
        let lower = name.to_ascii_lowercase();
        let number = lower
            .strip_prefix("cap_")
            .and_then(|short| NAMES.iter().position(|known| *known == short))
            .ok_or_else(|| {
                format!("{name:?} is no capability: they are called such as cap_net_raw")
            })?;
        Ok(mask | 1 << number)
    })
}

/// The user that is root where the capabilities in a value count, and the value with another one.
pub(super) fn with_root(
    value: &[u8],
    map: impl FnOnce(u32) -> Parsed<u32>,
) -> Parsed<Option<Box<[u8]>>> {
    let Some((head, [a, b, c, d])) = value.split_last_chunk().filter(|_| value.len() == 24) else {
        return Ok(None);
    };
    let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if magic & REVISION_MASK != REVISION_3 {
        return Ok(None);
    }
    let root = map(u32::from_le_bytes([*a, *b, *c, *d]))?;
    Ok(Some(
        [head, &root.to_le_bytes()].concat().into_boxed_slice(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Vec<u8> {
        let parsed = Capabilities::parse(text.as_bytes(), Capabilities::default());
        parsed.unwrap().value().into_vec()
    }

    #[test]
    fn text_becomes_the_value_that_setcap_writes() {
        let words = |words: [u32; 5]| {
            words
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            value("cap_net_raw+ep"),
            words([0x0200_0001, 1 << 13, 0, 0, 0])
        );
        assert_eq!(
            value("cap_net_raw,cap_BPF=eip"),
            words([0x0200_0001, 1 << 13, 1 << 13, 1 << 7, 1 << 7])
        );
        assert_eq!(value("cap_chown=p"), words([0x0200_0000, 1, 0, 0, 0]));
        assert_eq!(
            value("all=p cap_chown-p"),
            words([0x0200_0000, !1, 0, 0x1ff, 0])
        );
        assert!(
            Capabilities::parse(b"=", Capabilities::of_mask(5))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn what_no_file_can_have_is_refused() {
        for wrong in [
            "",
            "cap_net_raw",
            "cap_net_raw+",
            "net_raw+ep",
            "cap_none+p",
            "cap_chown+x",
            "cap_chown+p cap_kill+ep",
        ] {
            let parsed = Capabilities::parse(wrong.as_bytes(), Capabilities::default());
            assert!(parsed.is_err(), "{wrong}");
        }
    }
}
