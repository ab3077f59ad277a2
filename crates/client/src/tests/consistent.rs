//! The core's invariants, checked from inside.

use crate::core::ClientCore;
use crate::link::{Link, LinkState};
use crate::request::NO_LINK;

impl ClientCore {
    /// Panics if a part is in no place or in two, or a count does not hold.
    pub(crate) fn assert_consistent(&self) {
        let mut in_flight = vec![(0, 0); self.links.len()];
        let mut parts_of = vec![0; self.requests.len()];
        for number in self.window.numbers() {
            let Some(part) = self.window.peek(number) else { continue };
            parts_of[part.request as usize] += 1;
            let parked = self.parked.iter().filter(|parked| parked.number == number).count();
            assert_eq!(parked, usize::from(part.parked), "part {number} is parked as often as it says");
            let waits: Vec<usize> =
                (0..self.links.len()).filter(|link| self.links[*link].unsent.contains(&number)).collect();
            if part.parked || part.in_flight {
                assert!(!(part.parked && part.in_flight), "part {number} is in one place");
                assert_eq!(waits, [0; 0], "part {number} is in one place");
            }
            if part.in_flight {
                let counted = &mut in_flight[part.link as usize];
                *counted = (counted.0 + 1, counted.1 + u64::from(part.length_bytes));
                assert_eq!(
                    self.links[part.link as usize].state,
                    LinkState::Ready,
                    "part {number} is on its way"
                );
            } else if !part.parked {
                assert_ne!(part.link, NO_LINK, "part {number} is somewhere");
                let link = &self.links[part.link as usize];
                assert_ne!(link.state, LinkState::Idle, "part {number} waits for a link that is wanted");
                assert!(waits.iter().all(|at| *at == part.link as usize), "part {number} waits at its link");
                let is_ready = link.state == LinkState::Ready;
                assert!(!is_ready || waits.len() == 1, "part {number} is lost");
            }
        }
        for (index, request) in self.requests.iter().enumerate() {
            let is_landing = |link: &&Link| {
                let part = link.landing.number().and_then(|number| self.window.peek(number));
                part.is_some_and(|part| part.request as usize == index)
            };
            if request.as_ref().is_some_and(|request| request.buffer.is_lent()) {
                assert_eq!(
                    self.links.iter().filter(is_landing).count(),
                    1,
                    "a buffer is lent for one answer"
                );
            }
        }
        for (index, link) in self.links.iter().enumerate() {
            let counted = (link.in_flight, link.in_flight_bytes);
            assert_eq!(counted, in_flight[index], "link {index} counts what is in flight");
            let mut unsent: Vec<u64> = link.unsent.iter().copied().collect();
            assert!(
                unsent.iter().all(|number| self.window.peek(*number).is_some()),
                "nothing answered waits"
            );
            unsent.sort_unstable();
            unsent.dedup();
            assert_eq!(unsent.len(), link.unsent.len(), "nothing waits twice");
        }
        for (index, request) in self.requests.iter().enumerate() {
            let outstanding = request.as_ref().map_or(0, |request| request.parts_outstanding);
            assert_eq!(outstanding, parts_of[index], "request {index} counts its parts");
        }
        assert!(
            self.parked.iter().all(|parked| self.window.peek(parked.number).is_some()),
            "nothing answered is parked"
        );
    }
}
