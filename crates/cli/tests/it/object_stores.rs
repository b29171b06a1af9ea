//! Images made in object stores and read there.

use crate::support::{Place, Run, extant_with};
use extant_testkit::oracle::assert_clean;
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::stores::StoreServer;
use std::fs;

/// Runs with the settings of a server.
fn run(server: &StoreServer, args: &[&str]) -> Run {
    extant_with(args, |command| {
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        command.envs(server.variables());
    })
}

fn source(place: &Place) -> String {
    let mut plan = TreePlan::new();
    plan.dir("d");
    for n in 0..40 {
        plan.file(format!("d/{n}"), Content::filled(n, 500_000));
    }
    place.planted("source", &plan)
}

#[test]
fn mkfs_makes_in_a_store_what_it_makes_in_a_file() {
    let place = Place::new();
    let (from, file) = (source(&place), place.arg("local.img"));
    for server in StoreServer::all() {
        let mkfs = |image: &str, more: &[&str]| {
            let args = ["mkfs", "--size", "64M", "--from", &from, image];
            run(&server, &[&args, more].concat())
        };
        mkfs(&file, &["--force"]).ok();
        assert_clean(file.as_ref());
        let url = &server.url("a/made.img");
        mkfs(url, &[]).ok();
        let one = run(&server, &["ls", "-lR", &file]).ok().text();
        assert_eq!(run(&server, &["ls", "-lR", url]).ok().text(), one);
        if let Some(bucket) = server.bucket() {
            let object = fs::read(bucket.join("a/made.img")).unwrap();
            assert!(object == fs::read(&file).unwrap(), "another image");
        }
        // What exists is not replaced unasked.
        let refused = mkfs(url, &[]).fails(1);
        assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
        mkfs(url, &["--force"]).ok();
        let refused = mkfs(&server.url("made.qcow2"), &[]).fails(2);
        assert!(
            refused.stderr.contains("--format raw"),
            "{}",
            refused.stderr
        );
        let nowhere = server.url("made.img").replace("images", "nothing");
        let refused = mkfs(&nowhere, &[]).fails(1);
        assert!(refused.stderr.contains(&nowhere), "{}", refused.stderr);
    }
}

#[test]
fn convert_uploads_and_downloads() {
    let place = Place::new();
    let (from, file) = (source(&place), place.arg("local.img"));
    for server in StoreServer::all() {
        run(
            &server,
            &["mkfs", "-f", "--size", "64M", "--from", &from, &file],
        )
        .ok();
        let (qcow2, url) = (place.arg("local.qcow2"), &server.url("converted.img"));
        run(&server, &["convert", "-f", &file, &qcow2]).ok();
        run(&server, &["convert", &qcow2, url]).ok();
        if let Some(bucket) = server.bucket() {
            let object = fs::read(bucket.join("converted.img")).unwrap();
            assert!(object == fs::read(&file).unwrap(), "another image");
        }
        let back = place.arg("back.img");
        run(&server, &["convert", "-f", url, &back]).ok();
        assert!(fs::read(&back).unwrap() == fs::read(&file).unwrap());
        let refused = run(&server, &["convert", &file, url]).fails(1);
        assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    }
}
