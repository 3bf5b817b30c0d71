//! Who runs next: places and memory, given out in turns between owners.
//!
//! ```text
//! enter --there is room and nobody waits--> Place
//!    \--no room--> waits in its owner's queue --its owner's turn, and it fits--> Place
//!    \--the queue is full--> Full
//! ```
//!
//! Whoever waits is served in the order of owners' turns, and of each owner in the order of asking: an owner with a hundred waiting gets one place, then
//! the others get theirs. What wants more memory than is free lets smaller ones of other owners pass for a while ([`MOST_PASSED`]), and after that none:
//! the memory that comes free is kept for it. A place goes back by being dropped, wherever that happens, also in a future that was given up.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ids::TenantId;

/// So often may others take memory past one that waits for more of it. With fewer a single large request would hold up everybody, with more it
/// would wait longer than they save.
const MOST_PASSED: u32 = 32;

/// Nobody more may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// How many do.
    pub(crate) waiting: usize,
}

/// Places and memory of a node. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Mutex<State>>);

struct State {
    places: usize,
    /// MiB.
    memory: u64,
    /// Only owners of whom somebody waits.
    queues: HashMap<TenantId, Queue>,
    /// Each of these owners once; the one whose turn it is first.
    turns: VecDeque<TenantId>,
    waiting: usize,
    next: u64,
}

#[derive(Default)]
struct Queue {
    waiters: VecDeque<Waiter>,
    /// How often others took memory while the first waited for it.
    passed: u32,
}

struct Waiter {
    number: u64,
    memory: u64,
    give: oneshot::Sender<Place>,
}

/// A place and the memory that goes with it, until it is dropped.
pub(crate) struct Place {
    admission: Admission,
    memory: u64,
}

/// A place, or the wait for one. Giving it up gives up the wait.
pub(crate) struct Entrance(Inner);

enum Inner {
    Now(Option<Place>),
    Later { _waiting: Waiting, place: Option<oneshot::Receiver<Place>> },
}

/// Leaves the queue when it goes.
struct Waiting {
    admission: Admission,
    owner: TenantId,
    number: u64,
}

type Given = Vec<(oneshot::Sender<Place>, Place)>;

impl Admission {
    /// So many places, and so many MiB of memory for those that ask for it.
    pub(crate) fn new(places: usize, memory: u64) -> Self {
        let (queues, turns) = (HashMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(State { places, memory, queues, turns, waiting: 0, next: 0 })))
    }

    /// How many places whoever asks next would find: none while somebody waits.
    pub(crate) fn free(&self) -> usize {
        let state = self.0.lock();
        if state.waiting == 0 { state.places } else { 0 }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().waiting
    }

    /// How many of an owner's wait.
    pub(crate) fn waiting_of(&self, owner: &TenantId) -> usize {
        self.0.lock().queues.get(owner).map_or(0, |queue| queue.waiters.len())
    }

    /// Asks for a place with `memory` MiB. At most `most` may wait; an owner that has less than its share of the queue is let in even then, so that none
    /// can keep the others out by filling it.
    ///
    /// # Errors
    /// When it would have to wait and must not.
    pub(crate) fn enter(&self, owner: &TenantId, memory: u64, most: usize) -> Result<Entrance, Full> {
        let mut state = self.0.lock();
        if state.waiting == 0 && state.places > 0 && state.memory >= memory {
            return Ok(Entrance(Inner::Now(Some(self.take(&mut state, memory)))));
        }
        if state.waiting >= most {
            let own = state.queues.get(owner).map_or(0, |queue| queue.waiters.len());
            let owners = state.queues.len() + usize::from(own == 0);
            if own >= most / owners {
                return Err(Full { waiting: state.waiting });
            }
        }
        let (give, place) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.waiting += 1;
        if !state.queues.contains_key(owner) {
            state.turns.push_back(owner.clone());
        }
        state.queues.entry(owner.clone()).or_default().waiters.push_back(Waiter { number, memory, give });
        // Others may wait for more memory than is free, and this one for less.
        let given = self.serve(&mut state);
        drop(state);
        hand_over(given);
        let waiting = Waiting { admission: self.clone(), owner: owner.clone(), number };
        Ok(Entrance(Inner::Later { _waiting: waiting, place: Some(place) }))
    }

    fn take(&self, state: &mut State, memory: u64) -> Place {
        state.places -= 1;
        state.memory -= memory;
        Place { admission: self.clone(), memory }
    }

    /// Takes out whoever can go on, in turns. They are told by [`hand_over`], once the lock is released.
    fn serve(&self, state: &mut State) -> Given {
        let mut given = Vec::new();
        while state.places > 0
            && let Some(turn) = state.next_turn()
        {
            let Some(owner) = state.turns.remove(turn) else { break };
            let Some(queue) = state.queues.get_mut(&owner) else { continue };
            let first = queue.waiters.pop_front();
            queue.passed = 0;
            if queue.waiters.is_empty() {
                state.queues.remove(&owner);
            } else {
                state.turns.push_back(owner);
            }
            let Some(Waiter { memory, give, .. }) = first else { continue };
            state.waiting -= 1;
            if memory > 0 {
                state.note_passed(turn);
            }
            given.push((give, self.take(state, memory)));
        }
        given
    }

    fn give_back(&self, memory: u64) {
        let mut state = self.0.lock();
        state.places += 1;
        state.memory += memory;
        let given = self.serve(&mut state);
        drop(state);
        hand_over(given);
    }

    fn leave(&self, owner: &TenantId, number: u64) {
        let mut state = self.0.lock();
        let Some(queue) = state.queues.get_mut(owner) else { return };
        let Some(position) = queue.waiters.iter().position(|waiter| waiter.number == number) else { return };
        queue.waiters.remove(position);
        if position == 0 {
            queue.passed = 0;
        }
        if queue.waiters.is_empty() {
            state.queues.remove(owner);
            state.turns.retain(|turn| turn != owner);
        }
        state.waiting -= 1;
        // It may have kept memory from those behind it.
        let given = self.serve(&mut state);
        drop(state);
        hand_over(given);
    }
}

/// Tells those who were served. One that has left by now drops its place, which goes to the next.
fn hand_over(given: Given) {
    for (give, place) in given {
        drop(give.send(place));
    }
}

impl State {
    /// The first owner in turn of whom the first in line fits.
    fn next_turn(&self) -> Option<usize> {
        // Kept for one that has been passed often enough.
        let mut kept = false;
        self.turns.iter().position(|owner| {
            let Some(queue) = self.queues.get(owner) else { return false };
            let Some(first) = queue.waiters.front() else { return false };
            // What takes no memory takes none away.
            let fits = first.memory == 0 || (first.memory <= self.memory && !kept);
            kept |= !fits && queue.passed >= MOST_PASSED;
            fits
        })
    }

    /// Somebody has taken memory past the owners before this turn.
    fn note_passed(&mut self, turn: usize) {
        for owner in self.turns.iter().take(turn) {
            if let Some(queue) = self.queues.get_mut(owner) {
                queue.passed += 1;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.give_back(self.memory);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.admission.leave(&self.owner, self.number);
    }
}

impl Future for Entrance {
    type Output = Place;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Place> {
        match &mut self.0 {
            Inner::Now(place) => place.take().map_or(Poll::Pending, Poll::Ready),
            Inner::Later { place: wanted, .. } => {
                let Some(place) = wanted else { return Poll::Pending };
                // The other end is in the queue for as long as this is here.
                let given = Pin::new(place).poll(context).map(|given| given.expect("a waiter is served"));
                if given.is_ready() {
                    *wanted = None;
                }
                given
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    const ANY: usize = usize::MAX;

    fn owner(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    fn place(entrance: &mut Entrance) -> Option<Place> {
        entrance.now_or_never()
    }

    #[test]
    fn a_place_is_taken_from_the_moment_it_is_asked_for() {
        let admission = Admission::new(2, 10);
        let first = admission.enter(&owner("a"), 1, 5).unwrap();
        assert_eq!(admission.free(), 1);
        let second = admission.enter(&owner("a"), 1, 5).unwrap();
        let third = admission.enter(&owner("a"), 1, 5).unwrap();
        assert_eq!(admission.free(), 0);
        drop((first, second, third));
        assert_eq!(admission.free(), 2);
    }

    #[test]
    fn with_room_nobody_waits() {
        let admission = Admission::new(2, 100);
        let mut first = admission.enter(&owner("a"), 60, 0).unwrap();
        assert!(place(&mut first).is_some_and(|place| place.memory == 60));
        let _kept = place(&mut admission.enter(&owner("a"), 60, 0).unwrap()).unwrap();
        assert_eq!(admission.enter(&owner("b"), 60, 0).err(), Some(Full { waiting: 0 }));
        assert!(admission.enter(&owner("b"), 40, 0).is_ok());
    }

    #[test]
    fn one_who_gives_up_leaves_nothing_behind() {
        let admission = Admission::new(1, 100);
        let held = place(&mut admission.enter(&owner("a"), 1, ANY).unwrap()).unwrap();
        let given_up = admission.enter(&owner("a"), 1, ANY).unwrap();
        let mut stays = admission.enter(&owner("b"), 1, ANY).unwrap();
        drop(given_up);
        assert_eq!(admission.waiting(), 1);
        drop(held);
        let got = place(&mut stays).unwrap();
        // Given a place, and gone before it took it.
        let unaware = admission.enter(&owner("a"), 1, ANY).unwrap();
        drop(got);
        assert_eq!(admission.waiting(), 0);
        drop(unaware);
        assert!(place(&mut admission.enter(&owner("a"), 100, 0).unwrap()).is_some());
    }

    #[test]
    fn one_owner_cannot_fill_the_queue_for_the_others() {
        let admission = Admission::new(1, 100);
        let _held = place(&mut admission.enter(&owner("a"), 1, ANY).unwrap()).unwrap();
        let _flood: Vec<_> = (0..10).map(|_| admission.enter(&owner("a"), 1, 10).unwrap()).collect();
        assert_eq!(admission.enter(&owner("a"), 1, 10).err(), Some(Full { waiting: 10 }));
        let others: Vec<_> = std::iter::from_fn(|| admission.enter(&owner("b"), 1, 10).ok()).collect();
        assert_eq!(others.len(), 5, "half of the queue is its share");
    }

    #[test]
    fn a_large_request_is_passed_for_a_while_and_then_served() {
        let admission = Admission::new(4, 100);
        let mut held: VecDeque<_> =
            (0..2).map(|_| place(&mut admission.enter(&owner("a"), 50, ANY).unwrap()).unwrap()).collect();
        let mut large = admission.enter(&owner("b"), 100, ANY).unwrap();
        let mut small: VecDeque<_> = (0..200).map(|_| admission.enter(&owner("a"), 50, ANY).unwrap()).collect();
        let mut passed = 0;
        let got = loop {
            held.pop_front();
            if let Some(got) = place(&mut large) {
                break got;
            }
            while let Some(next) = small.front_mut().and_then(place) {
                small.pop_front();
                held.push_back(next);
                passed += 1;
            }
        };
        assert_eq!((got.memory, passed), (100, MOST_PASSED));
        // A place without memory is not kept from anybody meanwhile.
        assert!(place(&mut admission.enter(&owner("c"), 0, ANY).unwrap()).is_some());
    }

    proptest! {
        #[test]
        fn whoever_has_one_waiting_waits_for_about_one_turn(
            places in 1_usize..5, flood in 1_usize..100, before in 0_usize..50, others in 0_usize..4,
        ) {
            let admission = Admission::new(places, 1000);
            let mut held: VecDeque<_> =
                (0..places).map(|_| place(&mut admission.enter(&owner("flood"), 1, ANY).unwrap()).unwrap()).collect();
            let mut waiting: Vec<_> = (0..flood).map(|_| admission.enter(&owner("flood"), 1, ANY).unwrap()).collect();
            for number in 0..others {
                waiting.push(admission.enter(&owner(&format!("other-{number}")), 1, ANY).unwrap());
            }
            let step = |held: &mut VecDeque<Place>, waiting: &mut Vec<Entrance>| {
                held.pop_front();
                for entrance in waiting.iter_mut() {
                    held.extend(place(entrance));
                }
            };
            for _ in 0..before {
                step(&mut held, &mut waiting);
            }
            let mut one = admission.enter(&owner("one"), 1, ANY).unwrap();
            let mut steps = 0;
            while place(&mut one).is_none() {
                step(&mut held, &mut waiting);
                steps += 1;
                prop_assert!(steps <= others + 2, "{steps} places came free before its turn");
            }
        }

        #[test]
        fn whatever_happens_all_comes_back(moves in prop::collection::vec((0_u8..4, 0_usize..3, 0_u64..40), 1..200)) {
            let admission = Admission::new(3, 100);
            let names = ["a", "b", "c"].map(owner);
            let (mut entrances, mut held) = (Vec::new(), Vec::new());
            for (what, number, memory) in moves {
                match what {
                    0 => entrances.extend(admission.enter(&names[number], memory, 20).ok()),
                    1 if !entrances.is_empty() => drop(entrances.swap_remove(number % entrances.len())),
                    2 if !held.is_empty() => drop(held.swap_remove(number % held.len())),
                    _ => held.extend(entrances.iter_mut().filter_map(place)),
                }
                let state = admission.0.lock();
                prop_assert!(state.places <= 3 && state.memory <= 100);
                let queued: usize = state.queues.values().map(|queue| queue.waiters.len()).sum();
                prop_assert_eq!((queued, state.turns.len()), (state.waiting, state.queues.len()));
                // Nobody waits who could go on.
                prop_assert!(state.places == 0 || state.next_turn().is_none());
            }
            drop((entrances, held));
            let state = admission.0.lock();
            prop_assert_eq!((state.places, state.memory, state.waiting), (3, 100, 0));
        }
    }
}
