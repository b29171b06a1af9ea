//! Mounts where the kernel offers io_uring and the system does not let a process have it.

use crate::support::Image;
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::fs;
use std::process::Command;

/// Says which system call the process that mounts shall not have.
const WITHOUT: &str = "EXTANT_TEST_REFUSED_CALL";

/// Has the kernel refuse a call, as the filter of a container does.
fn refuse(call: libc::c_long) {
    let rules = [(call, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// The process that mounts, which does nothing when it is run as a test.
#[test]
fn child_that_mounts_without_rings() {
    let Ok(call) = std::env::var(WITHOUT) else {
        return;
    };
    refuse(call.parse().unwrap());
    let image = Image::new(16 << 20, &[]);
    let (mount, lacks) = image.mount_and_say("");
    let lacks = lacks.expect("there are no rings");
    assert!(lacks.contains("refuses"), "{lacks}");
    fs::write(mount.at("file"), b"content").unwrap();
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"content");
    assert_eq!(mount.metric("extant_ring_requests_total"), "0");
    mount.unmount();
    image.assert_clean();
}

#[test]
fn a_mount_comes_up_by_the_device_where_the_system_refuses_any_call_of_rings() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_enter,
    ] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["refused_rings::child_that_mounts_without_rings", "--exact"])
            .env(WITHOUT, call.to_string())
            .output()
            .unwrap();
        assert!(child.status.success(), "call {call}: {child:?}");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("1 passed"), "call {call}: {said}");
    }
}
