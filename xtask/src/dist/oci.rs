//! A container image from nothing, as an archive of the OCI image layout: one layer with the
//! program and its licences.

use super::About;
use super::content::{Content, Item};
use super::tar;
use super::tools::{gzip, sha256};
use crate::programs::Done;

/// Adds a blob to the layout, and gives its digest and size as JSON.
fn blob(layout: &mut Content, kind: &str, bytes: Vec<u8>) -> Done<String> {
    let digest = sha256(&bytes)?;
    let descriptor = format!(
        "\"mediaType\":\"application/vnd.oci.image.{kind}\",\"digest\":\"sha256:{digest}\",\"size\":{}",
        bytes.len()
    );
    layout.add(&format!("blobs/sha256/{digest}"), Item::text(bytes));
    Ok(descriptor)
}

/// The image as a tar archive. `date` is the moment as RFC 3339 has it.
pub(super) fn archive(about: &About<'_>, content: &Content, date: &str) -> Done<Vec<u8>> {
    let mut layer = content.clone();
    // Programs that make files of their own for a while want one, whatever user they run as.
    layer.add("tmp", Item::Shared);
    let layer = tar::archive(&layer, "", about.moment)?;
    let diff = sha256(&layer)?;
    let mut layout = Content::new();
    let layer = blob(&mut layout, "layer.v1.tar+gzip", gzip(&layer)?)?;
    let (version, commit) = (about.version, about.commit.unwrap_or("unknown"));
    let (summary, home) = (About::SUMMARY, About::HOMEPAGE);
    let title = "org.opencontainers.image";
    let labels = format!(
        "{{\"{title}.title\":\"extant\",\"{title}.description\":\"{summary}\",\
         \"{title}.version\":\"{version}\",\"{title}.revision\":\"{commit}\",\
         \"{title}.source\":\"{home}\",\"{title}.licenses\":\"MIT OR Apache-2.0\",\
         \"{title}.created\":\"{date}\"}}"
    );
    let variant = about.processor.oci_variant;
    let variant = if variant.is_empty() {
        String::new()
    } else {
        format!(",\"variant\":\"{variant}\"")
    };
    let platform = format!(
        "\"architecture\":\"{}\",\"os\":\"linux\"{variant}",
        about.processor.oci
    );
    let config = format!(
        "{{\"created\":\"{date}\",{platform},\
         \"config\":{{\"Entrypoint\":[\"/usr/bin/extant\"],\"Cmd\":[\"--help\"],\
         \"Env\":[\"PATH=/usr/sbin:/usr/bin\"],\"WorkingDir\":\"/\",\"Labels\":{labels}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{diff}\"]}},\
         \"history\":[{{\"created\":\"{date}\",\"created_by\":\"cargo xtask dist\"}}]}}"
    );
    let config = blob(&mut layout, "config.v1+json", config.into_bytes())?;
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"config\":{{{config}}},\"layers\":[{{{layer}}}],\"annotations\":{labels}}}"
    );
    let manifest = blob(&mut layout, "manifest.v1+json", manifest.into_bytes())?;
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\
         \"manifests\":[{{{manifest},\"platform\":{{{platform}}},\
         \"annotations\":{{\"{title}.ref.name\":\"{version}\"}}}}]}}"
    );
    layout.add("index.json", Item::text(index));
    layout.add(
        "oci-layout",
        Item::text("{\"imageLayoutVersion\":\"1.0.0\"}"),
    );
    tar::archive(&layout, "", about.moment)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{about, small};
    use super::super::tools::{filter, sha256};
    use super::archive;

    #[test]
    fn each_blob_is_called_by_its_digest_and_named_from_the_index_on() {
        let made = archive(&about(), &small(), "1970-01-02T00:00:00Z").unwrap();
        let again = archive(&about(), &small(), "1970-01-02T00:00:00Z").unwrap();
        assert_eq!(made, again);
        let file = |name: &str| filter("tar", &["-xOf", "-", name], &made).unwrap();
        let text = |name: &str| String::from_utf8(file(name)).unwrap();
        let digests = |json: &str| -> Vec<String> {
            let parts = json.split("\"digest\":\"sha256:").skip(1);
            parts.map(|part| part[..64].to_owned()).collect()
        };
        let [manifest] = &digests(&text("index.json"))[..] else {
            panic!("one manifest")
        };
        let manifest = text(&format!("blobs/sha256/{manifest}"));
        let [config, layer] = &digests(&manifest)[..] else {
            panic!("{manifest}")
        };
        for digest in [config, layer] {
            let blob = file(&format!("blobs/sha256/{digest}"));
            assert_eq!(sha256(&blob).unwrap(), *digest);
            assert!(
                manifest.contains(&format!("\"size\":{}}}", blob.len())),
                "{manifest}"
            );
        }
        let layer = file(&format!("blobs/sha256/{layer}"));
        let plain = filter("gzip", &["-dc"], &layer).unwrap();
        let diff = format!("\"diff_ids\":[\"sha256:{}\"]", sha256(&plain).unwrap());
        assert!(text(&format!("blobs/sha256/{config}")).contains(&diff));
        let hello = filter("tar", &["-xOf", "-", "usr/bin/extant"], &plain).unwrap();
        assert_eq!(hello, b"hello");
        let list = filter("tar", &["-tvf", "-"], &plain).unwrap();
        let list = String::from_utf8(list).unwrap();
        let tmp = list.lines().find(|line| line.ends_with(" tmp/"));
        assert!(
            tmp.is_some_and(|tmp| tmp.starts_with("drwxrwxrwt ")),
            "{list}"
        );
    }
}
