//! Servers that die, and connections that break: what is told, and what is never lost.

use super::Running;
use super::fake::{ALL, Listener, MULTI, Moment, Mortal, chunk, handshake, request};
use extant_blockdev::{AlignedBuf, BlockDevice, DeviceError, NbdDevice, NbdOptions, Request};
use extant_testkit::rng::{Rng, seed_from_env};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

fn options() -> NbdOptions {
    NbdOptions::read_write()
        .connect_timeout(Duration::from_secs(5))
        .answer_timeout(Duration::from_secs(5))
        .reconnect_for(Duration::from_secs(5))
}

fn block(number: usize) -> Vec<u8> {
    vec![number as u8 % 255 + 1; BLOCK]
}

/// What a script was told.
#[derive(Default)]
struct Told {
    /// Blocks whose write was answered, and those that a flush has covered.
    written: Vec<usize>,
    durable: Vec<usize>,
    errors: usize,
}

impl Told {
    fn write(&mut self, device: &dyn BlockDevice, number: usize) {
        let at = (number * BLOCK) as u64;
        match device.write_at(at, &block(number)) {
            Ok(()) => self.written.push(number),
            Err(_) => self.errors += 1,
        }
    }

    fn flush(&mut self, device: &dyn BlockDevice) {
        match device.flush() {
            Ok(()) => self.durable.clone_from(&self.written),
            Err(_) => self.errors += 1,
        }
    }

    fn batch(&mut self, device: &dyn BlockDevice, numbers: [usize; 3]) {
        let write = |number: usize| {
            Request::write((number * BLOCK) as u64, AlignedBuf::copy_of(&block(number)))
        };
        let [a, b, c] = numbers;
        let batch = vec![write(a), write(b), Request::Flush, write(c), Request::Flush];
        let done = device.submit(batch).wait();
        let fine: Vec<bool> = done.iter().map(|done| done.result.is_ok()).collect();
        for (number, is_fine) in [(a, fine[0]), (b, fine[1])] {
            if is_fine {
                self.written.push(number);
            }
        }
        if fine[2] {
            self.durable.clone_from(&self.written);
        }
        if fine[3] {
            self.written.push(c);
        }
        if fine[4] {
            self.durable.clone_from(&self.written);
        }
        self.errors += fine.iter().filter(|is_fine| !**is_fine).count();
    }
}

/// Writes, reads and flushes, alone and in batches. Reads must be right while nothing was lost.
fn script(device: &dyn BlockDevice) -> Told {
    let mut told = Told::default();
    let mut buf = vec![0; BLOCK];
    let _ = device.read_at(0, &mut buf);
    told.flush(device);
    for number in 0..3 {
        told.write(device, number);
    }
    if told.errors == 0 && device.read_at(BLOCK as u64, &mut buf).is_ok() {
        assert!(buf == block(1), "a read shows what was written");
    }
    told.flush(device);
    told.write(device, 3);
    told.flush(device);
    told.batch(device, [4, 5, 6]);
    told.batch(device, [7, 8, 9]);
    told.write(device, 10);
    told.flush(device);
    told
}

fn check(told: &Told, durable: &[u8], context: &str) {
    for &number in &told.durable {
        let at = number * BLOCK;
        assert!(
            durable[at..at + BLOCK] == block(number)[..],
            "{context}: block {number} was acknowledged by a flush, and is lost"
        );
    }
}

#[test]
fn what_a_flush_acknowledged_is_there_whenever_the_server_dies() {
    let seed = seed_from_env("nbd server dies");
    let calm = Mortal::new(16 * BLOCK, ALL, None);
    let device = NbdDevice::connect(&calm.listener.address, options()).expect("it opens");
    let told = script(&device);
    assert_eq!((told.errors, told.durable.len()), (0, 11));
    check(&told, &calm.durable(), "calm");
    // Of each batch the last flush has nothing left to do.
    assert_eq!(calm.flushes(), 4 + 2);
    let requests = calm.requests();
    assert!(requests > 15, "{requests}");
    let mut without_error = 0;
    for moment in [Moment::BeforeDoing, Moment::BeforeAnswering] {
        for number in 0..requests {
            let context = format!("seed {seed:#x}, dies at request {number}, {moment:?}");
            let mortal = Mortal::new(16 * BLOCK, ALL, Some(Rng::new(seed ^ number as u64)));
            let device = NbdDevice::connect(&mortal.listener.address, options()).expect("it opens");
            mortal.dies_at(number, moment);
            let told = script(&device);
            assert_eq!(mortal.deaths(), 1, "{context}");
            check(&told, &mortal.durable(), &context);
            if told.errors == 0 {
                without_error += 1;
                assert_eq!(told.durable.len(), 11, "{context}");
            } else {
                // From then on nothing is promised.
                assert!(device.flush().is_err(), "{context}");
                assert!(device.write_at(0, &[1]).is_err(), "{context}");
                assert!(device.read_at(0, &mut [0]).is_err(), "{context}");
            }
        }
    }
    // The read before all changes is asked again.
    assert!(without_error >= 2, "{without_error} runs had no error");
}

#[test]
fn many_threads_on_several_connections_lose_nothing_that_a_flush_acknowledged() {
    let seed = seed_from_env("nbd server dies under threads");
    let mut rng = Rng::new(seed);
    const THREADS: usize = 4;
    const EACH: usize = 12;
    for round in 0..20 {
        let size = THREADS * EACH * BLOCK;
        let mortal = Mortal::new(size, ALL | MULTI, Some(Rng::new(rng.next_u64())));
        let device = NbdDevice::connect(&mortal.listener.address, options()).expect("it opens");
        let moment = *rng.pick(&[Moment::BeforeDoing, Moment::BeforeAnswering]);
        mortal.dies_at(rng.below(90) as usize, moment);
        let all: Vec<Told> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let device = &device;
                    scope.spawn(move || {
                        let mut told = Told::default();
                        for number in 0..EACH {
                            told.write(device, thread * EACH + number);
                            let mut buf = vec![0; BLOCK];
                            let _ = device.read_at(0, &mut buf);
                            if number % 3 == 2 {
                                told.flush(device);
                            }
                        }
                        told
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        for told in &all {
            check(
                told,
                &mortal.durable(),
                &format!("seed {seed:#x}, round {round}"),
            );
        }
    }
}

#[test]
fn a_server_that_starts_anew_while_nothing_is_unsaved_is_not_noticed() {
    let mortal = Mortal::new(16 * BLOCK, ALL, None);
    let device = NbdDevice::connect(&mortal.listener.address, options()).expect("it opens");
    for number in 0..8 {
        let mut told = Told::default();
        told.write(&device, number);
        told.flush(&device);
        assert_eq!(told.errors, 0);
        mortal.die_now();
    }
    let mut buf = vec![0; BLOCK];
    device.read_at(7 * BLOCK as u64, &mut buf).expect("a read");
    assert_eq!(buf, block(7));
    assert_eq!(mortal.deaths(), 8);
}

#[test]
fn changes_that_may_be_lost_fail_all_flushes_with_the_reason() {
    let mortal = Mortal::new(16 * BLOCK, ALL, Some(Rng::new(1)));
    let device = NbdDevice::connect(&mortal.listener.address, options()).expect("it opens");
    device.write_at(0, &block(0)).expect("a write");
    mortal.die_now();
    for _ in 0..2 {
        let error = device.flush().expect_err("it may be lost").to_string();
        assert!(
            error.contains("before everything that was written had been made durable")
                && error.contains("open the export again"),
            "{error}"
        );
    }
}

#[test]
fn another_export_in_the_place_of_the_first_is_refused() {
    let sizes = std::sync::atomic::AtomicU64::new(1 << 20);
    let listener = Listener::new(move |mut stream| {
        let size = sizes.fetch_add(512, Ordering::SeqCst);
        handshake(&mut stream, size, ALL)
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    let began = Instant::now();
    let error = device.read_at(0, &mut [0; 512]).expect_err("it is another");
    assert!(
        error.to_string().contains("1048576 bytes became 1049088"),
        "{error}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "it does not try on"
    );
    assert!(device.read_at(0, &mut [0; 512]).is_err(), "for good");
}

#[test]
fn a_server_that_stays_away_is_waited_for_as_long_as_said() {
    let mut running = Running::nbdkit(&["memory", "size=1M"]);
    let options = options().reconnect_for(Duration::from_millis(1500));
    let device = NbdDevice::connect(&running.address, options).expect("it opens");
    running.server.kill();
    let began = Instant::now();
    let error = device
        .read_at(0, &mut [0; 512])
        .expect_err("nobody is there");
    let took = began.elapsed();
    assert!(
        (Duration::from_millis(300)..Duration::from_secs(6)).contains(&took),
        "{took:?}"
    );
    assert!(error.to_string().contains("there is no other"), "{error}");
    // Then each request finds out quickly.
    let began = Instant::now();
    assert!(device.read_at(0, &mut [0; 512]).is_err());
    assert!(began.elapsed() < Duration::from_millis(1000));
}

#[test]
fn reads_wait_for_a_server_that_comes_back() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), block(5)).expect("content");
    let path = file.path().display().to_string();
    let mut running = Running::nbdkit(&["file", &path]);
    let device = NbdDevice::connect(&running.address, options()).expect("it opens");
    running.server.kill();
    let socket = running.dir.path().join("socket");
    let mut buf = vec![0; BLOCK];
    thread::scope(|scope| {
        let read = scope.spawn(|| device.read_at(0, &mut buf));
        thread::sleep(Duration::from_millis(300));
        std::fs::remove_file(&socket).expect("the old socket");
        let mut server = extant_testkit::tool::tool("nbdkit")
            .args(["-f", "-U"])
            .arg(&socket)
            .args(["file", &path])
            .background(&socket.with_file_name("log2"));
        server.wait_for_socket(&socket);
        let read = read.join().expect("no panic");
        assert!(read.is_ok(), "{read:?}");
    });
    assert!(buf == block(5));
}

#[test]
fn a_connection_that_was_given_is_the_only_one() {
    let running = Running::nbdkit(&["memory", "size=1M"]);
    let socket = running.dir.path().join("socket");
    let connect = || {
        std::os::unix::net::UnixStream::connect(&socket)
            .unwrap()
            .into()
    };
    let device = NbdDevice::connected(connect(), "what is served", options()).unwrap();
    assert_eq!(device.name(), "what is served");
    assert_eq!(device.address(), None);
    device.write_at(BLOCK as u64, &block(7)).unwrap();
    device.flush().unwrap();
    let mut found = block(0);
    device.read_at(BLOCK as u64, &mut found).unwrap();
    assert_eq!(found, block(7));
    // Nothing that may be lost: still there is no other way to it.
    drop(running);
    let begun = Instant::now();
    let error = device.read_at(0, &mut found).unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
    device.write_at(0, &block(1)).unwrap_err();
    device.flush().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(2));
    // At the other end of this one there is nobody.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(theirs);
    let error = NbdDevice::connected(ours.into(), "nothing", options()).unwrap_err();
    assert!(error.to_string().contains("nothing"), "{error}");
}

#[test]
fn all_requests_wait_together_for_a_server_that_stays_away() {
    const THREADS: usize = 12;
    // It takes connections and says nothing, after it has left the first one.
    let is_asleep = AtomicBool::new(false);
    let listener = Listener::new(move |mut stream| {
        if is_asleep.swap(true, Ordering::SeqCst) {
            return stream.read_to_end(&mut Vec::new()).map(drop);
        }
        handshake(&mut stream, 1 << 20, ALL)?;
        request(&mut stream)?;
        thread::sleep(Duration::from_millis(200));
        Ok(())
    });
    let options = options()
        .connect_timeout(Duration::from_millis(800))
        .reconnect_for(Duration::from_millis(800));
    let device = NbdDevice::connect(&listener.address, options).expect("it opens");
    let began = Instant::now();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                let at = (number * BLOCK) as u64;
                let error = device.read_at(at, &mut [0; BLOCK]).expect_err("it is away");
                assert!(error.to_string().contains("there is no other"), "{error}");
            });
        }
    });
    // One after the other they would take as often as long as one attempt.
    let took = began.elapsed();
    assert!(took < Duration::from_millis(800 * 5), "{took:?}");
}

/// A server that does one request after the other, and takes its time for flushes and for what is
/// to be durable at once, or for ever. Counts those that were begun.
fn slow_to_flush(flags: u16, takes: Option<Duration>) -> (Listener, Arc<AtomicUsize>) {
    let flushes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&flushes);
    let listener = Listener::new(move |mut stream| {
        handshake(&mut stream, 1 << 20, flags)?;
        loop {
            let asked = request(&mut stream)?;
            let is_durable = asked.command == 3 || asked.flags & 1 != 0;
            let answer = match asked.command {
                0 => {
                    let data = vec![7; asked.len as usize];
                    chunk(
                        1,
                        1,
                        asked.cookie,
                        &[&asked.offset.to_be_bytes()[..], &data].concat(),
                    )
                }
                _ if is_durable => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    match takes {
                        Some(takes) => thread::sleep(takes),
                        None => return stream.read_to_end(&mut Vec::new()).map(drop),
                    }
                    chunk(1, 0, asked.cookie, &[])
                }
                _ => chunk(1, 0, asked.cookie, &[]),
            };
            stream.write_all(&answer)?;
        }
    });
    (listener, flushes)
}

#[test]
fn a_flush_may_take_longer_than_other_answers() {
    let takes = Some(Duration::from_millis(1500));
    let options = options()
        .answer_timeout(Duration::from_millis(400))
        .flush_timeout(Duration::from_secs(20));
    // Without flushes each write is durable when it is answered.
    const FLUSH: u16 = 1 << 2;
    let (listener, durable) = slow_to_flush(ALL & !FLUSH, takes);
    let device = NbdDevice::connect(&listener.address, options.clone()).expect("it opens");
    device.write_at(0, &block(1)).expect("a write");
    assert_eq!(durable.load(Ordering::SeqCst), 1);
    let (listener, flushes) = slow_to_flush(ALL, takes);
    let device = NbdDevice::connect(&listener.address, options).expect("it opens");
    device.write_at(0, &block(1)).expect("a write");
    thread::scope(|scope| {
        let flush = scope.spawn(|| device.flush());
        thread::sleep(Duration::from_millis(100));
        // It is answered behind the flush, by a server that does not do both at a time.
        let read = scope.spawn(|| device.read_at(0, &mut [0; BLOCK]));
        assert!(matches!(flush.join(), Ok(Ok(()))));
        assert!(matches!(read.join(), Ok(Ok(()))));
    });
    assert_eq!(flushes.load(Ordering::SeqCst), 1);
}

#[test]
fn a_flush_that_is_not_answered_is_an_error_for_good_and_never_sent_again() {
    for writes in [true, false] {
        let (listener, flushes) = slow_to_flush(ALL, None);
        let options = options()
            .answer_timeout(Duration::from_millis(200))
            .flush_timeout(Duration::from_millis(900));
        let device = NbdDevice::connect(&listener.address, options).expect("it opens");
        if writes {
            device.write_at(0, &block(1)).expect("a write");
        }
        let began = Instant::now();
        let error = device.flush().expect_err("no answer").to_string();
        let took = began.elapsed();
        assert!(error.contains("sent nothing for 0.9 seconds"), "{error}");
        assert!(
            (Duration::from_millis(850)..Duration::from_secs(4)).contains(&took),
            "{took:?}"
        );
        let lost = "so that some of it may be lost: open the export again";
        let error = device.flush().expect_err("for good").to_string();
        assert!(error.contains(lost), "{error}");
        let error = device.read_at(0, &mut [0; 512]).expect_err("for good");
        assert!(error.to_string().contains(lost), "{error}");
        assert!(device.write_at(0, &[1; 512]).is_err());
        assert_eq!(flushes.load(Ordering::SeqCst), 1, "it is not asked again");
    }
}

#[test]
fn a_flush_after_one_that_failed_is_no_success() {
    // As a system does: it tells once that something could not be written.
    let failed = AtomicBool::new(false);
    let listener = Listener::new(move |mut stream| {
        handshake(&mut stream, 1 << 20, ALL)?;
        loop {
            let asked = request(&mut stream)?;
            let fails = asked.command == 3 && !failed.swap(true, Ordering::SeqCst);
            let answer = if fails {
                let text = b"a sector is bad";
                let error = [&[0, 0, 0, 5, 0, text.len() as u8][..], text].concat();
                chunk(1, 0x8001, asked.cookie, &error)
            } else {
                chunk(1, 0, asked.cookie, &[])
            };
            stream.write_all(&answer)?;
        }
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    device.write_at(0, &block(1)).expect("a write");
    let error = device.flush().expect_err("it fails").to_string();
    assert!(error.contains("a sector is bad"), "{error}");
    let error = device.flush().expect_err("it cannot be known").to_string();
    assert!(
        error.contains("did not make durable") && error.contains("a sector is bad"),
        "{error}"
    );
    assert!(device.write_at(0, &block(2)).is_err());
}

#[test]
fn a_flush_that_fails_in_a_batch_cancels_what_follows_it() {
    const LATE: u64 = 1 << 16;
    for is_far in [false, true] {
        let late = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&late);
        let listener = Listener::new(move |mut stream| {
            handshake(&mut stream, 1 << 20, ALL)?;
            loop {
                let asked = request(&mut stream)?;
                let answer = match asked.command {
                    0 => {
                        thread::sleep(Duration::from_millis(2));
                        let data = vec![7; asked.len as usize];
                        let data = [&asked.offset.to_be_bytes()[..], &data].concat();
                        chunk(1, 1, asked.cookie, &data)
                    }
                    // No space is left.
                    3 => chunk(1, 0x8001, asked.cookie, &[0, 0, 0, 28, 0, 0]),
                    _ => {
                        counted.fetch_add(usize::from(asked.offset >= LATE), Ordering::SeqCst);
                        chunk(1, 0, asked.cookie, &[])
                    }
                };
                stream.write_all(&answer)?;
            }
        });
        let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
        if is_far {
            device.read_at(0, &mut [0; 512]).expect("a read");
        }
        assert_eq!(device.in_flight() > 1, is_far);
        device.write_at(512, &[1; 512]).expect("a write");
        let write = |at| Request::write(at, AlignedBuf::zeroed(512));
        let batch = vec![write(4096), Request::Flush, write(LATE), Request::Flush];
        let done = device.submit(batch).wait();
        assert!(done[0].result.is_ok(), "{:?}", done[0].result);
        assert!(matches!(&done[1].result, Err(e) if e.errno() == 28));
        for after in &done[2..] {
            assert!(
                matches!(after.result, Err(DeviceError::Cancelled)),
                "{:?}",
                after.result
            );
        }
        assert_eq!(late.load(Ordering::SeqCst), 0, "it is not sent");
    }
}

#[test]
fn a_server_that_took_no_further_connection_is_asked_again_when_it_is_back() {
    // At most one client before it starts anew, then as many as come.
    let takes_more = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicUsize::new(0));
    let clients = Arc::new(AtomicUsize::new(0));
    let listener = {
        let (takes_more, refused) = (Arc::clone(&takes_more), Arc::clone(&refused));
        let clients = Arc::clone(&clients);
        Listener::new(move |mut stream| {
            let number = clients.fetch_add(1, Ordering::SeqCst) + 1;
            if number > 1 && !takes_more.load(Ordering::SeqCst) {
                refused.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            handshake(&mut stream, 1 << 20, ALL | MULTI)?;
            loop {
                let asked = request(&mut stream)?;
                // The first read at this place ends the first server.
                if asked.offset == 512 << 10 && !takes_more.swap(true, Ordering::SeqCst) {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(40));
                let data = vec![7; asked.len as usize];
                let data = [&asked.offset.to_be_bytes()[..], &data].concat();
                stream.write_all(&chunk(1, 1, asked.cookie, &data))?;
            }
        })
    };
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    let read_together = || {
        thread::scope(|scope| {
            for number in 0..8 {
                let device = &device;
                scope.spawn(move || {
                    device
                        .read_at(number << 12, &mut [0; BLOCK])
                        .expect("a read");
                });
            }
        });
    };
    read_together();
    read_together();
    assert_eq!(refused.load(Ordering::SeqCst), 1, "not for each request");
    assert!(device.read_at(512 << 10, &mut [0; BLOCK]).is_ok());
    let before = clients.load(Ordering::SeqCst);
    read_together();
    assert!(clients.load(Ordering::SeqCst) > before, "more are made");
}

#[test]
fn limits_without_end_are_limits() {
    let mortal = Mortal::new(16 * BLOCK, ALL, None);
    let options = options()
        .connect_timeout(Duration::MAX)
        .answer_timeout(Duration::MAX)
        .flush_timeout(Duration::MAX)
        .reconnect_for(Duration::MAX);
    let device = NbdDevice::connect(&mortal.listener.address, options).expect("it opens");
    let mut told = Told::default();
    told.write(&device, 1);
    told.flush(&device);
    mortal.die_now();
    told.write(&device, 2);
    assert_eq!(told.errors, 0);
}
