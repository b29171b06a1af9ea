//! The rows of `from-guestfish.md`, and how each is judged.
//!
//! guestfish needs a virtual machine, and is not asked. In its place Linux does on a mount what it
//! would do there, or another program on the image. How it is spelt is compared with what its
//! manual lists.

use super::By::{
    Asked, Codes, Fields, Lines, Out, OutAndTimes, Output, Read, Tree, TreeAndBlocks, TreeAndTimes,
    TreeKept,
};
use super::reading::*;
use super::{Known, judge_page, nothing, row, rows};
use extant_testkit::require;

const CHANGED: &[super::By] = &[Tree("disk.img")];
const IDENTITY: &[super::By] = &[Read(identity_of_dumpe2fs, identity_of_info)];
const GIVEN_BACK: &[super::By] = &[Asked("du -k disk.img", takes_little), TreeKept("disk.img")];
const REPAIRED: &[super::By] = &[
    Asked("debugfs -R 'stat /etc/hosts' bad.img", inode_of_debugfs),
    TreeKept("bad.img"),
];
/// What is in the archive that a side made.
const ARCHIVED: &[super::By] = &[Asked(
    "mkdir found; tar -C found -xf out/etc.tar*; cd found; \
     find . -mindepth 1 -printf '%P %m %U:%G %y %l %T@\\n' | sort; \
     find . -type f | sort | xargs sha256sum",
    whole,
)];

const DISKS: &[Known] = &[
    row("add disk.img", IDENTITY).instead("dumpe2fs -h disk.img"),
    row("add disk.qcow2", IDENTITY)
        .instead("qemu-img convert -O raw disk.qcow2 raw.img; dumpe2fs -h raw.img"),
    row("mount-ro /dev/sda2 /", &[Output]).instead("linux 'ls'"),
    row("list-filesystems", &[Read(kinds, kinds)])
        .instead("blkid -p -O 2097152 -o value -s TYPE whole.img"),
    row("list-partitions", &[Output])
        .instead("sgdisk -p whole.img | awk '/^ +[0-9]/ { print $1 }'"),
    row("part-list /dev/sda", &[Read(partitions_of_sfdisk, trimmed)])
        .instead("sfdisk -d whole.img"),
    row("part-get-parttype /dev/sda", &[Output])
        .instead("sfdisk -d whole.img | sed -n 's/^label: //p'"),
    row("part-get-name /dev/sda 2", &[Output])
        .instead("sgdisk -i 2 whole.img | sed -n \"s/^Partition name: '\\(.*\\)'/\\1/p\""),
    row("vfs-type /dev/sda", &[Output]).instead("blkid -p -o value -s TYPE disk.img"),
    row("vfs-label /dev/sda", &[Output]).instead("blkid -p -o value -s LABEL disk.img"),
    row("vfs-uuid /dev/sda", &[Output]).instead("blkid -p -o value -s UUID disk.img"),
    row(
        "blkid /dev/sda",
        &[Read(identity_of_blkid, label_and_uuid_of_info)],
    )
    .instead("blkid -p disk.img"),
    row(
        "vfs-minimum-size /dev/sda",
        &[Read(is_small, is_small_by_resize)],
    )
    .instead("resize2fs -P disk.img"),
    row(
        "statvfs /",
        &[Read(superblock_of_dumpe2fs, superblock_of_info)],
    )
    .instead("dumpe2fs -h disk.img"),
    row("df", &[Read(inodes_of_df, inodes_of_ours)]).instead("linux 'df -i .'"),
    row("mkfs ext4 /dev/sda", &[Fields("disk.img", &[])])
        .instead("mke2fs -q -F -t ext4 disk.img 64M"),
    row(
        "mkfs ext4 /dev/sda blocksize:1024 label:root",
        &[Fields("disk.img", &[])],
    )
    .instead("mke2fs -q -F -t ext4 -b 1024 -L root disk.img 64M"),
    row(
        "mkfs ext4 /dev/sda2",
        &[Asked(
            "dd if=whole.img of=part bs=1M skip=2 count=80 status=none; dumpe2fs -h part | \
             grep -E '^(Block count|Inode count|Filesystem features)'; e2fsck -fn part > /dev/null",
            whole,
        )],
    )
    .instead("mke2fs -q -F -t ext4 -E offset=2097152 whole.img 80M"),
    row("e2fsck /dev/sda correct:true", REPAIRED)
        .instead("e2fsck -fy bad.img")
        .codes(1, 1),
    row("e2fsck-f /dev/sda", REPAIRED)
        .instead("e2fsck -fp bad.img")
        .codes(1, 1),
    row("tune2fs-l /dev/sda", IDENTITY).instead("tune2fs -l disk.img"),
    row(
        "tune2fs /dev/sda reservedblockspercentage:1",
        &[Fields("disk.img", &["Reserved block count"])],
    )
    .instead("tune2fs -m 1 disk.img"),
    row(
        "tune2fs /dev/sda maxmountcount:20 intervalbetweenchecks:2592000",
        &[Fields(
            "disk.img",
            &["Maximum mount count", "Check interval"],
        )],
    )
    .instead("tune2fs -c 20 -i 2592000s disk.img"),
    row(
        "set-label /dev/sda root",
        &[Fields("disk.img", &["Filesystem volume name"])],
    )
    .instead("e2label disk.img root"),
    row(
        "set-uuid /dev/sda 01234567-89ab-cdef-0123-456789abcdef",
        &[Fields("disk.img", &["Filesystem UUID"])],
    )
    .instead("tune2fs -U 01234567-89ab-cdef-0123-456789abcdef disk.img"),
    row(
        "resize2fs-size /dev/sda 33554432",
        &[Fields("disk.img", &["Block count"]), TreeKept("disk.img")],
    )
    .instead("resize2fs -f disk.img 32M"),
    row(
        "resize2fs-M /dev/sda",
        &[
            Asked(
                "dumpe2fs -h disk.img | sed -n 's/^Block count: *//p'",
                is_small,
            ),
            TreeKept("disk.img"),
        ],
    )
    .instead("resize2fs -fM disk.img"),
    row("zerofree /dev/sda", GIVEN_BACK).instead("linux 'fstrim .'"),
    row("fstrim /", GIVEN_BACK).instead("linux 'fstrim .'"),
    row("disk-format disk.qcow2", &[Output])
        .instead("qemu-img info --output=json disk.qcow2 | jq -r .format"),
    nothing("run"),
    nothing("mount /dev/sda /"),
    nothing("umount-all"),
    nothing("sync"),
    nothing("part-init /dev/sda gpt"),
    nothing("part-disk /dev/sda gpt"),
    nothing("part-add /dev/sda p 2048 4095"),
    nothing("part-resize /dev/sda 2 170000"),
    nothing("disk-create made.qcow2 qcow2 64M"),
    nothing("list-devices"),
    nothing("luks-open /dev/sda secret"),
    nothing("lvs"),
];

const IN_AND_OUT: &[Known] = &[
    row("upload hostname /etc/name", CHANGED).instead("linux 'cp ../hostname etc/name'"),
    row("download /var/log/messages out/messages", &[Out])
        .instead("linux 'cp var/log/messages ../out'"),
    row("copy-in tree /srv", CHANGED).instead("linux 'cp -a ../tree srv'"),
    row("copy-out /etc out", &[OutAndTimes]).instead("linux 'cp -a etc ../out'"),
    row("tar-in tree.tar /srv/empty", CHANGED).instead("linux 'tar -C srv/empty -xf ../tree.tar'"),
    row("tgz-in tree.tar.gz /srv/empty", CHANGED)
        .instead("linux 'tar -C srv/empty -xzf ../tree.tar.gz'"),
    row("tar-out /etc out/etc.tar", ARCHIVED).instead("linux 'tar -C etc -cf ../out/etc.tar .'"),
    row("tgz-out /etc out/etc.tar.gz", ARCHIVED)
        .instead("linux 'tar -C etc -czf ../out/etc.tar.gz .'"),
    row("cat /etc/hostname", &[Output]).instead("linux 'cat etc/hostname'"),
    row("write /etc/name myhost", CHANGED).instead("linux 'printf %s myhost > etc/name'"),
    row("write-append /etc/hostname more", CHANGED)
        .instead("linux 'printf %s more >> etc/hostname'"),
    row("pwrite /var/log/messages here 100", CHANGED).instead(
        "linux 'printf here | dd of=var/log/messages bs=1 seek=100 conv=notrunc status=none'",
    ),
    row("pread /var/log/messages 10 100", &[Output])
        .instead("linux 'dd if=var/log/messages bs=1 skip=100 count=10 status=none'"),
    row("edit /etc/hostname", CHANGED).instead("linux 'sed -i s/box/crate/ etc/hostname'"),
    row("head-n 3 /var/log/messages", &[Output]).instead("linux 'head -n 3 var/log/messages'"),
    row("tail-n 3 /var/log/messages", &[Output]).instead("linux 'tail -n 3 var/log/messages'"),
    row("wc-l /var/log/messages", &[Output]).instead("linux 'wc -l < var/log/messages'"),
    row("strings /usr/bin/tool", &[Output]).instead("linux 'strings usr/bin/tool'"),
    row("hexdump /etc/hostname", &[Output]).instead("linux 'od -An -tx1 etc/hostname'"),
    row("grep ^399 /var/log/messages", &[Output]).instead("linux 'grep ^399 var/log/messages'"),
    row("egrep root /etc/passwd", &[Output]).instead("linux 'grep -E root etc/passwd'"),
    row("checksum sha256 /var/log/messages", &[Read(sums, sums)])
        .instead("linux 'sha256sum var/log/messages'"),
    row(
        "checksums-out sha256 /etc out/sums",
        &[Asked("cat out/sums", sums)],
    )
    .instead("linux 'find ./etc -type f -exec sha256sum {} + > ../out/sums'"),
    row("equal /var/cache/a.bin /var/cache/b.bin", &[Codes])
        .instead("linux 'cmp -s var/cache/a.bin var/cache/b.bin'")
        .codes(1, 1),
    row("file /usr/bin/tool", &[Output]).instead("linux 'file - < usr/bin/tool'"),
    row("base64-out /etc/hostname out/text", &[Out])
        .instead("linux 'base64 etc/hostname > ../out/text'"),
];

const LOOKING: &[Known] = &[
    row("ls /etc", &[Output]).instead("linux 'ls -A etc'"),
    row("ll /etc", &[Output])
        .instead("linux 'ls -la --time-style=\"+%Y-%m-%d %H:%M\" etc' | tail -n +2"),
    row("find /etc", &[Read(paths_below, paths_below)]).instead("linux 'find ./etc'"),
    row(
        "find0 /etc out/names",
        &[Asked("cat out/names", paths_below)],
    )
    .instead("linux 'find ./etc -print0 > ../out/names'"),
    row("glob cat /var/cache/*.bin", &[Output]).instead("linux 'cat var/cache/*.bin'"),
    row("glob rm-rf /var/cache/*", CHANGED).instead("linux 'rm -rf var/cache/*'"),
    row("glob-expand /var/cache/*", &[Lines])
        .instead("linux 'find ./var/cache -mindepth 1 | sed s/^.//'"),
    row("exists /etc/hostname", &[Read(is_found, is_found)]).instead("linux 'stat etc/hostname'"),
    row("is-dir /etc", &[Output]).instead("linux 'find ./etc -maxdepth 0 -type d | sed s/^.//'"),
    row("is-symlink /etc/os-release", &[Output])
        .instead("linux 'find ./etc/os-release -type l | sed s/^.//'"),
    row("filesize /var/log/messages", &[Output]).instead("linux 'stat -c %s var/log/messages'"),
    row(
        "lstatns /usr/bin/tool",
        &[Read(inode_of_debugfs, inode_of_stat)],
    )
    .instead("debugfs -R 'stat /usr/bin/tool' disk.img"),
    row("readlink /etc/os-release", &[Output]).instead("linux 'readlink etc/os-release'"),
    row("du /var", &[Output]).instead("linux 'du -s ./var | sed s/[.]//'"),
    row("getxattr /usr/bin/tool user.origin", &[Output])
        .instead("linux 'getfattr --only-values -n user.origin usr/bin/tool'"),
    row(
        "getxattrs /usr/bin/tool",
        &[Read(attributes_of_getfattr, attributes_of_stat)],
    )
    .instead("linux 'getfattr -d usr/bin/tool'"),
    row("acl-get-file /etc/hosts access", &[Read(entries, entries)])
        .instead("linux 'getfacl -n etc/hosts'"),
    row("get-e2attrs /etc/hosts", &[Read(letters, letters)]).instead("linux 'lsattr etc/hosts'"),
    row("find-inode /dev/sda 13", &[Output]).instead("linux 'find . -inum 13 | sed s/^.//'"),
    row("download-inode /dev/sda 13 out/file", &[Out])
        .instead("linux 'find . -inum 13 -exec cp {} ../out/file \\;'"),
    row(
        "filesystem-walk /dev/sda",
        &[Read(inodes_of_lsdel, inodes_of_deleted)],
    )
    .instead("debugfs -R lsdel disk.img"),
    row("inspect-get-distro /dev/sda", &[Output])
        .instead("linux 'sed -n s/^ID=//p usr/lib/os-release'"),
    row("inspect-get-hostname /dev/sda", &[Output]).instead("linux 'cat etc/hostname'"),
    nothing("journal-open /var/log/journal"),
    nothing("inspect-os"),
    nothing("inspect-list-applications /dev/sda"),
];

const CHANGING: &[Known] = &[
    row("mkdir /srv/new", CHANGED).instead("linux 'mkdir srv/new'"),
    row("mkdir-p /srv/new/deep", CHANGED).instead("linux 'mkdir -p srv/new/deep'"),
    row("mkdir-mode /srv/new 0700", CHANGED).instead("linux 'mkdir -m 700 srv/new'"),
    row("rm /etc/hosts", CHANGED).instead("linux 'rm etc/hosts'"),
    row("rm-f /etc/none", &[TreeKept("disk.img"), Codes]).instead("linux 'rm -f etc/none'"),
    row("rm-rf /var", CHANGED).instead("linux 'rm -rf var'"),
    row("rmdir /srv/empty", CHANGED).instead("linux 'rmdir srv/empty'"),
    row("mv /etc/hosts /etc/moved", CHANGED).instead("linux 'mv etc/hosts etc/moved'"),
    row("rename /etc/hosts /etc/moved", CHANGED).instead("linux 'mv -T etc/hosts etc/moved'"),
    row("cp /etc/hosts /etc/copy", CHANGED).instead("linux 'cp etc/hosts etc/copy'"),
    row("cp-a /etc /srv", CHANGED).instead("linux 'cp -a etc srv'"),
    row("ln /etc/hosts /etc/again", CHANGED).instead("linux 'ln etc/hosts etc/again'"),
    row("ln-s hostname /etc/name", CHANGED).instead("linux 'ln -s hostname etc/name'"),
    row("ln-sf hostname /etc/os-release", CHANGED)
        .instead("linux 'ln -sf hostname etc/os-release'"),
    row("chmod 0600 /etc/hosts", CHANGED).instead("linux 'chmod 600 etc/hosts'"),
    row("chown 1000 1000 /etc/hosts", CHANGED).instead("linux 'chown 1000:1000 etc/hosts'"),
    row("touch /etc/name", CHANGED).instead("linux 'touch etc/name'"),
    row(
        "utimens /etc/hosts 1580472000 0 1580472000 0",
        &[TreeAndTimes("disk.img")],
    )
    .instead("linux 'touch -d @1580472000 etc/hosts'"),
    row("truncate /var/log/messages", CHANGED).instead("linux 'truncate -s 0 var/log/messages'"),
    row("truncate-size /var/log/messages 100", CHANGED)
        .instead("linux 'truncate -s 100 var/log/messages'"),
    row(
        "fallocate64 /srv/swap 1048576",
        &[TreeAndBlocks("disk.img")],
    )
    .instead("linux 'fallocate -l 1M srv/swap'"),
    row("mkfifo 0600 /dev/queue", CHANGED).instead("linux 'mkfifo -m 600 dev/queue'"),
    row("mknod-c 0666 5 0 /dev/tty", CHANGED).instead("linux 'mknod -m 666 dev/tty c 5 0'"),
    row("mknod-b 0660 7 0 /dev/loop0", CHANGED).instead("linux 'mknod -m 660 dev/loop0 b 7 0'"),
    row("setxattr user.origin there 5 /etc/hosts", CHANGED)
        .instead("linux 'setfattr -n user.origin -v there etc/hosts'"),
    row("removexattr user.origin /usr/bin/tool", CHANGED)
        .instead("linux 'setfattr -x user.origin usr/bin/tool'"),
    row(
        "acl-set-file /etc/hosts access u::rw-,u:1000:r--,g::r--,m::r--,o::r--",
        CHANGED,
    )
    .instead("linux 'setfacl -m u::rw-,u:1000:r--,g::r--,m::r--,o::r-- etc/hosts'"),
    row(
        "set-e2attrs /etc/hosts i",
        &[Asked("debugfs -R 'stat /etc/hosts' disk.img", flags)],
    )
    .instead("linux 'chattr +i etc/hosts'"),
    row(
        "set-e2attrs /etc/hosts e clear:true",
        &[
            Asked("debugfs -R 'stat /etc/hosts' disk.img", flags),
            TreeKept("disk.img"),
        ],
    )
    .instead("linux 'chattr -e etc/hosts'"),
    row("selinux-relabel /etc/selinux/contexts /", CHANGED).instead(
        "linux 'find . -exec setfattr -h -n security.selinux \
         -v \"\\\"system_u:object_r:default_t:s0\\\\000\\\"\" {} +; \
         find ./etc -exec setfattr -h -n security.selinux \
         -v \"\\\"system_u:object_r:etc_t:s0\\\\000\\\"\" {} +'",
    ),
    nothing("sh 'rm -f /etc/hosts'"),
    nothing("command 'ldconfig'"),
    nothing("extlinux /boot"),
];

const VIRT: &[Known] = &[
    row("virt-cat -a disk.img /etc/hostname", &[Output]).instead("linux 'cat etc/hostname'"),
    row("virt-ls -a disk.img /etc", &[Output]).instead("linux 'ls -A etc'"),
    row("virt-ls -lR -a disk.img /etc", &[Lines])
        .instead("linux 'find etc -printf \"%y %m %s %P\\n\"'"),
    row("virt-copy-in -a disk.img tree /srv", CHANGED).instead("linux 'cp -a ../tree srv'"),
    row("virt-copy-out -a disk.img /etc out", &[OutAndTimes]).instead("linux 'cp -a etc ../out'"),
    row("virt-tar-in -a disk.img tree.tar /srv/empty", CHANGED)
        .instead("linux 'tar -C srv/empty -xf ../tree.tar'"),
    row("virt-tar-out -a disk.img /etc out/etc.tar", ARCHIVED)
        .instead("linux 'tar -C etc -cf ../out/etc.tar .'"),
    row("virt-tail -a disk.img /var/log/messages", &[Output])
        .instead("linux 'tail var/log/messages'"),
    row(
        "virt-diff -a old.img -A new.img",
        &[Read(only_of_diff, only_of_ours)],
    )
    .instead(
        "mkdir old new; mount -o loop,ro old.img old; mount -o loop,ro new.img new; \
             diff -r --no-dereference old/etc new/etc; code=$?; umount old new; exit $code",
    )
    .codes(1, 1),
    row(
        "virt-edit -a disk.img /etc/hostname -e s/box/crate/",
        CHANGED,
    )
    .instead("linux 'sed -i s/box/crate/ etc/hostname'"),
    row("virt-df -a disk.img", &[Read(inodes_of_df, inodes_of_ours)]).instead("linux 'df -i .'"),
    row(
        "virt-df -h -a disk.img",
        &[Read(inodes_of_df, inodes_of_ours)],
    )
    .instead("linux 'df -i .'"),
    row("virt-filesystems -a whole.img", &[Read(kinds, kinds)])
        .instead("blkid -p -O 2097152 -o value -s TYPE whole.img"),
    row("virt-make-fs -t ext4 tree made.img", &[Tree("made.img")])
        .instead("mke2fs -q -t ext4 -d tree made.img 32M"),
    row(
        "virt-make-fs -t ext4 -s +10M tree.tar made.img",
        &[Tree("made.img")],
    )
    .instead(
        "mkdir unpacked; tar -C unpacked -xf tree.tar; mke2fs -q -t ext4 -d unpacked made.img 32M",
    ),
    row(
        "virt-make-fs -t ext4 -F qcow2 --label root tree made.qcow2",
        &[
            Asked(
                "qemu-img convert -f qcow2 -O raw made.qcow2 raw.img; \
                 dumpe2fs -h raw.img | grep '^Filesystem volume name'",
                whole,
            ),
            Tree("raw.img"),
        ],
    )
    .instead(
        "mke2fs -q -t ext4 -L root -d tree plain 32M; qemu-img convert -O qcow2 plain made.qcow2",
    ),
    row("virt-sparsify --in-place disk.img", GIVEN_BACK).instead("linux 'fstrim .'"),
    row(
        "virt-sparsify disk.img small.qcow2 --convert qcow2",
        &[
            Asked(
                "qemu-img convert -f qcow2 -O raw small.qcow2 raw.img; du -k small.qcow2",
                takes_little,
            ),
            Tree("raw.img"),
        ],
    )
    .instead("linux 'fstrim .'; qemu-img convert -O qcow2 disk.img small.qcow2"),
    row(
        "virt-format -a disk.img --filesystem ext4 --partition=none",
        &[Fields("disk.img", &[])],
    )
    .instead("mke2fs -q -F -t ext4 disk.img"),
    row(
        "guestmount -a disk.img -m /dev/sda mnt; cat mnt/etc/hostname; guestunmount mnt",
        &[Output],
    )
    .instead("linux 'cat etc/hostname'"),
    row(
        "guestmount -a whole.img -m /dev/sda2 --ro mnt; cat mnt/etc/hostname; guestunmount mnt",
        &[Output],
    )
    .instead("mount -o loop,ro,offset=2097152 whole.img mnt; cat mnt/etc/hostname; umount mnt"),
    nothing("virt-resize --expand /dev/sda2 whole.img larger.img"),
    nothing("virt-inspector -a disk.img"),
    nothing("virt-customize -a disk.img --install vim"),
    nothing("virt-sysprep -a disk.img"),
    nothing("virt-rescue -a disk.img"),
];

#[test]
fn what_was_typed_for_guestfish_and_what_is_typed_now_do_the_same() {
    require!(Root, LoopDevices, KernelExt4, Fuse);
    let all = [DISKS, IN_AND_OUT, LOOKING, CHANGING, VIRT];
    judge_page("from-guestfish.md", &all, false);
}

/// Commands of guestfish with the least and the largest number of arguments, as guestfish(1) of
/// libguestfs 1.48 lists them; names of options in front of a colon do not count.
const COMMANDS: &[(&str, usize, usize)] = &[
    ("acl-get-file", 2, 2),
    ("acl-set-file", 3, 3),
    ("add", 1, 1),
    ("base64-out", 2, 2),
    ("blkid", 1, 1),
    ("cat", 1, 1),
    ("checksum", 2, 2),
    ("checksums-out", 3, 3),
    ("chmod", 2, 2),
    ("chown", 3, 3),
    ("command", 1, 1),
    ("copy-in", 2, usize::MAX),
    ("copy-out", 2, usize::MAX),
    ("cp", 2, 2),
    ("cp-a", 2, 2),
    ("df", 0, 0),
    ("disk-create", 3, 3),
    ("disk-format", 1, 1),
    ("download", 2, 2),
    ("download-inode", 3, 3),
    ("du", 1, 1),
    ("e2fsck", 1, 1),
    ("e2fsck-f", 1, 1),
    ("edit", 1, 1),
    ("egrep", 2, 2),
    ("equal", 2, 2),
    ("exists", 1, 1),
    ("extlinux", 1, 1),
    ("fallocate64", 2, 2),
    ("file", 1, 1),
    ("filesize", 1, 1),
    ("filesystem-walk", 1, 1),
    ("find", 1, 1),
    ("find-inode", 2, 2),
    ("find0", 2, 2),
    ("fstrim", 1, 1),
    ("get-e2attrs", 1, 1),
    ("getxattr", 2, 2),
    ("getxattrs", 1, 1),
    ("glob", 2, usize::MAX),
    ("glob-expand", 1, 1),
    ("grep", 2, 2),
    ("head-n", 2, 2),
    ("hexdump", 1, 1),
    ("inspect-get-distro", 1, 1),
    ("inspect-get-hostname", 1, 1),
    ("inspect-list-applications", 1, 1),
    ("inspect-os", 0, 0),
    ("is-dir", 1, 1),
    ("is-symlink", 1, 1),
    ("journal-open", 1, 1),
    ("list-devices", 0, 0),
    ("list-filesystems", 0, 0),
    ("list-partitions", 0, 0),
    ("ll", 1, 1),
    ("ln", 2, 2),
    ("ln-s", 2, 2),
    ("ln-sf", 2, 2),
    ("ls", 1, 1),
    ("lstatns", 1, 1),
    ("luks-open", 2, 2),
    ("lvs", 0, 0),
    ("mkdir", 1, 1),
    ("mkdir-mode", 2, 2),
    ("mkdir-p", 1, 1),
    ("mkfifo", 2, 2),
    ("mkfs", 2, 2),
    ("mknod-b", 4, 4),
    ("mknod-c", 4, 4),
    ("mount", 2, 2),
    ("mount-ro", 2, 2),
    ("mv", 2, 2),
    ("part-add", 4, 4),
    ("part-disk", 2, 2),
    ("part-get-name", 2, 2),
    ("part-get-parttype", 1, 1),
    ("part-init", 2, 2),
    ("part-list", 1, 1),
    ("part-resize", 3, 3),
    ("pread", 3, 3),
    ("pwrite", 3, 3),
    ("readlink", 1, 1),
    ("removexattr", 2, 2),
    ("rename", 2, 2),
    ("resize2fs-M", 1, 1),
    ("resize2fs-size", 2, 2),
    ("rm", 1, 1),
    ("rm-f", 1, 1),
    ("rm-rf", 1, 1),
    ("rmdir", 1, 1),
    ("run", 0, 0),
    ("selinux-relabel", 2, 2),
    ("set-e2attrs", 2, 2),
    ("set-label", 2, 2),
    ("set-uuid", 2, 2),
    ("setxattr", 4, 4),
    ("sh", 1, 1),
    ("statvfs", 1, 1),
    ("strings", 1, 1),
    ("sync", 0, 0),
    ("tail-n", 2, 2),
    ("tar-in", 2, 2),
    ("tar-out", 2, 2),
    ("tgz-in", 2, 2),
    ("tgz-out", 2, 2),
    ("touch", 1, 1),
    ("truncate", 1, 1),
    ("truncate-size", 2, 2),
    ("tune2fs", 1, 1),
    ("tune2fs-l", 1, 1),
    ("umount-all", 0, 0),
    ("upload", 2, 2),
    ("utimens", 5, 5),
    ("vfs-label", 1, 1),
    ("vfs-minimum-size", 1, 1),
    ("vfs-type", 1, 1),
    ("vfs-uuid", 1, 1),
    ("wc-l", 1, 1),
    ("write", 2, 2),
    ("write-append", 2, 2),
    ("zerofree", 1, 1),
];

/// Arguments that are optional: `name:value`.
const OPTIONAL: &[&str] = &[
    "blocksize",
    "clear",
    "correct",
    "intervalbetweenchecks",
    "label",
    "maxmountcount",
    "reservedblockspercentage",
];

/// Programs of libguestfs and guestfs-tools.
const PROGRAMS: &[&str] = &[
    "guestmount",
    "virt-cat",
    "virt-copy-in",
    "virt-copy-out",
    "virt-customize",
    "virt-df",
    "virt-diff",
    "virt-edit",
    "virt-filesystems",
    "virt-format",
    "virt-inspector",
    "virt-ls",
    "virt-make-fs",
    "virt-rescue",
    "virt-resize",
    "virt-sparsify",
    "virt-sysprep",
    "virt-tail",
    "virt-tar-in",
    "virt-tar-out",
];

/// The words of a command line, in which one may stand between single quotes.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, piece) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(piece.to_owned());
        } else {
            words.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn left_sides_are_spelt_as_the_manual_of_guestfish_has_them() {
    let mut used = Vec::new();
    for row in rows("from-guestfish.md") {
        let words = words_of(&row.typed);
        let (name, rest) = words.split_first().unwrap();
        used.push(name.clone());
        if PROGRAMS.contains(&&**name) {
            continue;
        }
        let command = COMMANDS.iter().find(|(known, ..)| known == name);
        let (_, least, most) = command.unwrap_or_else(|| panic!("what is {name}?"));
        let is_optional = |word: &&String| {
            let name = word.split_once(':').map(|(name, _)| name);
            name.is_some_and(|name| OPTIONAL.contains(&name))
        };
        let count = rest.iter().filter(|word| !is_optional(word)).count();
        assert!((*least..=*most).contains(&count), "{}", row.typed);
    }
    let unused = COMMANDS
        .iter()
        .find(|(name, ..)| !used.iter().any(|u| u == name));
    assert_eq!(unused, None);
}
