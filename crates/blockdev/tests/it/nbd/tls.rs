//! NBD over TLS, against nbdkit with certificates made for the test.

use super::Running;
use extant_blockdev::{BlockDevice, NbdAddress, NbdDevice, NbdOptions, NbdTransport};
use extant_testkit::tool::{free_port, tool};
use std::path::Path;
use tempfile::TempDir;

/// An authority, and certificates of it: of the server for `localhost`, of a client.
fn make_certificates(dir: &Path) {
    let openssl = |args: &[&str]| {
        let key = ["-newkey", "rsa:2048", "-nodes"];
        tool("openssl")
            .arg("req")
            .args(key)
            .args(args)
            .args(["-days", "2"])
            .ok()
    };
    let path = |name: &str| dir.join(name).display().to_string();
    let authority = ["-x509", "-subj", "/CN=test authority"];
    let out = ["-keyout", &path("ca-key.pem"), "-out", &path("ca-cert.pem")];
    let usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"];
    openssl(&[&authority[..], &out, &usage].concat());
    for (name, extension) in [
        ("server", "subjectAltName=DNS:localhost"),
        ("client", "subjectAltName=DNS:somebody"),
    ] {
        let (key, cert) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
        let subject = format!("/CN={name}");
        let (ca, ca_key) = (path("ca-cert.pem"), path("ca-key.pem"));
        openssl(&[
            "-x509",
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-subj",
            &subject,
            "-addext",
            extension,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &path(&key),
            "-out",
            &path(&cert),
        ]);
    }
}

fn secured(address: &NbdAddress) -> NbdAddress {
    NbdAddress {
        tls: true,
        ..address.clone()
    }
}

#[test]
fn a_server_that_requires_tls_and_a_certificate_is_used() {
    let certificates = TempDir::new().expect("a directory");
    make_certificates(certificates.path());
    let dir = format!("--tls-certificates={}", certificates.path().display());
    let args = [
        "--tls=require",
        &dir,
        "--tls-verify-peer",
        "memory",
        "size=16M",
    ];
    let running = Running::nbdkit(&args);
    // In the clear it is refused, with the reason.
    let said = running
        .read_only()
        .expect_err("TLS is required")
        .to_string();
    assert!(said.contains("nbds://"), "{said}");
    let options = NbdOptions::read_write().certificates(certificates.path());
    let device = NbdDevice::connect(&secured(&running.address), options).expect("it opens");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                let data: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 5) as u8).collect();
                device.write_at(thread << 22, &data).expect("a write");
                device.flush().expect("a flush");
                let mut got = vec![0; data.len()];
                device.read_at(thread << 22, &mut got).expect("a read");
                assert!(got == data);
            });
        }
    });
}

#[test]
fn certificates_of_others_and_for_other_hosts_are_refused() {
    let (certificates, others) = (TempDir::new().expect("one"), TempDir::new().expect("two"));
    make_certificates(certificates.path());
    make_certificates(others.path());
    let dir = format!("--tls-certificates={}", certificates.path().display());
    let running = Running::nbdkit(&["--tls=require", &dir, "memory", "size=1M"]);
    let connect = |address: &NbdAddress, dir: &Path| {
        NbdDevice::connect(&secured(address), NbdOptions::read_only().certificates(dir))
    };
    connect(&running.address, certificates.path()).expect("it opens");
    let said = connect(&running.address, others.path())
        .expect_err("unknown")
        .to_string();
    assert!(said.contains("TLS failed"), "{said}");
    let said = connect(&running.address, Path::new("/nonexistent")).expect_err("none");
    assert!(
        said.to_string().contains("/nonexistent/ca-cert.pem"),
        "{said}"
    );
    let port = free_port();
    let port_arg = port.to_string();
    let server = tool("nbdkit").args(["-f", "-i", "127.0.0.1", "-p", &port_arg, "--tls=require"]);
    let mut server = server
        .arg(&dir)
        .args(["memory", "size=1M"])
        .background(&others.path().join("log"));
    server.wait_for_port(port);
    let by_number = NbdAddress {
        transport: NbdTransport::Tcp("127.0.0.1".to_owned(), port),
        export: String::new(),
        tls: true,
    };
    let said = connect(&by_number, certificates.path())
        .expect_err("another host")
        .to_string();
    assert!(said.contains("TLS failed"), "{said}");
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let certificates = TempDir::new().expect("a directory");
    make_certificates(certificates.path());
    let running = Running::nbdkit(&["memory", "size=1M"]);
    let options = NbdOptions::read_only().certificates(certificates.path());
    let said = NbdDevice::connect(&secured(&running.address), options).expect_err("no TLS");
    assert!(
        said.to_string().contains("takes no TLS connections"),
        "{said}"
    );
}
