//! Partition tables made by others, and tables that lie.

use extant_blockdev::{
    BlockDevice, DeviceError, MemoryDevice, PartitionTable, PartitionType, SharedDevice, TableKind,
    list_partitions, open_partition,
};
use extant_testkit::rng::{Rng, seed_from_env};
use gptman::{GPT, GPTPartitionEntry};
use std::io::Cursor;
use std::sync::Arc;

/// The boot records that `sfdisk` writes for three primary partitions, the third of which is
/// extended and holds three logical ones: sector number, and bytes 446 to 512 of the sector.
const SFDISK_MBR: [(usize, &str); 4] = [
    (
        0,
        "8020210083a22200000800000020000000c30400820504010030000000100000004606010f7f180700500000a08601000000000000000000000000000000000055aa",
    ),
    (
        20_480,
        "00662601830614020008000010270000000a0902054b09020030000000100000000000000000000000000000000000000000000000000000000000000000000055aa",
    ),
    (
        32_768,
        "002a2902834b09020008000000080000006b2a0205a833050048000050cb0000000000000000000000000000000000000000000000000000000000000000000055aa",
    ),
    (
        38_912,
        "008c0b0283a833050008000050c3000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000055aa",
    ),
];

/// What `sfdisk` says it wrote: number, first sector, sectors, type.
const SFDISK_SAYS: [(u32, u64, u64, u8); 6] = [
    (1, 2_048, 8_192, 0x83),
    (2, 12_288, 4_096, 0x82),
    (3, 20_480, 100_000, 0x0f),
    (5, 22_528, 10_000, 0x83),
    (6, 34_816, 2_048, 0x83),
    (7, 40_960, 50_000, 0x83),
];

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|two| std::str::from_utf8(two).expect("ascii"))
        .map(|two| u8::from_str_radix(two, 16).expect("hexadecimal"))
        .collect()
}

fn mbr_disk() -> Vec<u8> {
    let mut disk = vec![0; 64 << 20];
    for (sector, table) in SFDISK_MBR {
        disk[sector * 512 + 446..][..66].copy_from_slice(&unhex(table));
    }
    disk
}

fn gpt_disk(sector: u64) -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; 8 << 20]);
    let mut gpt = GPT::new_from(&mut disk, sector, [7; 16]).expect("an empty table");
    let entry = |first, last, name: &str| GPTPartitionEntry {
        partition_type_guid: [
            0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47,
            0x7d, 0xe4,
        ],
        unique_partition_guid: [first as u8; 16],
        starting_lba: first,
        ending_lba: last,
        attribute_bits: 0,
        partition_name: name.into(),
    };
    gpt[1] = entry(64, 127, "root ä");
    gpt[4] = entry(256, 999, "");
    GPT::write_protective_mbr_into(&mut disk, sector).expect("a protective record");
    gpt.write_into(&mut disk).expect("a table");
    disk.into_inner()
}

fn list(disk: &[u8]) -> Result<PartitionTable, DeviceError> {
    list_partitions(&MemoryDevice::from_image(disk))
}

#[test]
fn a_master_boot_record_lists_primary_and_logical_partitions() {
    let table = list(&mbr_disk()).expect("a table");
    assert_eq!(table.kind, TableKind::Mbr);
    let found: Vec<_> = table
        .partitions
        .iter()
        .map(|p| match p.kind {
            PartitionType::Byte(kind) => (p.number, p.start / 512, p.len / 512, kind),
            PartitionType::Guid(_) => panic!("an MBR has no GUIDs"),
        })
        .collect();
    assert_eq!(found, SFDISK_SAYS);
}

#[test]
fn a_gpt_is_read_with_either_sector_size() {
    for sector in [512, 4096] {
        let table = list(&gpt_disk(sector)).expect("a table");
        assert_eq!(
            (table.kind, u64::from(table.sector)),
            (TableKind::Gpt, sector)
        );
        assert!(!table.from_backup);
        let [root, data] = &table.partitions[..] else {
            panic!("two partitions")
        };
        assert_eq!(
            (root.number, root.start, root.len),
            (1, 64 * sector, 64 * sector)
        );
        assert_eq!(root.name.as_deref(), Some("root ä"));
        let linux = PartitionType::Guid("0fc63daf-8483-4772-8e79-3d69d8477de4".to_owned());
        assert_eq!(root.kind, linux);
        assert_eq!(
            (data.number, data.start, data.len),
            (4, 256 * sector, 744 * sector)
        );
        assert_eq!(data.name, None);
    }
}

#[test]
fn the_backup_stands_in_for_a_damaged_primary() {
    for sector in [512_usize, 4096] {
        let intact = list(&gpt_disk(sector as u64)).expect("a table");
        // The signature, a field under the checksum, an entry.
        for damage in [sector, sector + 72, 2 * sector + 33] {
            let mut disk = gpt_disk(sector as u64);
            disk[damage] ^= 0x40;
            let table = list(&disk).expect("a table from the backup");
            assert!(table.from_backup);
            assert_eq!(table.partitions, intact.partitions);
        }
    }
}

#[test]
fn a_gpt_damaged_in_both_places_says_so() {
    let mut disk = gpt_disk(512);
    let end = disk.len();
    disk[512 + 72] ^= 1;
    disk[end - 512 + 72] ^= 1;
    let text = list(&disk).expect_err("damaged").to_string();
    assert!(text.contains("GPT") && text.contains("checksum"), "{text}");
    disk[512..4096].fill(0);
    disk[end - 512..].fill(0);
    let text = list(&disk).expect_err("gone").to_string();
    assert!(text.contains("protective MBR"), "{text}");
}

#[test]
fn opening_a_partition_gives_its_bytes_only() {
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&mbr_disk()));
    device.write_at(34_816 * 512, b"logical").expect("a write");
    let window = open_partition(Arc::clone(&device), 6).expect("partition 6");
    assert_eq!((window.start(), window.size()), (34_816 * 512, 2_048 * 512));
    let mut got = [0; 7];
    window.read_at(0, &mut got).expect("a read");
    assert_eq!(&got, b"logical");
    let err = window
        .read_at(2_048 * 512, &mut [0])
        .expect_err("past the end");
    assert!(
        err.to_string().contains("partition 6 of the memory device"),
        "{err}"
    );
}

#[test]
fn a_missing_partition_is_answered_with_those_that_exist() {
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&gpt_disk(512)));
    let text = open_partition(device, 2)
        .expect_err("no such partition")
        .to_string();
    assert!(text.contains("no partition 2"), "{text}");
    assert!(text.contains("1 (32768 bytes from 32768), 4 ("), "{text}");
    let err = list(&vec![0; 1 << 20]).expect_err("no table");
    assert!(matches!(err, DeviceError::NoPartitionTable { .. }), "{err}");
    for size in [0, 1, 511, 512, 513] {
        assert!(list(&vec![0; size]).is_err());
    }
}

#[test]
fn a_partition_beyond_a_short_image_cannot_be_opened() {
    let mut disk = mbr_disk();
    disk.truncate(50_000 * 512);
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&disk));
    let err = open_partition(device, 7).expect_err("cut short");
    assert!(matches!(err, DeviceError::BadWindow { .. }));
    assert!(err.to_string().contains("partition 7"), "{err}");
}

#[test]
fn a_chain_of_logical_partitions_that_loops_ends() {
    let mut disk = mbr_disk();
    // The second record points to itself.
    disk[32_768 * 512 + 446 + 16 + 8..][..4].copy_from_slice(&12_288_u32.to_le_bytes());
    let text = list(&disk).expect_err("a loop").to_string();
    assert!(text.contains("chain of logical partitions"), "{text}");
    // And out of the extended partition.
    disk[32_768 * 512 + 446 + 16 + 8..][..4].copy_from_slice(&100_000_u32.to_le_bytes());
    let text = list(&disk).expect_err("out of bounds").to_string();
    assert!(text.contains("100000 sectors"), "{text}");
}

#[test]
fn damaged_tables_never_panic_and_never_read_far() {
    let seed = seed_from_env("damaged partition tables");
    let mut rng = Rng::new(seed);
    let disks = [
        (mbr_disk(), vec![0, 20_480, 32_768]),
        (gpt_disk(512), vec![0, 1, 2]),
    ];
    for (disk, sectors) in disks {
        let device = MemoryDevice::from_image(&disk);
        for _ in 0..3_000 {
            let sector = *rng.pick(&sectors) as u64 * 512;
            let mut saved = [0; 512];
            device.read_at(sector, &mut saved).expect("a read");
            let mut bad = saved;
            for _ in 0..rng.between(1, 4) {
                let at = rng.below(512) as usize;
                let byte = [0, 0xff, 0x80, rng.next_u64() as u8];
                bad[at] = *rng.pick(&byte);
            }
            if &bad[..8] == b"EFI PART" && rng.one_in(2) {
                bad[16..20].fill(0);
                let crc = crc32(&bad[..92]);
                bad[16..20].copy_from_slice(&crc.to_le_bytes());
            }
            device.write_at(sector, &bad).expect("a write");
            if let Ok(table) = list_partitions(&device) {
                assert!(table.partitions.len() <= 4_096);
            }
            device.write_at(sector, &saved).expect("a write");
        }
    }
}

/// The checksum of GPT headers, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    };
    !bytes.iter().fold(!0, step)
}
