# What the pages "you typed, now type" name: images, and files of the host.
set -e
uuid=11111111-2222-3333-4444-555555555555

mkdir -p tree/sub out mnt
echo myhost > hostname
echo green > tree/leaf
echo deep > tree/sub/deep
ln -s leaf tree/link
chmod 700 tree/sub
tar -C tree -cf tree.tar .
gzip -k tree.tar
printf '/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 0 0 -\n' > table
printf 'mkdir /srv/new\ncd /srv/new\nwrite hostname name\n' > commands
printf 'mkdir /srv/new\nput hostname /srv/new/name\n' > script

# Blocks of 1 KiB make several groups, and so backups of the superblock.
mke2fs -q -t ext4 -b 1024 -U $uuid -E hash_seed=$uuid -L data disk.img 64M 2> /dev/null
# The pages name inodes 13 and 14, and the block of 13, so they are made first.
echo box > box
seq 5000 > gone
printf 'mkdir /etc\nwrite box /etc/hostname\nwrite gone /etc/gone\n' |
    debugfs -w -f - disk.img > /dev/null 2>&1
rm box gone
mount -o loop disk.img mnt
trap 'umount mnt' EXIT
(
    cd mnt
    mkdir -p usr/bin usr/lib home/me var/log var/cache srv/many srv/empty dev tmp
    printf '127.0.0.1 localhost\n' > etc/hosts
    printf 'root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n' > etc/passwd
    printf 'root:x:0:\nme:x:1000:\n' > etc/group
    printf '# none\n' > etc/fstab
    echo ID=box > usr/lib/os-release
    ln -s ../usr/lib/os-release etc/os-release
    printf '#!/bin/sh\n' > usr/bin/tool
    ln usr/bin/tool usr/bin/again
    setfattr -n user.origin -v here usr/bin/tool
    seq 40000 > var/log/messages
    echo one > var/cache/a.bin
    echo two > var/cache/b.bin
    for i in $(seq 200); do echo "$i" > "srv/many/a-name-that-takes-some-room-$i"; done
    mknod dev/null c 1 3
    mkfifo dev/pipe
    truncate -s 1M srv/sparse
    printf x | dd of=srv/sparse bs=1 seek=500000 conv=notrunc status=none
    echo remember > home/me/notes
    chown -R 1000:1000 home/me
    seq 400000 > var/log/rotated
    find . -exec touch -h -d '2024-02-29 12:00:00' {} +
)
umount mnt
trap - EXIT
# tune2fs wants it checked since it was mounted. By itself it would write to the backups, too.
debugfs -w -R 'ssv lastcheck now' disk.img > /dev/null 2>&1
printf 'rm /var/log/rotated\nrm /etc/gone\n' | debugfs -w -f - disk.img > /dev/null 2>&1
place=$(debugfs -R 'blocks <13>' disk.img 2> /dev/null | tr -d ' \n')
test "$place" = 4386 || { echo "the block of <13> is $place, and not the one that the pages name"; exit 1; }

copy() { cp --sparse=always disk.img "$1"; }
copy old.img
copy new.img
debugfs -w -R 'write hostname /etc/added' new.img > /dev/null 2>&1
debugfs -w -R 'rm /etc/fstab' new.img 2> /dev/null
copy bad.img
debugfs -w -R 'sif /etc/hosts links_count 7' bad.img 2> /dev/null
copy lost.img
dd if=/dev/zero of=lost.img bs=1024 seek=1 count=1 conv=notrunc status=none
copy crashed.img
dd if=/dev/zero of=zeros bs=1024 count=1 status=none
printf 'jo\njw -b %s zeros\njc\n' "$place" | debugfs -w -f - crashed.img > /dev/null 2>&1
copy undone.img
tune2fs -z undo.e2undo -L other undone.img > /dev/null 2>&1

mke2fs -q -t ext4 -O quota -U $uuid -d tree quota.img 16M 2> /dev/null
mke2fs -q -t ext3 -b 1024 -I 128 -U $uuid -d tree ext3.img 16M 2> /dev/null

truncate -s 96M whole.img
sgdisk -n 1:2048:4095 -c 1:boot -n 2:4096:167935 -c 2:root whole.img > /dev/null
dd if=disk.img of=whole.img bs=1M seek=2 conv=notrunc,sparse status=none
qemu-img convert -O qcow2 disk.img disk.qcow2
printf '/.* system_u:object_r:default_t:s0\n/etc(/.*)? system_u:object_r:etc_t:s0\n' > contexts
