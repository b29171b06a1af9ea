//! What went over a link.
//!
//! A *round trip* is a step of the longest chain of requests each of which was sent after the
//! answer to the one before had begun to arrive, connections and handshakes included. Requests that
//! are under way together are one round trip. The time that clients waited for a link is at least
//! its round trips.

/// What was counted, while it goes on.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The longest chain of which the last answer has begun to arrive.
    answered: u64,
    /// That of the first request beyond handshakes, without it.
    to_connect: Option<u64>,
    requests: u64,
    to_server: u64,
    to_client: u64,
    under_way: u64,
    most_under_way: u64,
    trouble: Option<String>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Round trips in a row, those that it takes to connect included.
    pub round_trips: u64,
    /// Round trips before the first request.
    pub to_connect: u64,
    /// Requests, without those of handshakes.
    pub requests: u64,
    /// Bytes to the server.
    pub to_server: u64,
    /// Bytes to clients.
    pub to_client: u64,
    /// Requests that were under way at once, at most.
    pub most_under_way: u64,
}

impl Ledger {
    /// A client connects: the chain that this ends.
    pub(super) fn connected(&self) -> u64 {
        self.answered + 1
    }

    /// A step of a handshake begins on a connection that ended the chain `base`: the chain that it
    /// ends.
    pub(super) fn greeted(&self, base: u64) -> u64 {
        self.answered.max(base) + 1
    }

    /// A request is sent on a connection that ended the chain `base`: the chain that it ends.
    pub(super) fn asked(&mut self, base: u64) -> u64 {
        let before = self.answered.max(base);
        self.to_connect.get_or_insert(before);
        self.requests += 1;
        self.under_way += 1;
        self.most_under_way = self.most_under_way.max(self.under_way);
        before + 1
    }

    /// The answer to what ends this chain begins to arrive.
    pub(super) fn answered(&mut self, chain: u64) {
        self.answered = self.answered.max(chain);
    }

    /// The answer to a request is complete, or the last part of it has begun to arrive.
    pub(super) fn done(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Bytes were carried.
    pub(super) fn carried(&mut self, bytes: usize, to_server: bool) {
        if to_server {
            self.to_server += bytes as u64;
        } else {
            self.to_client += bytes as u64;
        }
    }

    /// Something that makes the counts wrong. The first of it is told.
    pub(super) fn fail(&mut self, what: String) {
        self.trouble.get_or_insert(what);
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// What makes it wrong.
    pub(super) fn counts(&self) -> Result<Counts, String> {
        match &self.trouble {
            Some(what) => Err(format!("the link: {what}")),
            None => Ok(Counts {
                round_trips: self.answered,
                to_connect: self.to_connect.unwrap_or(self.answered),
                requests: self.requests,
                to_server: self.to_server,
                to_client: self.to_client,
                most_under_way: self.most_under_way,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_are_under_way_together_are_one_round_trip() {
        let mut ledger = Ledger::default();
        let base = ledger.connected();
        let chains: Vec<u64> = (0..5).map(|_| ledger.asked(base)).collect();
        for chain in chains {
            ledger.answered(chain);
            ledger.done();
        }
        let after = ledger.asked(base);
        ledger.answered(after);
        let counts = ledger.counts().expect("counted");
        assert_eq!((counts.round_trips, counts.to_connect), (3, 1));
        assert_eq!((counts.requests, counts.most_under_way), (6, 5));
    }

    #[test]
    fn a_late_answer_does_not_make_the_chain_longer() {
        let mut ledger = Ledger::default();
        let base = ledger.connected();
        let (quick, slow) = (ledger.asked(base), ledger.asked(base));
        ledger.answered(quick);
        let next = ledger.asked(base);
        ledger.answered(next);
        ledger.answered(slow);
        assert_eq!(ledger.counts().expect("counted").round_trips, 3);
    }

    #[test]
    fn a_connection_that_is_made_later_is_behind_what_was_answered_by_then() {
        let mut ledger = Ledger::default();
        let base = ledger.connected();
        let chain = ledger.asked(base);
        ledger.answered(chain);
        let base = ledger.connected();
        assert_eq!((chain, base, ledger.asked(base)), (2, 3, 4));
    }

    #[test]
    fn counts_that_are_wrong_are_told() {
        let mut ledger = Ledger::default();
        ledger.fail("first".to_owned());
        ledger.fail("second".to_owned());
        assert_eq!(ledger.counts(), Err("the link: first".to_owned()));
    }
}
