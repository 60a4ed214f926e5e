//! What waits for the coordinator's next turn: what coordinators say apart from what nodes and operators do, so
//! that neither votes nor the log wait behind requests, however many there are.
//!
//! Both are bounded; whoever has more to say waits, and with it its link.

use crate::coordinator::Event;

/// What may wait of coordinators, and of nodes and operators.
const COORDINATORS_MAX: usize = 1024;
const REQUESTS_MAX: usize = 4096;

/// Where events go: of coordinators, and of nodes and operators.
#[derive(Clone, Debug)]
pub struct Senders(pub flume::Sender<Event>, pub flume::Sender<Event>);

/// The other end.
#[derive(Debug)]
pub struct Inbox {
    coordinators: flume::Receiver<Event>,
    requests: flume::Receiver<Event>,
}

/// An empty inbox.
#[must_use]
pub fn inbox() -> (Senders, Inbox) {
    let (to_coordinators, coordinators) = flume::bounded(COORDINATORS_MAX);
    let (to_requests, requests) = flume::bounded(REQUESTS_MAX);
    let inbox = Inbox {
        coordinators,
        requests,
    };
    (Senders(to_coordinators, to_requests), inbox)
}

impl Inbox {
    /// How much waits that could be taken.
    #[must_use]
    pub fn waiting(&self, room: usize) -> usize {
        self.coordinators.len() + self.requests.len().min(room)
    }

    /// What is there: all of coordinators, then of nodes and operators what there is [room](crate::Coordinator::room)
    /// for, or a little more: a request is taken as a whole.
    #[must_use]
    pub fn take(&self, room: usize) -> Vec<Event> {
        let mut events: Vec<Event> = self.coordinators.try_iter().collect();
        let mut taken = 0;
        while taken < room
            && let Ok(event) = self.requests.try_recv()
        {
            taken += event.wants();
            events.push(event);
        }
        events
    }

    /// The next event for which there is room, once there is one.
    pub async fn first(&self, room: usize) -> Option<Event> {
        let coordinators = async { self.coordinators.recv_async().await.ok() };
        let requests = async {
            if room == 0 {
                std::future::pending::<()>().await;
            }
            self.requests.recv_async().await.ok()
        };
        futures_lite::future::or(coordinators, requests).await
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::limits::SLOTS;
    use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

    use super::*;
    use crate::command::RaftId;
    use crate::coordinator::{SessionId, UNDECIDED_MAX};
    use crate::migration::Step;
    use crate::protocol::Request;
    use crate::report::Query;

    #[test]
    fn what_coordinators_say_comes_first_however_many_requests_wait() {
        let (Senders(coordinators, requests), inbox) = inbox();
        for n in 0..REQUESTS_MAX as u64 {
            requests
                .try_send(Event::Closed(SessionId(n)))
                .expect("there is room");
        }
        assert!(requests.try_send(Event::StepAside).is_err(), "bounded");
        for id in 0..COORDINATORS_MAX as u64 {
            coordinators
                .try_send(Event::Lost(RaftId(id)))
                .expect("requests take no room of coordinators");
        }
        let taken = inbox.take(1000);
        assert_eq!(taken.len(), COORDINATORS_MAX + 1000);
        let (first, rest) = taken.split_at(COORDINATORS_MAX);
        assert!(first.iter().all(|event| matches!(event, Event::Lost(_))));
        assert!(rest.iter().all(|event| matches!(event, Event::Closed(_))));
    }

    #[test]
    fn requests_wait_while_there_is_no_room_for_what_they_want_to_have_decided() {
        let (Senders(coordinators, requests), inbox) = inbox();
        let steps = |count| Request::Steps {
            node: NodeId([1; 16]),
            incarnation: 1,
            steps: (0..count)
                .map(|id| (MigrationId(id), Step::Begin))
                .collect(),
        };
        for _ in 0..10 {
            let event = Event::Request(SessionId(1), steps(30));
            requests.try_send(event).expect("there is room");
        }
        assert_eq!(inbox.take(90).len(), 3);
        assert_eq!(inbox.take(91).len(), 4, "a request is taken as a whole");
        assert!(inbox.take(0).is_empty());
        drop(inbox.take(usize::MAX));
        let copies = |count| Request::Hosting {
            node: NodeId([1; 16]),
            copies: (0..count).map(|p| (PartitionId(p), Epoch(1))).collect(),
        };
        for count in [SLOTS, 100, 100, SLOTS, SLOTS] {
            let event = Event::Request(SessionId(1), copies(count));
            requests.try_send(event).expect("there is room");
        }
        assert_eq!(inbox.take(UNDECIDED_MAX).len(), 1, "all partitions at once");
        assert_eq!(inbox.take(UNDECIDED_MAX).len(), 3);
        drop(inbox.take(usize::MAX));
        for id in 0..100 {
            let query = Query::Partitions;
            let event = Event::Request(SessionId(1), Request::Operator { id, query });
            requests.try_send(event).expect("there is room");
        }
        let taken = inbox.take(UNDECIDED_MAX);
        assert_eq!(taken.len(), 4, "answers may be large");
        let lost = Event::Lost(RaftId(2));
        coordinators.try_send(lost).expect("there is room");
        let first = futures_lite::future::block_on(inbox.first(0));
        assert!(matches!(first, Some(Event::Lost(_))), "coordinators go on");
    }
}
