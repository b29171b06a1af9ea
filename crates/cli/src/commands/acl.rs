//! `extant acl`.

use crate::acl::{Change, changed, of_mode};
use crate::args::{AclArgs, AclDo, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::change_each;
use crate::operands::read_each;
use crate::output::Output;
use extant::{Acl, AclKind, Filesystem};
use std::io::Write;

pub(super) fn run(args: &AclArgs, location: &Whereabouts) -> Outcome {
    match &args.what {
        AclDo::Get { paths } => {
            let mut output = Output::new();
            let mut is_first = true;
            let done = read_each(paths, location, |fs, from| {
                if !std::mem::take(&mut is_first) {
                    writeln!(output)?;
                }
                show(fs, from, &mut output)
            });
            output.finish()?;
            done
        }
        AclDo::Set {
            entries,
            paths,
            default,
        } => {
            let changes = Change::parse_all(entries).map_err(Failure::usage)?;
            let kind = kind_of(*default);
            change_each(paths, location, |fs, at, _| {
                let fail = |e: extant::Error| at.failure(&e);
                let changes = changes
                    .iter()
                    .map(|change| change.look_up(fs))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(Failure::new)?;
                let before = start(fs, at, kind).map_err(fail)?;
                let acl = changed(&before, &changes).map_err(Failure::new)?;
                fs.set_acl(&at.path, kind, Some(&acl)).map_err(fail)
            })
        }
        AclDo::Rm { paths, default } => change_each(paths, location, |fs, at, _| {
            let fail = |e: extant::Error| at.failure(&e);
            let kind = kind_of(*default);
            if kind == AclKind::Access && fs.acl(&at.path, kind).map_err(fail)?.is_some() {
                // What the group had stays what it may do, as with `setfacl -b`.
                let minimal = without_names(&start(fs, at, kind).map_err(fail)?);
                return fs.set_acl(&at.path, kind, minimal.as_ref()).map_err(fail);
            }
            fs.set_acl(&at.path, kind, None).map_err(fail)
        }),
    }
}

fn kind_of(default: bool) -> AclKind {
    if default {
        AclKind::Default
    } else {
        AclKind::Access
    }
}

/// The list that is changed: the one there is, or what the access list or the mode say.
fn start(fs: &Filesystem, at: &ImagePath, kind: AclKind) -> extant::Result<Acl> {
    if let Some(acl) = fs.acl(&at.path, kind)? {
        return Ok(acl);
    }
    let access = match kind {
        AclKind::Access => None,
        AclKind::Default => fs.acl(&at.path, AclKind::Access)?,
    };
    let permissions = fs.metadata(&at.path)?.mode().permissions();
    Ok(access
        .and_then(|acl| without_names(&acl))
        .unwrap_or_else(|| of_mode(permissions)))
}

fn without_names(acl: &Acl) -> Option<Acl> {
    use extant::AclWho::{Group, Other, Owner};
    let base = acl.entries().iter();
    let base = base.filter(|entry| matches!(entry.who, Owner | Group | Other));
    Acl::new(base.copied().collect()).ok()
}

fn show(fs: &Filesystem, from: &ImagePath, output: &mut Output) -> Outcome {
    let fail = |e: extant::Error| from.failure(&e);
    let found = fs.metadata(&from.path).map_err(fail)?;
    output.write_all(b"# file: ")?;
    output.name_line(from.path.as_os_str().as_encoded_bytes())?;
    writeln!(output, "# owner: {}", found.uid())?;
    writeln!(output, "# group: {}", found.gid())?;
    let access = fs.acl(&from.path, AclKind::Access).map_err(fail)?;
    let access = access.unwrap_or_else(|| of_mode(found.mode().permissions()));
    writeln!(output, "{access}")?;
    if let Some(default) = fs.acl(&from.path, AclKind::Default).map_err(fail)? {
        for entry in default.entries() {
            writeln!(output, "default:{entry}")?;
        }
    }
    Ok(())
}
