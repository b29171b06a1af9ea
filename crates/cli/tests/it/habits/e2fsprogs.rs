//! The rows of `from-e2fsprogs.md`, and how each is judged.

use super::By::{
    AsBefore, Asked, Codes, Fields, Out, OutAndTimes, Output, Read, Tree, TreeAndBlocks,
    TreeAndTimes, TreeKept,
};
use super::reading::*;
use super::{Known, judge_page, nothing, row};
use extant_testkit::require;

/// Everything of `made.img` that no clock and no luck decides.
const MADE: &[super::By] = &[Fields("made.img", &[])];
/// The tree of `disk.img`, which changed.
const CHANGED: &[super::By] = &[Tree("disk.img")];
const LABELLED: &[super::By] = &[Fields("disk.img", &["Filesystem volume name"])];
const SUPERBLOCK: &[super::By] = &[Read(superblock_of_dumpe2fs, superblock_of_info)];
const COPIED: &[super::By] = &[Out];
/// What is damaged in `bad.img`, and the rest of it.
const REPAIRED: &[super::By] = &[
    Asked("debugfs -R 'stat /etc/hosts' bad.img", inode_of_debugfs),
    TreeKept("bad.img"),
];
const SIZE_AND_TREE: &[super::By] = &[
    Fields("disk.img", &["Block count", "Block size", "Inode size"]),
    TreeKept("disk.img"),
];
const GIVEN_BACK: &[super::By] = &[Asked("du -k disk.img", takes_little), TreeKept("disk.img")];
const REPLAYED: &[super::By] = &[Tree("crashed.img")];

const MKE2FS: &[Known] = &[
    row("mke2fs -q -t ext4 made.img 32M", MADE),
    row(
        "mke2fs -q -t ext4 -F disk.img 32M",
        &[Fields("disk.img", &[])],
    ),
    row("mke2fs -q -t ext4 -L root made.img 32M", MADE),
    row(
        "mke2fs -q -t ext4 -U 01234567-89ab-cdef-0123-456789abcdef made.img 32M",
        &[
            Fields("made.img", &[]),
            Fields("made.img", &["Filesystem UUID"]),
        ],
    ),
    row("mke2fs -q -t ext4 -b 1024 made.img 32M", MADE),
    row("mke2fs -q -t ext4 -I 512 made.img 32M", MADE),
    row("mke2fs -q -t ext4 -N 5000 made.img 32M", MADE),
    row("mke2fs -q -t ext4 -i 65536 made.img 32M", MADE),
    row("mke2fs -q -t ext4 -m 0 made.img 32M", MADE),
    row(
        "mke2fs -q -t ext4 -O inline_data,^64bit made.img 32M",
        &[Fields(
            "made.img",
            &["Filesystem features", "Inode count", "Block count"],
        )],
    ),
    row("mke2fs -q -t ext4 -O ^has_journal made.img 32M", MADE),
    row("mke2fs -q -t ext4 -J size=8 made.img 64M", MADE),
    row(
        "mke2fs -q -t ext4 -E hash_seed=01234567-89ab-cdef-0123-456789abcdef made.img 32M",
        &[Fields("made.img", &["Directory Hash Seed"])],
    ),
    row(
        "mke2fs -q -t ext4 -E root_owner=1000:1000 made.img 32M",
        &[
            Asked("debugfs -R 'stat /' made.img", owner_of_debugfs),
            Tree("made.img"),
        ],
    ),
    row(
        "mke2fs -q -t ext4 -E lazy_itable_init=1 made.img 32M",
        &[Asked(
            "dumpe2fs made.img | grep ^Group | sed 's/csum 0x[0-9a-f]*//'",
            whole,
        )],
    ),
    row(
        "truncate -s 40M made.img; mke2fs -q -t ext4 -E offset=1048576 made.img 32M",
        &[Asked(
            "stat -c %s made.img; dd if=made.img of=part bs=1M skip=1 count=32 status=none; \
             dumpe2fs -h part | grep -E '^(Block count|Inode count|Filesystem features)'; \
             e2fsck -fn part > /dev/null",
            whole,
        )],
    ),
    row(
        "mke2fs -q -t ext4 -d tree made.img 32M",
        &[Tree("made.img")],
    ),
    row(
        "mke2fs -q -t ext4 -d tree.tar made.img 32M",
        &[Tree("made.img")],
    )
    .instead(
        "mkdir unpacked; tar -C unpacked -xf tree.tar; mke2fs -q -t ext4 -d unpacked made.img 32M",
    ),
    row("mke2fs -q -t ext3 made.img 32M", MADE),
    row("mke2fs -q -t ext2 made.img 32M", MADE),
    nothing("mke2fs -n -t ext4 disk.img 32M"),
    nothing("mke2fs -q -t ext4 -T small made.img 32M"),
    nothing("mke2fs -q -t ext4 -c made.img 32M").instead("mke2fs -q -t ext4 -c disk.img 32M"),
];

const E2FSCK: &[Known] = &[
    row("e2fsck -fn disk.img", &[Codes]),
    row("e2fsck -fn bad.img", &[Codes]).codes(4, 4),
    row("e2fsck -fy bad.img", REPAIRED).codes(1, 1),
    row("e2fsck -fp bad.img", REPAIRED).codes(1, 1),
    row(
        "e2fsck -fy -z e2fsck.undo bad.img",
        &[
            Asked("debugfs -R 'stat /etc/hosts' bad.img", inode_of_debugfs),
            Asked("test -s *.undo && echo kept", trimmed),
        ],
    )
    .codes(1, 1),
    row(
        "e2fsck -fy -b 8193 lost.img",
        &[Fields(
            "lost.img",
            &["Filesystem UUID", "Free blocks", "Free inodes"],
        )],
    )
    .codes(1, 1),
    row("e2fsck -p -E journal_only crashed.img", REPLAYED),
    row("e2fsck -fy -E discard disk.img", GIVEN_BACK),
    nothing("e2fsck -fyD disk.img"),
    nothing("e2fsck -fy -c disk.img"),
    nothing("e2fsck -fy -l /dev/null disk.img"),
];

const TUNE2FS: &[Known] = &[
    row(
        "tune2fs -l disk.img",
        &[Read(identity_of_dumpe2fs, identity_of_info)],
    ),
    row("tune2fs -L root disk.img", LABELLED),
    row("e2label disk.img root", LABELLED),
    row("e2label disk.img", &[Output]),
    row(
        "tune2fs -U 01234567-89ab-cdef-0123-456789abcdef disk.img",
        &[
            Fields("disk.img", &["Filesystem UUID"]),
            TreeKept("disk.img"),
        ],
    ),
    row(
        "tune2fs -U random disk.img",
        &[Asked(
            "dumpe2fs -h disk.img | grep UUID | grep -c 11111111-2222-3333-4444-555555555555 || true",
            trimmed,
        )],
    ),
    row(
        "tune2fs -m 1 disk.img",
        &[Fields("disk.img", &["Reserved block count"])],
    ),
    row(
        "tune2fs -r 100 disk.img",
        &[Fields("disk.img", &["Reserved block count"])],
    ),
    row(
        "tune2fs -u 1000 -g 1000 disk.img",
        &[Fields(
            "disk.img",
            &["Reserved blocks uid", "Reserved blocks gid"],
        )],
    ),
    row(
        "tune2fs -e remount-ro disk.img",
        &[Fields("disk.img", &["Errors behavior"])],
    ),
    row(
        "tune2fs -c 20 -C 5 -i 30d disk.img",
        &[Fields(
            "disk.img",
            &["Maximum mount count", "Mount count", "Check interval"],
        )],
    ),
    row(
        "tune2fs -T 20240229120000 disk.img",
        &[Fields("disk.img", &["Last checked"])],
    ),
    row(
        "tune2fs -o acl,^user_xattr disk.img",
        &[Fields("disk.img", &["Default mount options"])],
    ),
    row(
        "tune2fs -O ^has_journal disk.img",
        &[Fields("disk.img", &[]), TreeKept("disk.img")],
    ),
    row(
        "tune2fs -O ^metadata_csum disk.img",
        &[Fields("disk.img", &[]), TreeKept("disk.img")],
    ),
    row(
        "tune2fs -O project,large_dir disk.img",
        &[Fields("disk.img", &["Filesystem features"])],
    ),
    row(
        "tune2fs -O ^has_journal disk.img; tune2fs -J size=8 disk.img",
        &[Fields(
            "disk.img",
            &["Filesystem features", "Total journal size"],
        )],
    ),
    row(
        "tune2fs -Q usrquota,grpquota disk.img",
        &[
            Fields("disk.img", &["Filesystem features"]),
            Asked("debugfs -R 'lq user' disk.img", quota_of_debugfs),
        ],
    ),
    row(
        "tune2fs -E stride=4,stripe_width=16 disk.img",
        &[Fields("disk.img", &["RAID stride", "RAID stripe width"])],
    ),
    row(
        "tune2fs -E hash_alg=tea disk.img",
        &[Fields("disk.img", &["Default directory hash"])],
    ),
    row(
        "tune2fs -O mmp -E mmp_update_interval=7 disk.img",
        &[Fields(
            "disk.img",
            &["Filesystem features", "MMP update interval"],
        )],
    ),
    row(
        "tune2fs -z tune.undo -L root disk.img",
        &[
            Fields("disk.img", &["Filesystem volume name"]),
            Asked("test -s tune.undo && echo kept", trimmed),
        ],
    ),
    row(
        "tune2fs -M /srv disk.img",
        &[Fields("disk.img", &["Last mounted on"])],
    ),
    row(
        "tune2fs -E mount_opts=discard disk.img",
        &[Fields("disk.img", &["Mount options"])],
    ),
    row(
        "tune2fs -I 256 ext3.img",
        &[
            Fields("ext3.img", &["Inode size", "Free blocks"]),
            TreeKept("ext3.img"),
        ],
    ),
    row(
        "tune2fs -O ^has_journal disk.img; tune2fs -J size=4,location=40000 disk.img",
        &[
            Fields("disk.img", &["Filesystem features"]),
            Asked("debugfs -R 'bmap <8> 0' disk.img", trimmed),
        ],
    ),
];

const RESIZE2FS: &[Known] = &[
    row("e2fsck -fp disk.img; resize2fs disk.img 96M", SIZE_AND_TREE),
    row("e2fsck -fp disk.img; resize2fs disk.img 32M", SIZE_AND_TREE),
    row(
        "truncate -s 96M disk.img; resize2fs -f disk.img",
        SIZE_AND_TREE,
    ),
    row(
        "resize2fs -fM disk.img",
        &[
            Asked(
                "dumpe2fs -h disk.img | sed -n 's/^Block count: *//p'",
                is_small,
            ),
            TreeKept("disk.img"),
        ],
    ),
    row(
        "resize2fs -P disk.img",
        &[Read(is_small, is_small_by_resize)],
    ),
    row(
        "resize2fs -s -f disk.img",
        &[
            Fields("disk.img", &["Filesystem features"]),
            TreeKept("disk.img"),
        ],
    ),
    row(
        "resize2fs -z resize.undo -f disk.img 96M",
        &[
            Fields("disk.img", &["Block count"]),
            Asked("test -s resize.undo && echo kept", trimmed),
        ],
    ),
];

const DUMPE2FS: &[Known] = &[
    row("dumpe2fs -h disk.img", SUPERBLOCK),
    row(
        "dumpe2fs disk.img",
        &[
            Read(superblock_of_dumpe2fs, superblock_of_info),
            Read(groups_of_dumpe2fs, groups_of_info),
        ],
    ),
    row(
        "dumpe2fs -h -o superblock=8193 -o blocksize=1024 lost.img",
        SUPERBLOCK,
    ),
    row("blkid -o value -s UUID disk.img", &[Output]),
    row("blkid -o value -s TYPE disk.img", &[Output]),
    nothing("dumpe2fs -b disk.img"),
    nothing("findfs LABEL=data")
        .instead("findfs LABEL=no-disk-has-this")
        .codes(1, 0),
];

const LOOKING: &[Known] = &[
    row(
        "debugfs -R 'ls /etc' disk.img",
        &[Read(names_of_debugfs, words)],
    ),
    row(
        "debugfs -R 'ls -l /etc' disk.img",
        &[Read(list_of_debugfs, list_of_ls)],
    ),
    row(
        "debugfs -R 'ls -p /etc' disk.img",
        &[Read(list_of_parseable, list_of_json)],
    ),
    row(
        "debugfs -R 'ls -d /etc' disk.img",
        &[Read(deleted_of_debugfs, deleted_names)],
    ),
    row("debugfs -R 'cat /etc/hostname' disk.img", &[Output]),
    row("debugfs -R 'cat <13>' disk.img", &[Output]),
    row(
        "debugfs -R 'dump /var/log/messages out/messages' disk.img",
        COPIED,
    ),
    row(
        "debugfs -R 'dump -p /usr/bin/tool out/tool' disk.img",
        &[OutAndTimes],
    ),
    row(
        "debugfs -R 'rdump /etc out' disk.img",
        &[Asked(
            "find out/etc -type f -printf '%P %m %U:%G %T@ %s\\n' | sort; \
             find out/etc -type d -printf '%P %m %U:%G %T@\\n' | sort; \
             find out/etc -type l -printf '%P %U:%G %l\\n' | sort; \
             find out/etc -type f | sort | xargs cat",
            whole,
        )],
    ),
    row(
        "debugfs -R 'rdump / out' disk.img",
        &[Asked(
            "cd out; find . -type f | sort | xargs sha256sum; find . -type l | sort",
            whole,
        )],
    ),
    row(
        "debugfs -R 'stat /usr/bin/tool' disk.img",
        &[Read(inode_of_debugfs, inode_of_stat)],
    ),
    row(
        "debugfs -R 'stat <13>' disk.img",
        &[Read(inode_of_debugfs, inode_of_stat_text)],
    ),
    row(
        "debugfs -R 'ncheck 13' disk.img",
        &[Read(paths_of_ncheck, trimmed)],
    ),
    row(
        "debugfs -R 'icheck 4386' disk.img",
        &[Read(inodes_of_icheck, inode_of_block)],
    ),
    row(
        "debugfs -R 'testb 4386' disk.img",
        &[Read(use_of_testb, use_of_block)],
    ),
    row(
        "debugfs -R 'testi <13>' disk.img",
        &[Read(use_of_testi, is_found)],
    ),
    row(
        "debugfs -R 'blocks /var/log/messages' disk.img",
        &[Read(words, blocks_of_map)],
    ),
    row(
        "debugfs -R 'blocks /srv/many' disk.img",
        &[Read(words, blocks_of_map)],
    ),
    row(
        "debugfs -R 'ex /var/log/messages' disk.img",
        &[Read(extents_of_debugfs, extents_of_map)],
    ),
    row("debugfs -R 'bmap /var/log/messages 3' disk.img", &[Output]),
    row(
        "debugfs -R 'filefrag /var/log/messages' disk.img",
        &[Read(count_of_filefrag, count_of_map)],
    ),
    row(
        "debugfs -R 'dirsearch /etc hostname' disk.img",
        &[Read(entry_of_dirsearch, is_found)],
    ),
    row(
        "debugfs -R 'ea_list /usr/bin/tool' disk.img",
        &[Read(names_of_ea_list, words)],
    ),
    row(
        "debugfs -R 'ea_get -V /usr/bin/tool user.origin' disk.img",
        &[Read(trimmed, trimmed)],
    ),
    row(
        "debugfs -R logdump crashed.img",
        &[Read(waiting_of_logdump, waiting_of_log)],
    ),
    row(
        "debugfs -R 'logdump -b 4386' crashed.img",
        &[Read(logged_of_logdump, logged_of_log)],
    ),
    row(
        "debugfs -R lsdel disk.img",
        &[Read(inodes_of_lsdel, inodes_of_deleted)],
    ),
    row("debugfs -R 'show_super_stats -h' disk.img", SUPERBLOCK),
    row(
        "debugfs -R stats disk.img",
        &[
            Read(superblock_of_dumpe2fs, superblock_of_info),
            Read(groups_of_dumpe2fs, groups_of_info),
        ],
    ),
    row(
        "debugfs -R features disk.img",
        &[Read(features_of_debugfs, features_of_info)],
    ),
    row(
        "debugfs -R freefrag disk.img",
        &[Read(free_of_freefrag, free_of_info)],
    ),
    row(
        "debugfs -R 'lq user' quota.img",
        &[Read(quota_of_debugfs, quota_of_ours)],
    ),
    row(
        "debugfs -R 'gq user 0' quota.img",
        &[Read(quota_of_debugfs, quota_of_entry)],
    ),
    row(
        "debugfs -c -s 8193 -b 1024 -R 'cat /etc/hostname' lost.img",
        &[Output],
    ),
    row("debugfs -c -R 'cat /etc/hostname' disk.img", &[Output]),
    row(
        "debugfs -R 'block_dump 4386' disk.img",
        &[Read(bytes_of_block_dump, bytes_of_od)],
    ),
    row(
        "debugfs -R 'ffb 1' disk.img",
        &[Read(block_of_ffb, trimmed)],
    ),
    nothing("debugfs -R 'imap <13>' disk.img"),
    nothing("debugfs -R 'htree_dump /srv/many' disk.img"),
    nothing("debugfs -R 'dx_hash -h half_md4 hostname' disk.img"),
    nothing("debugfs -R 'inode_dump <13>' disk.img"),
    nothing("debugfs -R supported_features disk.img"),
    nothing("debugfs -R 'dump_unused' disk.img"),
    nothing("debugfs -i -R 'stat <13>' copy.e2i"),
];

const CHANGING: &[Known] = &[
    row("debugfs -w -R 'write hostname /etc/name' disk.img", CHANGED),
    row("debugfs -w -f commands disk.img", CHANGED),
    row("debugfs -w -R 'rm /etc/hosts' disk.img", CHANGED),
    row("debugfs -w -R 'mkdir /srv/new' disk.img", CHANGED),
    row("debugfs -w -R 'rmdir /srv/empty' disk.img", CHANGED),
    row(
        "debugfs -w -R 'ln /etc/hosts /etc/hosts.again' disk.img; e2fsck -fy disk.img > e2fsck.log",
        CHANGED,
    )
    .codes(1, 0),
    row(
        "debugfs -w -R 'symlink /etc/name hostname' disk.img",
        CHANGED,
    ),
    row(
        r"printf 'cd /dev\nmknod tty c 5 0\n' | debugfs -w -f - disk.img",
        CHANGED,
    ),
    row(
        r"printf 'cd /dev\nmknod queue p\n' | debugfs -w -f - disk.img",
        CHANGED,
    ),
    row(
        "debugfs -w -R 'sif /etc/hosts mode 0100600' disk.img",
        CHANGED,
    ),
    row("debugfs -w -R 'sif /etc/hosts uid 1000' disk.img", CHANGED),
    row("debugfs -w -R 'sif /etc/hosts gid 1000' disk.img", CHANGED),
    row(
        "debugfs -w -R 'sif /etc/hosts mtime 20200131120000' disk.img",
        &[TreeAndTimes("disk.img")],
    ),
    row(
        "debugfs -w -R 'sif /etc/hosts flags 0x80010' disk.img",
        &[Asked("debugfs -R 'stat /etc/hosts' disk.img", flags)],
    ),
    row(
        "debugfs -w -R 'set_inode_field /etc/hosts size 4' disk.img",
        CHANGED,
    ),
    row(
        "debugfs -w -R 'ea_set /etc/hosts user.origin there' disk.img",
        CHANGED,
    ),
    row(
        "debugfs -w -R 'ea_rm /usr/bin/tool user.origin' disk.img",
        CHANGED,
    ),
    row(
        "debugfs -w -R 'fallocate /var/log/messages 300 399' disk.img",
        &[TreeAndBlocks("disk.img")],
    ),
    row(
        "debugfs -w -R 'punch /var/log/messages 8 15' disk.img",
        &[TreeAndBlocks("disk.img")],
    ),
    row("debugfs -w -R 'ssv volume_name root' disk.img", LABELLED),
    row(
        "debugfs -w -R 'ssv r_blocks_count 100' disk.img",
        &[Fields("disk.img", &["Reserved block count"])],
    ),
    row(
        "debugfs -w -R 'feature large_dir' disk.img",
        &[Fields("disk.img", &["Filesystem features"])],
    ),
    row("debugfs -w -R jr crashed.img", REPLAYED),
    row("debugfs -w -R 'undel <14> /etc/back' disk.img", CHANGED),
    row(
        "debugfs -w -z debugfs.undo -R 'rm /etc/hosts' disk.img",
        &[
            Tree("disk.img"),
            Asked("test -s *.undo && echo kept", trimmed),
        ],
    ),
    nothing("debugfs -w -R 'unlink /etc/hosts' disk.img"),
    nothing("debugfs -w -R 'kill_file /etc/hosts' disk.img"),
    nothing("debugfs -w -R 'copy_inode <13> /etc/hosts' disk.img"),
    nothing("debugfs -w -R 'clri <13>' disk.img"),
    nothing("debugfs -w -R 'freei <13>' disk.img"),
    nothing("debugfs -w -R 'setb 4386' disk.img"),
    nothing("debugfs -w -R 'zap_block 4386' disk.img"),
    nothing("debugfs -w -R 'expand_dir /etc' disk.img"),
    nothing("debugfs -w -R dirty disk.img"),
];

const OTHERS: &[Known] = &[
    row(
        "e2image -ra disk.img copy.img",
        &[Tree("copy.img"), Fields("copy.img", &[])],
    ),
    row(
        "e2image -Qa disk.img copy.qcow2",
        &[
            Asked(
                "qemu-img convert -O raw copy.qcow2 raw.img && echo done",
                trimmed,
            ),
            Tree("raw.img"),
        ],
    ),
    row(
        "tune2fs -z tune.undo -L root disk.img; e2undo tune.undo disk.img",
        &[AsBefore("sha256sum disk.img")],
    ),
    row(
        "e2freefrag disk.img",
        &[Read(free_of_freefrag, free_of_info)],
    ),
    row(
        "mount -o loop disk.img mnt; filefrag -v mnt/var/log/messages; umount mnt",
        &[Read(extents_of_filefrag, extents_of_map)],
    ),
    row(
        "mount -o loop disk.img mnt; lsattr mnt/etc/hosts; umount mnt",
        &[Read(letters, letters)],
    ),
    row(
        "mount -o loop disk.img mnt; chattr +id mnt/etc/hosts; umount mnt",
        &[Asked("debugfs -R 'stat /etc/hosts' disk.img", flags)],
    ),
    row(
        "mount -o loop disk.img mnt; fstrim mnt; umount mnt",
        GIVEN_BACK,
    ),
    row(
        "logsave e2fsck.log e2fsck -fn disk.img",
        &[Asked("cat *.log | wc -l", is_many)],
    ),
    nothing("mount -o loop disk.img mnt; mklost+found; umount mnt"),
    nothing("e2image disk.img copy.e2i"),
    nothing("e4defrag disk.img").instead("mount -o loop disk.img mnt; e4defrag mnt; umount mnt"),
    nothing("e4crypt get_policy tree"),
    // It looks for programs of LVM before it looks for the volume.
    nothing("e2scrub -n /dev/vg/root")
        .instead("command -v lvcreate > out || exit 16; e2scrub -n /dev/vg/root")
        .codes(16, 0),
    nothing("badblocks disk.img"),
    nothing("e2mmpstatus disk.img").codes(2, 0),
];

const MOUNTS_AND_TOOLS: &[Known] = &[
    row(
        "fuse2fs disk.img mnt; cat mnt/etc/hostname; umount mnt",
        &[Output],
    ),
    row(
        "fuse2fs -o ro disk.img mnt; cat mnt/etc/hostname; umount mnt",
        &[Output],
    ),
    row("e2ls disk.img:/etc", &[Read(words, words)]),
    row("e2ls -l disk.img:/etc", &[Read(list_of_e2ls, list_of_ls)]),
    row("e2cp disk.img:/var/log/messages out", COPIED),
    row("e2cp -p disk.img:/usr/bin/tool out", &[OutAndTimes]),
    row("e2cp hostname disk.img:/etc/name", CHANGED),
    row(
        "e2cp -P 600 -O 1000 -G 1000 hostname disk.img:/etc/name",
        CHANGED,
    ),
    row("e2mkdir disk.img:/srv/new", CHANGED),
    row("e2rm disk.img:/etc/hosts", CHANGED),
    row("e2rm -r disk.img:/var", CHANGED),
    row("e2mv disk.img:/etc/hosts /etc/moved", CHANGED),
    row("e2ln disk.img:/etc/hosts /etc/again", CHANGED),
    row("e2tail -n 3 disk.img:/var/log/messages", &[Output]),
];

const GENEXT2FS: &[Known] = &[
    row(
        "genext2fs -B 1024 -b 8192 -d tree made.img",
        &[Tree("made.img")],
    ),
    row(
        "genext2fs -B 1024 -b 8192 -a tree.tar made.img",
        &[Tree("made.img")],
    ),
    row(
        "genext2fs -U -B 1024 -b 8192 -d tree made.img",
        &[Tree("made.img")],
    ),
    row(
        "genext2fs -B 1024 -b 8192 -d tree -D table made.img",
        &[Tree("made.img")],
    ),
    row(
        "genext2fs -B 1024 -b 8192 -i 1024 -m 0 -L root -d tree made.img",
        &[
            Tree("made.img"),
            Fields(
                "made.img",
                &[
                    "Filesystem volume name",
                    "Block count",
                    "Block size",
                    "Reserved block count",
                ],
            ),
        ],
    ),
];

#[test]
fn what_was_typed_for_e2fsprogs_and_what_is_typed_now_do_the_same() {
    require!(Root, LoopDevices, KernelExt4, Fuse);
    let all = [
        MKE2FS,
        E2FSCK,
        TUNE2FS,
        RESIZE2FS,
        DUMPE2FS,
        LOOKING,
        CHANGING,
        OTHERS,
        MOUNTS_AND_TOOLS,
        GENEXT2FS,
    ];
    judge_page("from-e2fsprogs.md", &all, true);
}
