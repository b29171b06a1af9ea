//! Web servers as they are installed: one that knows ranges, and one that does not.

use crate::support::{hasty, object, read_all, text};
use extant_remote::open;
use extant_testkit::nginx::Nginx;
use extant_testkit::tool::{free_port, tool};
use std::fs;
use std::path::Path;
use std::process::Command;

const PIECE: usize = 64 << 10;

/// nginx with TLS as well, by a certificate of its own, on the port returned.
fn start_secure() -> (Nginx, u16) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    tool("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args([
            "-keyout",
            &format!("{at}/key.pem"),
            "-out",
            &format!("{at}/cert.pem"),
        ])
        .ok();
    let (port, secure_port) = (free_port(), free_port());
    let secure = format!(
        "server {{
             listen 127.0.0.1:{secure_port} ssl http2;
             ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem;
             root {at}/root;
             location /plain/ {{ return 302 http://127.0.0.1:{port}/a.img; }}
         }}"
    );
    (Nginx::start_with(dir, port, &secure), secure_port)
}

#[test]
fn nginx_is_read_directly_and_through_redirects() {
    let nginx = Nginx::start();
    for len in [0, 1, PIECE, 3 * PIECE + 17, 5 << 20] {
        let bytes = object(len);
        nginx.put("an image.img", &bytes);
        for path in ["an%20image.img", "moved/an%20image.img"] {
            let device = open(&nginx.url(path), hasty()).unwrap();
            assert!(read_all(&device).unwrap() == bytes, "{len} bytes at {path}");
        }
    }
    assert_eq!(open(&nginx.url("none"), hasty()).unwrap_err().errno(), 2);
}

#[test]
fn an_object_that_changes_under_nginx_is_told() {
    let nginx = Nginx::start();
    nginx.put("a.img", &object(20 * PIECE));
    let device = open(&nginx.url("a.img"), hasty()).unwrap();
    device.read_at(4 * PIECE as u64, &mut [0; 512]).unwrap();
    nginx.put("a.img", &object(19 * PIECE));
    let error = device
        .read_at(15 * PIECE as u64, &mut [0; 512])
        .unwrap_err();
    assert!(text(&error).contains("changed"), "{error}");
    fs::remove_file(nginx.root().join("a.img")).unwrap();
    let error = device
        .read_at(17 * PIECE as u64, &mut [0; 512])
        .unwrap_err();
    assert!(text(&error).contains("no such object"), "{error}");
    // What is in memory is of the version that was opened.
    device.read_at(4 * PIECE as u64, &mut [0; 512]).unwrap();
}

#[test]
fn nginx_without_ranges_is_refused() {
    let nginx = Nginx::start();
    nginx.put("a.img", &object(20 * PIECE));
    let error = open(&nginx.url("whole/a.img"), hasty()).unwrap_err();
    assert!(text(&error).contains("ranges"), "{error}");
}

#[test]
fn the_server_of_python_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    fs::write(dir.path().join("a.img"), object(20 * PIECE)).unwrap();
    let server = tool("python3")
        .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"])
        .arg(dir.path())
        .arg(port.to_string());
    let mut server = server.background(Path::new("/dev/null"));
    server.wait_for_port(port);
    let error = open(&format!("http://127.0.0.1:{port}/a.img"), hasty()).unwrap_err();
    assert!(text(&error).contains("download"), "{error}");
}

/// Not a test of its own: what a process does that trusts the certificate of the next test.
#[test]
fn one_that_trusts() {
    let Some(url) = std::env::var_os("EXTANT_TEST_SECURE_URL") else {
        return;
    };
    let url = url.to_str().unwrap();
    let device = open(&format!("{url}/a.img"), hasty()).unwrap();
    assert!(read_all(&device).unwrap() == object(40 * PIECE));
    let error = open(&format!("{url}/plain/"), hasty()).unwrap_err();
    assert!(text(&error).contains("plain HTTP"), "{error}");
    // The certificate is for another name.
    let other = url.replace("localhost", "127.0.0.1");
    assert!(open(&format!("{other}/a.img"), hasty()).is_err());
}

#[test]
fn tls_is_checked_against_the_certificates_of_the_system() {
    let (nginx, port) = start_secure();
    nginx.put("a.img", &object(40 * PIECE));
    let url = format!("https://localhost:{port}");
    let error = open(&format!("{url}/a.img"), hasty()).unwrap_err();
    assert!(text(&error).contains("certificate"), "{error}");
    let trusting = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "web_servers::one_that_trusts"])
        .env("EXTANT_TEST_SECURE_URL", &url)
        .env("SSL_CERT_FILE", nginx.dir().join("cert.pem"))
        .status();
    assert!(trusting.unwrap().success());
}
