//! Leaders and followers, with periods that pass.

use extant_sync::{Leaders, LockClass, Rank};
use std::sync::mpsc;
use std::time::{Duration, Instant};

static LEADERS: LockClass = LockClass::new("test leaders", Rank::Leaf);
/// Far more than a period.
const LONG: Duration = Duration::from_millis(100);

/// Waits until so many threads rest.
fn until_resting(leaders: &Leaders, count: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    while leaders.resting() != count {
        assert!(Instant::now() < end, "{} rest", leaders.resting());
        std::thread::yield_now();
    }
}

/// Has `count` threads rest, which tell when they are to wait for work.
fn resting<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    leaders: &'scope Leaders,
    count: usize,
) -> mpsc::Receiver<()> {
    let (sender, called) = mpsc::channel();
    for _ in 0..count {
        let sender = sender.clone();
        let mut leader = leaders.join();
        scope.spawn(move || {
            assert!(leader.rest_if_another_waits());
            sender.send(()).unwrap();
            // The thread that works next finds none that rests.
            leader.took(None);
            std::mem::forget(leader);
        });
    }
    until_resting(leaders, count);
    called
}

#[test]
fn the_only_one_does_not_rest() {
    let leaders = Leaders::new(&LEADERS);
    let mut leader = leaders.join();
    assert!(!leader.rest_if_another_waits());
    for _ in 0..100 {
        leader.took(Some(false));
        leader.did();
    }
    assert!(!leader.rest_if_another_waits());
}

#[test]
fn those_who_rest_do_so_while_somebody_waits_for_work() {
    let leaders = Leaders::new(&LEADERS);
    std::thread::scope(|scope| {
        let mut leader = leaders.join();
        let called = resting(scope, &leaders, 2);
        assert!(called.recv_timeout(LONG).is_err());
        // Short work calls nobody.
        leader.took(Some(false));
        leader.did();
        assert!(called.recv_timeout(LONG).is_err());
        drop(leader);
        called.recv().unwrap();
        called.recv().unwrap();
    });
}

#[test]
fn those_who_rest_follow_one_after_the_other_who_do_not_come_back() {
    let leaders = Leaders::new(&LEADERS);
    std::thread::scope(|scope| {
        let mut leader = leaders.join();
        let called = resting(scope, &leaders, 3);
        leader.took(Some(false));
        for _ in 0..3 {
            called.recv().unwrap();
        }
        leader.did();
    });
}

#[test]
fn of_two_that_seldom_find_work_without_waiting_one_rests() {
    let leaders = Leaders::new(&LEADERS);
    std::thread::scope(|scope| {
        let other = leaders.join();
        let (sender, rested) = mpsc::channel();
        scope.spawn({
            let leaders = &leaders;
            move || {
                let mut leader = leaders.join();
                for n in 0..1000 {
                    leader.took(Some(n < 500));
                    leader.did();
                    sender.send(n).unwrap();
                }
            }
        });
        until_resting(&leaders, 1);
        let last = rested.try_iter().last().unwrap_or(0);
        assert!((500..600).contains(&last), "it went on until {last}");
        drop(other);
        assert_eq!(rested.iter().last(), Some(999));
    });
}
