//! `extant ls` beside ls(1).

use super::{Looked, assert_same, extant_plain, squeezed};
use crate::support::{Place, extant, on_a_terminal, small_plan};
use extant_testkit::require;

/// What both programs list, with names of the mount as those of the image.
fn both(looked: &Looked, options: &str, operands: &[&str]) -> [Vec<String>; 2] {
    let options: Vec<&str> = options.split(' ').filter(|word| !word.is_empty()).collect();
    let mut peer = vec!["ls".to_owned(), "--time-style=long-iso".to_owned()];
    peer.extend(options.iter().map(|word| (*word).to_owned()));
    peer.extend(operands.iter().map(|operand| looked.in_mount(operand)));
    let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
    let peer = looked.peer(&peer);
    assert_eq!(peer.code, 0, "{options:?}: {}", peer.stderr);
    let peer = peer.text().replace(&looked.mounted(), "");
    let mut mine = vec!["ls".to_owned()];
    mine.extend(options.iter().map(|word| (*word).to_owned()));
    mine.extend(operands.iter().map(|operand| looked.in_image(operand)));
    let mine = extant_plain(&mine).ok().text();
    // The sum of blocks is not listed here; a colour that is taken back twice is no other one.
    let of_peer = squeezed(&peer.replace("\x1b[K", ""));
    let of_peer = of_peer
        .into_iter()
        .filter(|line| !line.starts_with("total "));
    [of_peer.collect(), squeezed(&mine)]
}

#[test]
fn listings_are_those_of_ls() {
    require!(KernelExt4);
    let looked = Looked::new();
    for options in [
        "",
        "-1",
        "-a",
        "-A",
        "-l",
        "-la",
        "-lA",
        "-n",
        "-ln",
        "-lh",
        "-nh",
        "-S",
        "-lS",
        "-lSr",
        "-t",
        "-lt",
        "-ltr",
        "-r",
        "-i",
        "-li",
        "-F",
        "-AF",
        "-lF",
        "-d",
        "-ld",
        "-R",
        "-AR",
        "-lAR",
        "-tAR",
        "-SrAR",
        "-FR",
        "--color=always",
        "-l --color=always",
        "-AF --color=always",
        "--color=never",
        "--color=auto",
        "-AlF --color=always",
        "-R --color=always",
    ] {
        for operands in [
            &["@/tree"][..],
            &["@/tree/sub", "@/tree/old", "@/tree", "@/tree/attributed"],
            &["@/tree/linkdir"],
            &["@/tree/link", "@/tree/dangling", "@/tree/.hidden"],
            &["@/tree/Empty"],
        ] {
            let [peer, mine] = both(&looked, options, operands);
            assert_same(&mine, &peer, &(options, operands));
        }
    }
}

#[test]
fn colours_are_those_that_the_environment_asks_for() {
    require!(KernelExt4);
    let looked = Looked::new();
    for colors in [
        "di=1;31:*.txt=35:or=41:ex=00",
        "ln=target:fi=33:mi=5:tw=0:su=1",
        "mh=44;37:*2=36:*b2=32:st=",
    ] {
        for options in ["-A", "-lA"] {
            let at = looked.in_mount("@/tree");
            let peer = extant_testkit::tool::tool("ls")
                .args([options, "--color=always", "--time-style=long-iso", &at])
                .env("LS_COLORS", colors)
                .ok()
                .text();
            let mine = ["ls", options, "--color=always", &looked.in_image("@/tree")];
            let mine = crate::support::extant_with(mine, |command| {
                command.env("LS_COLORS", colors);
            });
            let peer = squeezed(&peer.replace("\x1b[K", "")).into_iter();
            let peer: Vec<_> = peer.filter(|line| !line.starts_with("total ")).collect();
            assert_same(&squeezed(&mine.ok().text()), &peer, &(colors, options));
        }
    }
}

#[test]
fn an_image_without_users_has_numbers() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let of = |options: &str| {
        let list = extant(["ls", options, &format!("{image}:/etc")])
            .ok()
            .text();
        squeezed(&list)
    };
    assert_eq!(of("-l"), of("-n"));
    assert!(of("-l")[0].contains(" 0 0 "), "{:?}", of("-l"));
    // What is no file of users is none.
    extant(["mkdir", &format!("{image}:/etc/passwd")]).ok();
    assert!(of("-l")[0].contains(" 0 0 "), "{:?}", of("-l"));
}

#[test]
fn names_of_owners_cannot_command_a_terminal() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let passwd = place.arg("passwd");
    std::fs::write(&passwd, "evil\x1b[2J:x:0:0::/:/bin/sh\n").unwrap();
    extant(["cp", &passwd, &format!("{image}:/etc/passwd")]).ok();
    let shown = on_a_terminal(&["ls", "-l", &format!("{image}:/etc")]);
    assert!(shown.contains("evil\\x1b[2J"), "{shown:?}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    let colored = on_a_terminal(&["ls", "--color=auto", &image]);
    assert!(colored.contains("\x1b[01;34m"), "{colored:?}");
}

#[test]
fn a_bad_operand_is_said_and_the_others_are_listed() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let run = extant(["ls", &format!("{image}:/nothing"), &format!("{image}:/etc")]).fails(1);
    assert!(run.text().contains("hostname\n"), "{}", run.text());
    extant(["ls", "-St", &image]).fails(2);
    for command in ["ls", "du", "df"] {
        let run = extant([command, "-h", &image]).ok();
        assert!(!run.text().contains("Usage"), "{command}: {}", run.text());
    }
}
