//! Stacks of layers, each for one thing that layers do to each other. What a stack is in the end is
//! what `umoci unpack` makes of it.

use super::Tar;

/// The capability of `ping` in [`extended_attributes`].
pub const CAPABILITY: &str = "\u{1}\0\0\u{2}\0\u{4}\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A layer that begins with its root directory.
fn layer() -> Tar {
    Tar::layer()
}

/// Returns all stacks of this module with their names.
pub fn all() -> Vec<(&'static str, Vec<Tar>)> {
    vec![
        ("whiteouts", whiteouts()),
        ("opaque", opaque()),
        ("hard_links", hard_links()),
        ("kinds", kinds()),
        ("attributes", attributes()),
        ("beneath_links", beneath_links()),
        ("extended_attributes", extended_attributes()),
        ("many", many()),
        ("late_whiteouts", late_whiteouts()),
        ("made_again", made_again()),
        ("devices", devices()),
    ]
}

/// Makes a stack in which files and directories are taken away.
pub fn whiteouts() -> Vec<Tar> {
    let below = layer()
        .dir("etc/")
        .file("etc/passwd", b"root")
        .file("etc/shadow", b"secret")
        .dir("etc/ssh/")
        .file("etc/ssh/key", b"key")
        .file("top", b"top");
    let above = layer()
        .dir("etc/")
        .file("etc/.wh.shadow", b"")
        .file("etc/.wh.ssh", b"")
        .file(".wh.top", b"")
        .file("etc/.wh.never", b"");
    vec![below, above]
}

/// Makes a stack in which a directory keeps only what the upper layer has in it.
pub fn opaque() -> Vec<Tar> {
    let below = layer()
        .dir("var/")
        .dir("var/cache/")
        .dir("var/cache/deep/")
        .file("var/cache/deep/old", b"old")
        .file("var/cache/old", b"old")
        .file("var/kept", b"kept");
    let before = layer()
        .dir("var/")
        .dir("var/cache/")
        .file("var/cache/.wh..wh..opq", b"")
        .file("var/cache/new", b"new");
    vec![below, before]
}

/// Makes a stack in which hard links lead to files of the layers below.
pub fn hard_links() -> Vec<Tar> {
    let below = layer()
        .dir("usr/")
        .dir("usr/bin/")
        .file("usr/bin/a", b"a of below")
        .symlink("bin", "usr/bin");
    let above = layer()
        .link("b", "usr/bin/a")
        .link("c", "bin/a")
        .dir("usr/")
        .dir("usr/bin/");
    let replaced = layer()
        .dir("usr/")
        .dir("usr/bin/")
        .file("usr/bin/a", b"another a");
    vec![below, above, replaced]
}

/// Makes a stack in which files, directories and links take each other's place.
pub fn kinds() -> Vec<Tar> {
    let below = layer()
        .dir("dir/")
        .file("dir/in it", b"1")
        .dir("dir/sub/")
        .file("dir/sub/deep", b"2")
        .file("file", b"f")
        .symlink("link", "dir")
        .member("pipe", b'6', "", b"")
        .symlink("to file", "file");
    let above = layer()
        .file("dir", b"now a file")
        .dir("file/")
        .file("file/x", b"x")
        .dir("link/")
        .file("link/y", b"y")
        .symlink("pipe", "file")
        .file("to file", b"not written through");
    vec![below, above]
}

/// Makes a stack in which a directory gets other attributes.
pub fn attributes() -> Vec<Tar> {
    let below = layer()
        .pax(b'x', &[("SCHILY.xattr.user.old", "gone")])
        .dir("srv/")
        .file("srv/data", b"data")
        .pax(b'x', &[("SCHILY.xattr.user.note", "lower")])
        .file("srv/noted", b"n");
    let above = layer()
        .pax(
            b'x',
            &[("SCHILY.xattr.user.new", "here"), ("mtime", "7.25")],
        )
        .owned("srv/", b'5', 0o2750, 77, b"");
    vec![below, above]
}

/// Makes a stack in which members lie beneath symbolic links of the layer below.
pub fn beneath_links() -> Vec<Tar> {
    let below = layer()
        .dir("usr/")
        .dir("usr/lib/")
        .symlink("lib", "usr/lib")
        .symlink("abs", "/usr/lib")
        .symlink("out", "../../../usr")
        .file("usr/lib/gone", b"g");
    let above = layer()
        .file("lib/one", b"1")
        .file("abs/two", b"2")
        .file("out/lib/three", b"3")
        .file("lib/.wh.gone", b"");
    vec![below, above]
}

/// Makes a stack in which files have extended attributes, which are replaced with them.
pub fn extended_attributes() -> Vec<Tar> {
    let below = layer()
        .pax(b'x', &[("SCHILY.xattr.user.a", "lower"), ("mtime", "5.5")])
        .file("f", b"f")
        .pax(b'x', &[("SCHILY.xattr.security.capability", CAPABILITY)])
        .file("ping", b"ping")
        .pax(b'x', &[("SCHILY.xattr.trusted.t", "t")])
        .dir("d/");
    let above = layer()
        .pax(b'x', &[("SCHILY.xattr.user.b", "upper")])
        .file("f", b"f of above");
    vec![below, above]
}

/// Makes a stack in which some of many layers are empty, and the others have one file.
pub fn many() -> Vec<Tar> {
    let of = |number: u32| layer().file("same", format!("layer {number}").as_bytes());
    let mut layers = vec![of(0), Tar::new()];
    layers.extend((1..9).map(of));
    layers.push(Tar::new());
    layers
}

/// Makes a stack in which whiteouts stand behind the entries of their own layer.
pub fn late_whiteouts() -> Vec<Tar> {
    let below = {
        layer()
            .dir("d/")
            .file("d/a", b"lower a")
            .file("d/b", b"lower b")
            .dir("o/")
            .file("o/x", b"lower x")
    };
    // The layer's own entries come first, and its whiteouts behind them.
    let after = layer()
        .dir("d/")
        .file("d/a", b"upper a")
        .file("d/.wh.a", b"")
        .dir("o/")
        .file("o/y", b"upper y")
        .file("o/.wh..wh..opq", b"");
    vec![below, after]
}

/// Makes a stack in which directories are taken away and made again.
pub fn made_again() -> Vec<Tar> {
    let below = {
        layer()
            .dir("d/")
            .file("d/a", b"lower a")
            .file("d/b", b"lower b")
            .dir("o/")
            .file("o/x", b"lower x")
    };
    let again = layer()
        .file(".wh.d", b"")
        .file(".wh.o", b"")
        .dir("d/")
        .file("d/new", b"new");
    vec![below, again]
}

/// Makes a stack in which devices and pipes come, go, and become others.
pub fn devices() -> Vec<Tar> {
    let below = layer()
        .dir("dev/")
        .device("dev/null", 1, 3)
        .device("dev/other", 5, 1)
        .member("dev/pipe", b'6', "", b"");
    let above = layer()
        .dir("dev/")
        .device("dev/other", 300, 70_000)
        .file("dev/.wh.null", b"")
        .file("dev/pipe", b"no pipe");
    vec![below, above]
}
