//! Servers that do not keep to the protocol: an error, in bounded time and memory.

use super::fake::{
    ALL, Asked, Listener, chunk, handshake, handshake_with, option_reply, request, take,
};
use extant_blockdev::{BlockDevice, NbdDevice, NbdOptions};
use std::io::{Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SIZE: u64 = 1 << 20;

fn options() -> NbdOptions {
    NbdOptions::read_write()
        .connect_timeout(Duration::from_millis(500))
        .answer_timeout(Duration::from_millis(300))
        .reconnect_for(Duration::ZERO)
}

/// A server that answers the first request of each connection in this way, after a right handshake.
fn answers(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Listener {
    Listener::new(move |mut stream| {
        handshake(&mut stream, SIZE, ALL)?;
        loop {
            let asked = request(&mut stream)?;
            stream.write_all(&answer(&asked))?;
        }
    })
}

/// Reads 4 KiB at 8 KiB, which must fail soon. Returns what is said.
fn read_fails(listener: &Listener) -> String {
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    let began = Instant::now();
    let error = device
        .read_at(8192, &mut [0; 4096])
        .expect_err("it is wrong");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    error.to_string()
}

fn refused(talk: impl Fn(UnixStream) -> Result<()> + Send + Sync + 'static) -> String {
    let listener = Listener::new(talk);
    let began = Instant::now();
    let error = NbdDevice::connect(&listener.address, options()).expect_err("it is wrong");
    assert!(began.elapsed() < Duration::from_secs(3));
    error.to_string()
}

fn data(offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&offset.to_be_bytes()[..], bytes].concat()
}

#[test]
fn replies_that_cannot_be_are_errors() {
    type Wrong = (&'static str, fn(&Asked) -> Vec<u8>);
    let wrong: [Wrong; 19] = [
        ("begins with a wrong number", |_| vec![0x55; 64]),
        ("what was not asked", |asked| {
            chunk(1, 1, asked.cookie + 1, &data(8192, &[1; 4096]))
        }),
        ("lies outside", |asked| {
            chunk(1, 1, asked.cookie, &data(4096, &[1; 4096]))
        }),
        ("lies outside", |asked| {
            chunk(1, 1, asked.cookie, &data(8193, &[1; 4096]))
        }),
        ("lies outside", |asked| {
            chunk(1, 1, asked.cookie, &data(0, &[1; 4096]))
        }),
        ("lies outside", |asked| {
            chunk(1, 1, asked.cookie, &data(u64::MAX, &[1; 4096]))
        }),
        ("lies outside", |asked| {
            chunk(0, 1, asked.cookie, &data(8192, &[1; 1 << 20]))
        }),
        ("lacks some", |asked| {
            chunk(1, 1, asked.cookie, &data(8192, &[1; 4095]))
        }),
        ("lacks some", |asked| chunk(1, 0, asked.cookie, &[])),
        ("does not fit", |asked| {
            chunk(1, 1, asked.cookie, &data(8192, &[]))
        }),
        ("does not fit", |asked| chunk(0, 0, asked.cookie, &[])),
        ("does not fit", |asked| chunk(1, 77, asked.cookie, &[])),
        ("does not fit", |asked| {
            chunk(1, 2, asked.cookie, &data(8192, &[0, 0, 16, 0, 0]))
        }),
        ("lies outside", |asked| {
            chunk(1, 2, asked.cookie, &data(8192, &[0, 0, 0, 0]))
        }),
        ("lies outside", |asked| {
            chunk(1, 2, asked.cookie, &data(8192, &[0, 1, 0, 0]))
        }),
        ("an error without a number", |asked| {
            chunk(1, 0x8001, asked.cookie, &[0; 6])
        }),
        ("an error of a wrong length", |asked| {
            chunk(1, 0x8001, asked.cookie, &[0, 0, 0, 5, 0, 9])
        }),
        ("an error of a wrong length", |asked| {
            chunk(1, 0x8001, asked.cookie, &[0, 0])
        }),
        ("in the simple way", |asked| {
            let head = [0x6744_6698_u32.to_be_bytes(), [0; 4]].concat();
            [&head[..], &asked.cookie.to_be_bytes(), &[1; 4096]].concat()
        }),
    ];
    for (number, (what, answer)) in wrong.into_iter().enumerate() {
        let said = read_fails(&answers(answer));
        assert!(said.contains(what), "case {number}: {said}");
    }
}

#[test]
fn bytes_that_come_twice_are_an_error() {
    let said = read_fails(&answers(|asked| {
        let first = chunk(0, 1, asked.cookie, &data(8192, &[1; 4096]));
        let second = chunk(1, 1, asked.cookie, &data(8200, &[2; 8]));
        [first, second].concat()
    }));
    assert!(said.contains("the same bytes come twice"), "{said}");
}

#[test]
fn a_reply_that_does_not_end_is_an_error() {
    let said = read_fails(&answers(|asked| {
        let error = chunk(0, 0x8001, asked.cookie, &[0, 0, 0, 5, 0, 0]);
        error.repeat(1000)
    }));
    assert!(said.contains("does not end"), "{said}");
    // A long range is no reason for a long reply where no data comes.
    let listener = answers(|asked| {
        let text = [&[0, 0, 0, 5, 0x0f, 0xa0][..], &[b'x'; 4000]].concat();
        chunk(0, 0x8001, asked.cookie, &text).repeat(80)
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    let said = device.discard(0, SIZE).expect_err("wrong").to_string();
    assert!(said.contains("does not end"), "{said}");
}

#[test]
fn an_error_of_many_words_is_none() {
    let said = read_fails(&answers(|asked| {
        let text = [&[0, 0, 0, 5, 0xff, 0xff][..], &[b'x'; 0xffff]].concat();
        chunk(1, 0x8001, asked.cookie, &text)
    }));
    assert!(said.contains("an error of a wrong length"), "{said}");
}

#[test]
fn a_chunk_of_four_gigabytes_takes_no_memory() {
    for kind in [1, 5, 0x8001, 0x9999, 3] {
        let said = read_fails(&answers(move |asked| {
            let mut head = chunk(1, kind, asked.cookie, &data(8192, &[]));
            head[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
            head
        }));
        assert!(said.contains("protocol"), "{said}");
    }
}

#[test]
fn errors_of_the_server_are_told_in_its_words_without_control_characters() {
    let said = read_fails(&answers(|asked| {
        let text = "the disk\x1b[31m is\u{202e} gone\u{9b}".as_bytes();
        let error = [&[0, 0, 0, 5, 0, text.len() as u8][..], text].concat();
        chunk(1, 0x8001, asked.cookie, &error)
    }));
    assert!(
        said.contains("the server says: the disk[31m is gone"),
        "{said}"
    );
}

#[test]
fn chunks_in_any_order_and_holes_make_a_whole() {
    let listener = answers(|asked| {
        if asked.command != 0 {
            return chunk(1, 0, asked.cookie, &[]);
        }
        let at = asked.offset;
        let hole = [&(at + 1024).to_be_bytes()[..], &1024_u32.to_be_bytes()].concat();
        [
            chunk(0, 1, asked.cookie, &data(at + 2048, &[3; 2048])),
            chunk(0, 2, asked.cookie, &hole),
            chunk(0, 1, asked.cookie, &data(at, &[1; 1024])),
            chunk(1, 0, asked.cookie, &[]),
        ]
        .concat()
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    let mut buf = [9; 4096];
    device.read_at(8192, &mut buf).expect("it is right");
    assert_eq!(buf[..1024], [1; 1024]);
    assert_eq!(buf[1024..2048], [0; 1024]);
    assert_eq!(buf[2048..], [3; 2048]);
}

#[test]
fn extents_that_cannot_be_are_errors() {
    for (told, what) in [
        (vec![7, 0, 0], "extents that cannot be"),
        (vec![8, 4096, 0], "not asked for"),
        (vec![7, 4096], "wrong length"),
        (vec![7], "wrong length"),
        (vec![7, 1 << 20, 0, 1 << 20, 0], "extents that cannot be"),
    ] {
        let listener = answers(move |asked| {
            let told: Vec<u8> = told.iter().flat_map(|n: &u32| n.to_be_bytes()).collect();
            chunk(1, 5, asked.cookie, &told)
        });
        let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
        let said = device.next_data(0, SIZE).expect_err("wrong").to_string();
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn extents_of_single_bytes_are_no_reason_to_ask_for_ever() {
    for flags in [0, 3] {
        let questions = Arc::new(AtomicUsize::new(0));
        let asked_for = Arc::clone(&questions);
        let listener = answers(move |asked| {
            asked_for.fetch_add(1, Ordering::SeqCst);
            let told: Vec<u8> = [7, 1, flags]
                .into_iter()
                .flat_map(u32::to_be_bytes)
                .collect();
            chunk(1, 5, asked.cookie, &told)
        });
        let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
        let extents = device.data_extents(0..SIZE).expect("extents");
        // Nothing is known to be zero as a block.
        assert!(
            matches!(&extents[..], [all] if *all == (0..SIZE)),
            "{extents:?}"
        );
        let questions = questions.load(Ordering::SeqCst);
        assert!(questions as u64 <= SIZE / 4096, "{questions} questions");
    }
}

#[test]
fn limits_that_cannot_be_are_refused_and_odd_ones_are_kept() {
    for (size, blocks, what) in [
        (SIZE, [0, 4096, 1 << 20], "make no sense"),
        (SIZE, [3, 4096, 1 << 20], "make no sense"),
        (SIZE, [128 << 10, 128 << 10, 1 << 20], "make no sense"),
        (SIZE, [4096, 512, 1 << 20], "make no sense"),
        (SIZE, [512, 4000, 1 << 20], "make no sense"),
        (SIZE, [4096, 4096, 512], "make no sense"),
        (SIZE, [4096, 4096, 5000], "make no sense"),
        (SIZE, [512, 0, 1 << 20], "make no sense"),
        (SIZE + 1, [512, 4096, 1 << 20], "do not reach"),
        (u64::MAX, [1, 4096, 1 << 20], "which cannot be"),
        (1 << 63, [1, 4096, 1 << 20], "which cannot be"),
    ] {
        let said = refused(move |mut stream| handshake_with(&mut stream, size, ALL, Some(blocks)));
        assert!(said.contains(what), "{size} {blocks:?}: {said}");
    }
    for (size, blocks) in [
        (SIZE, [64 << 10, 1 << 31, u32::MAX]),
        (SIZE, [1, 1, 1]),
        ((1 << 63) - 1, [1, 4096, u32::MAX]),
        (0, [64 << 10, 64 << 10, 64 << 10]),
    ] {
        let [smallest, _, largest] = blocks;
        let listener = Listener::new(move |mut stream| {
            handshake_with(&mut stream, size, ALL, Some(blocks))?;
            loop {
                let asked = request(&mut stream)?;
                let fits = asked.offset.is_multiple_of(smallest.into())
                    && asked.len.is_multiple_of(smallest)
                    && asked.len <= largest
                    && asked.len > 0;
                // It is silent about what it does not take.
                if !fits {
                    return stream.read_to_end(&mut Vec::new()).map(drop);
                }
                let answer = match asked.command {
                    0 => chunk(
                        1,
                        1,
                        asked.cookie,
                        &data(asked.offset, &vec![7; asked.len as usize]),
                    ),
                    _ => chunk(1, 0, asked.cookie, &[]),
                };
                stream.write_all(&answer)?;
            }
        });
        let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
        assert_eq!(device.size(), size);
        assert!((4096..=1 << 20).contains(&device.preferred_io()));
        let mut buf = vec![0; size.min(100) as usize];
        let at = size.saturating_sub(200);
        device.read_at(at, &mut buf).expect("a read");
        assert!(buf.iter().all(|byte| *byte == 7));
        device.write_at(at, &buf).expect("a write");
    }
}

#[test]
fn silence_and_trickles_end_in_time() {
    let silent = Listener::new(|mut stream| {
        handshake(&mut stream, SIZE, ALL)?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(drop)
    });
    let said = read_fails(&silent);
    assert!(said.contains("sent nothing for 0.3 seconds"), "{said}");
    // One byte now and then is a sign of life, and not an answer.
    let slow = Listener::new(|mut stream| {
        handshake(&mut stream, SIZE, ALL)?;
        let asked = request(&mut stream)?;
        for byte in chunk(1, 1, asked.cookie, &data(8192, &[1; 4096])) {
            stream.write_all(&[byte])?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
    let said = read_fails(&slow);
    assert!(said.contains("answer"), "{said}");
    let said = refused(|mut stream| {
        stream.write_all(b"NBDMAGIC")?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(drop)
    });
    assert!(said.contains("does not answer in time"), "{said}");
}

#[test]
fn a_server_that_takes_nothing_while_it_owes_nothing_ends_in_time() {
    let listener = Listener::new(|mut stream| {
        handshake(&mut stream, 1 << 30, ALL)?;
        std::thread::sleep(Duration::from_secs(10));
        drop(stream);
        Ok(())
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    let began = Instant::now();
    assert!(device.write_at(0, &vec![1; 64 << 20]).is_err());
    assert!(began.elapsed() < Duration::from_secs(8));
}

#[test]
fn what_is_asked_for_at_once_does_not_block_a_server_that_answers_in_order() {
    // It reads a request only when its last answer is taken; answers are as long as requests.
    let listener = Listener::new(|mut stream| {
        handshake(&mut stream, 64 << 20, ALL)?;
        loop {
            let asked = request(&mut stream)?;
            let answer = match asked.command {
                0 => chunk(
                    1,
                    1,
                    asked.cookie,
                    &data(asked.offset, &vec![7; asked.len as usize]),
                ),
                _ => chunk(1, 0, asked.cookie, &[]),
            };
            stream.write_all(&answer)?;
        }
    });
    let options = options().answer_timeout(Duration::from_secs(10));
    let device = NbdDevice::connect(&listener.address, options).expect("it opens");
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let device = &device;
            scope.spawn(move || {
                let mut buf = vec![0; 8 << 20];
                if thread % 2 == 0 {
                    device.write_at(thread << 23, &buf).expect("a write");
                } else {
                    device.read_at(thread << 23, &mut buf).expect("a read");
                    assert!(buf.iter().all(|byte| *byte == 7));
                }
            });
        }
    });
}

#[test]
fn greetings_and_options_that_cannot_be_are_refused_with_a_sentence() {
    let said = refused(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n"));
    assert!(said.contains("it is no NBD server"), "{said}");
    let said = refused(|mut stream| {
        stream.write_all(&[&b"NBDMAGIC"[..], &0x0000_4202_8186_1253_u64.to_be_bytes()].concat())?;
        stream.write_all(&[0; 136])
    });
    assert!(said.contains("old style"), "{said}");
    let greet = |stream: &mut UnixStream| -> Result<u32> {
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        take::<4>(stream)?;
        take::<8>(stream)?;
        Ok(u32::from_be_bytes(take(stream)?))
    };
    // A giant answer, one to another question, and answers for ever.
    let said = refused(move |mut stream| {
        let option = greet(&mut stream)?;
        let mut reply = option_reply(option, 3, &[]);
        reply[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        stream.write_all(&reply)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    assert!(said.contains("more than there can be"), "{said}");
    let said = refused(move |mut stream| {
        let option = greet(&mut stream)?;
        stream.write_all(&option_reply(option + 1, 1, &[]))?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    assert!(said.contains("answers what was not asked"), "{said}");
    let said = refused(move |mut stream| {
        let option = greet(&mut stream)?;
        loop {
            stream.write_all(&option_reply(option, 3, &[0, 9]))?;
        }
    });
    assert!(said.contains("does not come to an end"), "{said}");
    let said = refused(move |mut stream| handshake(&mut stream, u64::MAX, ALL));
    assert!(said.contains("which cannot be"), "{said}");
    for (code, what) in [
        (0x8000_0002_u32, "rules do not allow"),
        (0x8000_0005, "nbds://"),
        (0x8000_0006, "does not have the default export"),
        (0x8000_0007, "about to end"),
        (0x8000_0008, "limits"),
        (0x8000_0063, "unknown code"),
    ] {
        let said = refused(move |mut stream| {
            let option = greet(&mut stream)?;
            stream.write_all(&option_reply(option, code, b"because"))?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        });
        assert!(said.contains(what) && said.contains("because"), "{said}");
    }
}

#[test]
fn a_server_that_refuses_what_is_no_need_is_used_without() {
    for code in [0x8000_0001, 0x8000_0003, 0x8000_0004, 0x8000_0009] {
        for refused in [8_u32, 10] {
            let listener = Listener::new(move |mut stream| {
                stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
                take::<4>(&mut stream)?;
                loop {
                    take::<8>(&mut stream)?;
                    let option = u32::from_be_bytes(take(&mut stream)?);
                    let len = u32::from_be_bytes(take(&mut stream)?);
                    stream.read_exact(&mut vec![0; len as usize])?;
                    if option == refused {
                        stream.write_all(&option_reply(option, code, b"not here"))?;
                        continue;
                    }
                    if option == 7 {
                        let export = [&[0, 0][..], &SIZE.to_be_bytes(), &ALL.to_be_bytes()];
                        stream.write_all(&option_reply(option, 3, &export.concat()))?;
                    }
                    stream.write_all(&option_reply(option, 1, &[]))?;
                    if option == 7 {
                        break;
                    }
                }
                let asked = request(&mut stream)?;
                let answer = if refused == 8 {
                    let head = [0x6744_6698_u32, 0].map(u32::to_be_bytes).concat();
                    [&head[..], &asked.cookie.to_be_bytes(), &[7; 512]].concat()
                } else {
                    chunk(1, 1, asked.cookie, &data(asked.offset, &[7; 512]))
                };
                stream.write_all(&answer)
            });
            let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
            assert!(!device.knows_holes());
            let mut buf = [0; 512];
            device.read_at(512, &mut buf).expect("a read");
            assert_eq!(buf, [7; 512]);
        }
    }
}

/// A stream that ends after some bytes were written to it.
struct Short {
    stream: UnixStream,
    left: Arc<AtomicUsize>,
}

impl Read for Short {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.stream.read(buf)
    }
}

impl Write for Short {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let left = self.left.load(Ordering::SeqCst);
        let now = buf.len().min(left);
        self.left.store(left - now, Ordering::SeqCst);
        self.stream.write_all(&buf[..now])?;
        if now < buf.len() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(now)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_conversation_that_ends_at_any_byte_is_an_error_and_no_more() {
    // Of all connections together, so that trying again does not help.
    let talk = |left: &Arc<AtomicUsize>| {
        let left = Arc::clone(left);
        Listener::new(move |stream| {
            let mut stream = Short {
                stream,
                left: Arc::clone(&left),
            };
            handshake(&mut stream, SIZE, ALL)?;
            loop {
                let asked = request(&mut stream)?;
                let answer = match asked.command {
                    2 => return Ok(()),
                    0 => chunk(1, 1, asked.cookie, &data(asked.offset, &[4; 64])),
                    _ => chunk(1, 0, asked.cookie, &[]),
                };
                stream.write_all(&answer)?;
            }
        })
    };
    let converse = |listener: &Listener| -> std::result::Result<(), String> {
        let device = NbdDevice::connect(&listener.address, options()).map_err(|e| e.to_string())?;
        let mut buf = [0; 64];
        device.read_at(0, &mut buf).map_err(|e| e.to_string())?;
        assert_eq!(buf, [4; 64]);
        device.write_at(0, &buf).map_err(|e| e.to_string())?;
        device.flush().map_err(|e| e.to_string())
    };
    let whole = Arc::new(AtomicUsize::new(1 << 20));
    converse(&talk(&whole)).expect("all of it is right");
    let total = (1 << 20) - whole.load(Ordering::SeqCst);
    assert!((150..1000).contains(&total), "{total}");
    for bytes in 0..total {
        let listener = talk(&Arc::new(AtomicUsize::new(bytes)));
        let said = converse(&listener).expect_err("it ended early");
        assert!(!said.is_empty());
    }
}
