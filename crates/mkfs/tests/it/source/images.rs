//! Container images: which one, for which platform, and those that lie.

use std::path::Path;

use extant_mkfs::defaults::FormatOptions;
use extant_mkfs::source::{
    Addition, Gathered, Source, SourceOptions, SourceResult, Timestamp, additions, read_sources,
};
use extant_mkfs::{BuildOptions, Headroom, PlannedDevice, Silent, Size, build};
use extant_testkit::require_full;
use extant_testkit::tool::tool;
use serde_json::{Value, json};

use super::archive::Tar;
use super::*;
use extant_testkit::layers::{INDEX, LAYER, Layout, MANIFEST, digest, docker_archive, tagged};

fn gather(source: &str, options: &SourceOptions) -> SourceResult<Gathered> {
    read_sources(&[Source::parse(OsStr::new(source)).unwrap()], options)
}

fn for_platform(platform: &str) -> SourceOptions {
    let mut options = SourceOptions::default();
    options.platform = Some(platform.parse().unwrap());
    options
}

fn of(path: &Path) -> String {
    format!("oci:{}", path.display())
}

/// A layer with one file of this name.
fn layer(name: &str) -> Vec<u8> {
    Tar::new().file(name, name.as_bytes()).end()
}

#[track_caller]
fn refused(source: &str, options: &SourceOptions, says: &str) {
    let error = gather(source, options).expect_err(says).to_string();
    assert!(error.contains(says), "{error:?} does not say {says:?}");
}

fn has(gathered: &Gathered, path: &str) -> bool {
    gathered.tree.lookup(path).is_some()
}

#[test]
fn an_image_is_found_by_tag_and_by_platform() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path().to_owned());
    let with_platform = |mut image: Value, architecture: &str| {
        image["platform"] = json!({"os": "linux", "architecture": architecture});
        image
    };
    let amd = with_platform(layout.image(&[layer("amd")], "amd64"), "amd64");
    let arm = with_platform(layout.image(&[layer("arm")], "arm64"), "arm64");
    let mut about = layout.image(&[layer("about")], "unknown");
    about["platform"] = json!({"os": "unknown", "architecture": "unknown"});
    about["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let inner = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": [amd, arm, about],
    });
    let inner = layout.add(INDEX, inner.to_string().as_bytes());
    // Says its platform in its configuration only.
    let other = layout.image(&[layer("other")], "riscv64");
    layout.index(&[
        tagged(inner, "multi"),
        tagged(other, "docker.io/library/x:v1"),
    ]);
    let source = of(dir.path());
    let none = SourceOptions::default();
    let found = gather(&format!("{source}:v1"), &none).unwrap();
    assert!(has(&found, "other"));
    let config: Value = serde_json::from_slice(&found.config.unwrap()).unwrap();
    assert_eq!(config["config"]["Entrypoint"][0], "/init");
    assert!(has(
        &gather(&source, &for_platform("linux/arm64/v8")).unwrap(),
        "arm"
    ));
    assert!(has(
        &gather(&source, &for_platform("linux/x86_64")).unwrap(),
        "amd"
    ));
    assert!(has(
        &gather(&source, &for_platform("linux/riscv64")).unwrap(),
        "other"
    ));
    let multi = format!("{source}:multi");
    assert!(has(
        &gather(&multi, &for_platform("linux/amd64")).unwrap(),
        "amd"
    ));
    refused(
        &multi,
        &none,
        "multi for linux/amd64, multi for linux/arm64",
    );
    refused(&source, &none, "--platform");
    refused(
        &multi,
        &for_platform("linux/s390x"),
        "no image is for linux/s390x; there is linux/amd64",
    );
    refused(
        &format!("{source}:v2"),
        &none,
        "there are multi, docker.io/library/x:v1",
    );
    refused(
        &format!("oci:{}/none", dir.path().display()),
        &none,
        "index.json is missing",
    );
}

#[test]
fn a_docker_archive_has_images_by_tag() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.tar");
    fs::write(
        &path,
        docker_archive(&[layer("a"), layer("a"), layer("b")], "me/app:2"),
    )
    .unwrap();
    let source = format!("docker-archive:{}", path.display());
    let none = SourceOptions::default();
    for tag in ["", ":2", ":me/app:2", ":docker.io/me/app:2"] {
        let found = gather(&format!("{source}{tag}"), &none).unwrap();
        assert!(has(&found, "a") && has(&found, "b"), "{tag}");
    }
    refused(&format!("{source}:3"), &none, "there are me/app:2");
    refused(
        &source,
        &for_platform("linux/arm64"),
        "there is linux/amd64",
    );
    refused(
        &format!("oci-archive:{}", path.display()),
        &none,
        "index.json is missing",
    );
    // Compressed as a whole, it is the same.
    let packed = tool("gzip")
        .arg("-nc")
        .input(fs::read(&path).unwrap())
        .ok()
        .stdout;
    fs::write(&path, packed).unwrap();
    assert!(has(
        &gather(&path.display().to_string(), &none).unwrap(),
        "b"
    ));
}

/// A layout of one image that a test then damages.
fn one(dir: &Path, tar: &[u8], media_type: &str, stored: &[u8]) -> Layout {
    let layout = Layout::new(dir.to_owned());
    let descriptor = layout.add(media_type, stored);
    let image = layout.image_of(&[descriptor], &[tar.to_vec()], "amd64");
    layout.index(&[image]);
    layout
}

#[test]
fn what_differs_from_its_digest_is_refused() {
    let none = SourceOptions::default();
    let tar = layer("f");
    let new = || tempfile::tempdir().unwrap();
    let dir = new();
    let layout = one(dir.path(), &tar, LAYER, &tar);
    assert!(gather(&of(dir.path()), &none).is_ok());
    // One byte of the layer; its size stays.
    let path = layout.path_of(&digest(&tar));
    let mut bytes = tar.clone();
    bytes[520] ^= 1;
    fs::write(&path, bytes).unwrap();
    refused(&of(dir.path()), &none, "layer 1 of 1");
    refused(&of(dir.path()), &none, "configuration says sha256");
    fs::write(&path, &tar[..1000]).unwrap();
    refused(
        &of(dir.path()),
        &none,
        "has 1000 bytes, and should have 2048",
    );
    fs::remove_file(&path).unwrap();
    refused(&of(dir.path()), &none, "is missing");
    fs::create_dir(&path).unwrap();
    refused(&of(dir.path()), &none, "no regular file");
    // What is compressed is not what the configuration says.
    let dir = new();
    let packed = tool("gzip").arg("-nc").input(layer("g")).ok().stdout;
    one(dir.path(), &tar, &format!("{LAYER}+gzip"), &packed);
    refused(&of(dir.path()), &none, "configuration says");
    // Manifest, configuration and index.
    let dir = new();
    let layout = one(dir.path(), &tar, LAYER, &tar);
    for entry in fs::read_dir(layout.0.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let good = fs::read(&path).unwrap();
        if good[0] == b'{' {
            let mut bad = good.clone();
            bad[1] = b' ';
            fs::write(&path, bad).unwrap();
            refused(&of(dir.path()), &none, "the digest of the");
            fs::write(&path, good).unwrap();
        }
    }
    // A docker archive's configuration is called by its digest, and its layers by those there.
    let dir = new();
    let path = dir.path().join("saved.tar");
    let mut saved = docker_archive(&[layer("a")], "x:1");
    let at = saved.windows(5).position(|five| five == b"amd64").unwrap();
    saved[at] = b'A';
    fs::write(&path, &saved).unwrap();
    refused(
        &path.display().to_string(),
        &none,
        "the digest of the configuration",
    );
}

#[test]
fn a_layer_that_is_compared_later_makes_no_image_if_it_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, other) = (layer("f"), layer("g"));
    let layout = Layout::new(dir.path().join("layout"));
    layout.index(&[layout.image(&[tar.clone(), other], "amd64")]);
    let path = layout.path_of(&digest(&tar));
    let mut later = SourceOptions::default();
    later.digests_later = true;
    let image = dir.path().join("image");
    let format = || FormatOptions::reproducible(0, 0, b"");
    let options = || BuildOptions::new(format(), Size::Auto(Headroom::Bytes(0)));
    let build = |tree: &Tree| build(Some(tree), &image, None, &options(), &Silent);
    let device = |tree| PlannedDevice::new(tree, &options(), "planned", |_| ());
    let found = || gather(&of(&layout.0), &later);
    assert!(has(&found().unwrap(), "f"));
    build(&found().unwrap().tree).unwrap();
    device(found().unwrap().tree).unwrap();
    let before = fs::read(&image).unwrap();
    // One byte of what is in a file, which no header tells.
    let mut bytes = tar;
    bytes[512] ^= 1;
    fs::write(&path, &bytes).unwrap();
    refused(&of(&layout.0), &SourceOptions::default(), "layer 1 of 2");
    let tree = found().unwrap().tree;
    let error = build(&tree).expect_err("damaged").to_string();
    assert!(error.contains("configuration says sha256"), "{error}");
    assert!(fs::read(&image).unwrap() == before, "what was there stays");
    let error = device(tree).expect_err("damaged").to_string();
    assert!(error.contains("configuration says sha256"), "{error}");
    // So it is where the tree was changed, or the image cannot be built for another reason.
    let tree = found().unwrap().tree;
    let text = Addition::Text {
        to: b"/more".to_vec(),
        text: b"x".to_vec(),
    };
    let tree = additions::put(tree, &[text], None, Timestamp::from_secs(0)).unwrap();
    assert!(build(&tree).is_err());
    let small = BuildOptions::new(format(), Size::Bytes(1));
    let error = extant_mkfs::build(Some(&tree), &image, None, &small, &Silent);
    let error = error.expect_err("damaged, and too small").to_string();
    assert!(error.contains("configuration says sha256"), "{error}");
    // So where a header says it first.
    bytes[0] ^= 1;
    fs::write(&path, &bytes).unwrap();
    refused(&of(&layout.0), &later, "configuration says sha256");
}

#[test]
fn layers_are_compressed_as_their_types_say() {
    let none = SourceOptions::default();
    let tar = layer("f");
    let gzip = tool("gzip").arg("-nc").input(tar.clone()).ok().stdout;
    let zstd = tool("zstd").arg("-qc").input(tar.clone()).ok().stdout;
    for (suffix, stored, says) in [
        ("", &tar, None),
        ("+gzip", &gzip, None),
        ("+zstd", &zstd, None),
        (
            "+gzip",
            &zstd,
            Some("compressed with gzip, and it is compressed with zstd"),
        ),
        (
            "+zstd",
            &gzip,
            Some("compressed with zstd, and it is compressed with gzip"),
        ),
        (
            "",
            &gzip,
            Some("not compressed, and it is compressed with gzip"),
        ),
        (
            "+gzip",
            &tar,
            Some("compressed with gzip, and it is not compressed"),
        ),
        ("+gzip+encrypted", &gzip, Some("which is none of files")),
        ("+zip", &gzip, Some("which is none of files")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        one(dir.path(), &tar, &format!("{LAYER}{suffix}"), stored);
        match says {
            None => assert!(
                has(&gather(&of(dir.path()), &none).unwrap(), "f"),
                "{suffix}"
            ),
            Some(says) => refused(&of(dir.path()), &none, says),
        }
    }
}

#[test]
fn names_that_lead_outside_and_json_that_lies_are_refused() {
    let none = SourceOptions::default();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.tar");
    let source = format!("docker-archive:{}", path.display());
    let config = "{\"rootfs\":{\"diff_ids\":[\"sha256:00\"]}}";
    let with = |manifest: &str, says: &str| {
        let tar = Tar::new()
            .file("c.json", config.as_bytes())
            .file("l.tar", &layer("f"))
            .member("loop", b'2', "loop", b"")
            .file("manifest.json", manifest.as_bytes());
        fs::write(&path, tar.end()).unwrap();
        refused(&source, &none, says);
    };
    for name in ["../l.tar", "/etc/passwd", "a/../../l.tar", "", "l\\u0000"] {
        with(
            &format!(r#"[{{"Config":"c.json","Layers":["{name}"]}}]"#),
            "no name of a file in it",
        );
    }
    with(
        r#"[{"Config":"/etc/passwd","Layers":[]}]"#,
        "no name of a file in it",
    );
    with(
        r#"[{"Config":"c.json","Layers":["loop"]}]"#,
        "the layer loop is missing",
    );
    with(
        r#"[{"Config":"c.json","Layers":["l.tar"]}]"#,
        "is no digest",
    );
    with(r#"[{"Config":"c.json","Layers":null}]"#, "0 layers");
    with(
        r#"[{"Config":"c.json","Layers":["l.tar","l.tar"]}]"#,
        "2 layers",
    );
    with(r#"[{"Config":"none","Layers":[]}]"#, "none is missing");
    with("[]", "names no image");
    with("{}", "manifest.json: ");
    with("[[[[", "manifest.json: ");
    with(&"[".repeat(100_000), "manifest.json: ");
    let many = vec!["\"l.tar\""; 501].join(",");
    with(
        &format!(r#"[{{"Config":"c.json","Layers":[{many}]}}]"#),
        "501 layers",
    );
    // An index as large as nobody reads it.
    let layout = Layout::new(dir.path().join("layout"));
    let index = fs::File::create(layout.0.join("index.json")).unwrap();
    index.set_len(1 << 30).unwrap();
    refused(&of(&layout.0), &none, "at most 8388608 are read");
    // Indexes in indexes.
    let image = layout.image(&[layer("deep")], "amd64");
    let mut inner = image.clone();
    for depth in 0..6 {
        if depth == 4 {
            layout.index(&[inner.clone()]);
            assert!(has(&gather(&of(&layout.0), &none).unwrap(), "deep"));
        }
        let index = json!({"schemaVersion": 2, "manifests": [inner]});
        inner = layout.add(INDEX, index.to_string().as_bytes());
    }
    layout.index(&[inner]);
    refused(&of(&layout.0), &none, "more than 4 deep");
    // What is called a manifest, and says that it is an index.
    let both = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [], "config": image, "layers": []});
    layout.index(&[layout.add(MANIFEST, both.to_string().as_bytes())]);
    refused(&of(&layout.0), &none, "says that it is");
    layout.index(&[json!({"mediaType": MANIFEST, "digest": "sha256:../../x", "size": 1})]);
    refused(&of(&layout.0), &none, "is no digest");
    layout.index(&[json!({"mediaType": MANIFEST, "digest": "sha256:x", "size": -1})]);
    refused(&of(&layout.0), &none, "index.json: ");
    layout.index(&[json!({"mediaType": "text/plain", "digest": digest(b""), "size": 0})]);
    refused(&of(&layout.0), &none, "no image that has files");
}

#[test]
fn a_layer_may_end_with_the_data_of_its_last_member() {
    let none = SourceOptions::default();
    let dir = tempfile::tempdir().unwrap();
    let mut tar = Tar::new().file("a", b"a").file("last", b"content").0;
    tar.truncate(3 * 512 + 7);
    one(dir.path(), &tar, LAYER, &tar);
    let found = gather(&of(dir.path()), &none).unwrap();
    assert_eq!(found.tree.node(found.tree.lookup("last").unwrap()).size, 7);
    assert!(found.tree.concerns(256).is_empty(), "its digest is right");
    // A byte less, and the digest is that of what is cut short.
    let dir = tempfile::tempdir().unwrap();
    tar.pop();
    one(dir.path(), &tar, LAYER, &tar);
    refused(&of(dir.path()), &none, "the archive ends");
}

#[test]
fn an_archive_bomb_is_stopped() {
    require_full!("reads 20 GiB of zeros");
    let none = SourceOptions::default();
    let dir = tempfile::tempdir().unwrap();
    // Some 40 GiB of zeros: frames of 128 MiB, again and again.
    let frame = tool("sh")
        .args(["-c", "head -c 128M /dev/zero | zstd -qc"])
        .ok()
        .stdout;
    let bomb = frame.repeat(320);
    one(dir.path(), &layer("f"), &format!("{LAYER}+zstd"), &bomb);
    refused(&of(dir.path()), &none, "archive bomb");
}
