//! Rounds of short messages: one to each peer and one from each, then the next round, as the ranks of a parallel program do.
//!
//! For `process`. Built on `uct-core`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::{AmId, Ep, Error, Iface};

const ROUND: AmId = AmId::new(3).unwrap();
/// Bytes of a message, its header included.
pub const SIZE: usize = 16;

/// One process in the rounds.
pub struct Rounds {
    index: usize,
    peers: Vec<Ep>,
    arrived: Rc<RefCell<Arrived>>,
    /// The rounds that are left.
    left: u64,
    round: u64,
    /// The first peer without a message in this round.
    next: usize,
    start: Instant,
}

/// What the handler counts.
struct Arrived {
    /// Messages of each process.
    of_each: Vec<u64>,
    /// Messages of the even and of the odd round: a peer is one round ahead at most.
    in_round: [usize; 2],
    problem: Option<String>,
}

impl Rounds {
    pub fn new(iface: &Iface, index: usize, count: usize) -> Rounds {
        let arrived =
            Rc::new(RefCell::new(Arrived { of_each: vec![0; count], in_round: [0; 2], problem: None }));
        let place = Rc::clone(&arrived);
        iface.set_am_handler(ROUND, move |message| {
            let header = message.header().unwrap_or(u64::MAX);
            place.borrow_mut().note(header, message.len());
        });
        Rounds { index, peers: Vec::new(), arrived, left: 0, round: 0, next: 0, start: Instant::now() }
    }

    /// Makes so many rounds with these peers from now on.
    pub fn start(&mut self, peers: Vec<Ep>, rounds: u64) {
        self.peers = peers;
        self.left = rounds;
        self.start = Instant::now();
    }

    /// Sends what there is room for. Returns the time that the rounds took when the last one is complete.
    pub fn advance(&mut self) -> Result<Option<Duration>, String> {
        let header = (self.index as u64) << 48 | self.round;
        while let Some(peer) = self.peers.get(self.next) {
            match peer.am_short(ROUND, header, &[0; SIZE - 8]) {
                Ok(()) => self.next += 1,
                Err(Error::NO_RESOURCE) => break,
                Err(error) => return Err(format!("{peer:?}: {error}")),
            }
        }
        let mut arrived = self.arrived.borrow_mut();
        if let Some(problem) = arrived.problem.take() {
            return Err(problem);
        }
        let in_round = &mut arrived.in_round[(self.round % 2) as usize];
        if self.next < self.peers.len() || *in_round < self.peers.len() {
            return Ok(None);
        }
        *in_round = 0;
        (self.next, self.round, self.left) = (0, self.round + 1, self.left - 1);
        Ok((self.left == 0).then(|| self.start.elapsed()))
    }
}

impl Arrived {
    fn note(&mut self, header: u64, length: usize) {
        let (sender, round) = ((header >> 48) as usize, header & ((1 << 48) - 1));
        match self.of_each.get_mut(sender) {
            Some(had) if *had == round && length == SIZE => {
                *had += 1;
                self.in_round[(round % 2) as usize] += 1;
            }
            _ => {
                let problem = format!("a message of round {round} of process {sender}, {length} bytes");
                self.problem.get_or_insert(problem);
            }
        }
    }
}
