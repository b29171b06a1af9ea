//! The system's log: the journal of systemd by its own protocol (systemd.journal-fields(7)), or
//! else what listens at `/dev/log` (syslog(3)).
//!
//! A message is one datagram, to a socket that is connected while the process may still do so.
//! Whoever reads it is not waited for.

use rustix::io::write;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::Level;

/// Where systemd listens for messages in its own form, and where every logging daemon does.
const JOURNAL: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
/// What messages are from.
const NAME: &str = "extant";
/// Severities of syslog(3).
const ERROR: u8 = 3;
const WARNING: u8 = 4;
/// `LOG_DAEMON` of syslog(3), as it is added to a severity.
const DAEMON: u8 = 3 << 3;
/// Bytes of a message that are passed on: a datagram that is too long for the socket is lost.
const LONGEST: usize = 16 << 10;

/// How messages are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Fields, each a line, or a name, a length and bytes.
    Journal,
    /// A number and a line.
    Syslog,
}

/// A connection to the system's log.
#[derive(Debug)]
pub(crate) struct SystemLog {
    socket: UnixDatagram,
    form: Form,
}

impl SystemLog {
    /// Connects to what there is; `None` where nothing listens.
    pub(crate) fn connect() -> Option<Self> {
        let at = |path: &str, form| Self::at(Path::new(path), form).ok();
        at(JOURNAL, Form::Journal).or_else(|| at(SYSLOG, Form::Syslog))
    }

    fn at(path: &Path, form: Form) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        // What cannot be taken now is lost: a mount does not wait for its log.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, form })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When nobody takes it.
    pub(crate) fn tell(&self, level: Level, message: &str) -> io::Result<()> {
        let message = beginning(message, LONGEST);
        let severity = if level == Level::ERROR {
            ERROR
        } else {
            WARNING
        };
        let datagram = match self.form {
            Form::Journal => fields(severity, message),
            Form::Syslog => line(severity, std::process::id(), message),
        };
        write(&self.socket, &datagram)?;
        Ok(())
    }
}

/// The whole characters at the beginning of a text that have at most so many bytes.
fn beginning(text: &str, most: usize) -> &str {
    let ends = (0..=most.min(text.len())).rev();
    let mut beginnings = ends.filter_map(|end| text.get(..end));
    beginnings.next().unwrap_or_default()
}

/// Puts a message as fields. The text, which may have lines, comes with its length before it.
fn fields(severity: u8, message: &str) -> Vec<u8> {
    let mut datagram = format!(
        "PRIORITY={severity}\nSYSLOG_IDENTIFIER={NAME}\nSYSLOG_FACILITY={}\nMESSAGE\n",
        DAEMON >> 3
    )
    .into_bytes();
    datagram.extend((message.len() as u64).to_le_bytes());
    datagram.extend(message.as_bytes());
    datagram.push(b'\n');
    datagram
}

/// Puts a message as a line of a process.
fn line(severity: u8, process: u32, message: &str) -> Vec<u8> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let message: String = message.chars().map(plain).collect();
    format!("<{}>{NAME}[{process}]: {message}", DAEMON + severity).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_datagram_in_the_form_that_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let heard = |form, message: &str| {
            let path = dir.path().join(format!("{form:?}"));
            let listener = UnixDatagram::bind(&path).unwrap();
            let log = SystemLog::at(&path, form).unwrap();
            log.tell(Level::WARN, message).unwrap();
            let mut said = vec![0; 64 << 10];
            let len = listener.recv(&mut said).unwrap();
            std::fs::remove_file(&path).unwrap();
            said[..len].to_vec()
        };
        let mut expected =
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=extant\nSYSLOG_FACILITY=3\nMESSAGE\n".to_vec();
        expected.extend(7_u64.to_le_bytes());
        expected.extend(b"one\ntwo\n");
        assert_eq!(heard(Form::Journal, "one\ntwo"), expected);
        let expected = format!("<28>extant[{}]: one two", std::process::id());
        assert_eq!(heard(Form::Syslog, "one\ntwo"), expected.as_bytes());
        // It ends between two characters.
        let long = "\u{e4}".repeat(LONGEST);
        let (journal, one) = (heard(Form::Journal, &long), heard(Form::Syslog, &long));
        assert!(journal.len() < LONGEST + 200 && one.len() < LONGEST + 200);
        assert!(String::from_utf8(one).is_ok());
    }

    #[test]
    fn a_message_that_is_too_long_ends_with_a_whole_character() {
        for (text, most, expected) in [
            ("", 0, ""),
            ("ab", 3, "ab"),
            ("ab", 2, "ab"),
            ("ab", 1, "a"),
            ("a\u{e4}", 3, "a\u{e4}"),
            ("a\u{e4}", 2, "a"),
            ("\u{1f600}", 3, ""),
        ] {
            assert_eq!(beginning(text, most), expected, "{text:?} of {most} bytes");
        }
    }

    #[test]
    fn a_log_that_nobody_reads_is_waited_for_by_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(SystemLog::at(&path, Form::Journal).is_err());
        let listener = UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::at(&path, Form::Journal).unwrap();
        // Until no more fits, and then without end.
        let taken = (0..100_000).take_while(|_| log.tell(Level::ERROR, "full").is_ok());
        assert!(taken.count() < 100_000);
        drop(listener);
        assert!(log.tell(Level::ERROR, "gone").is_err());
    }
}
