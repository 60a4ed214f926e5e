//! What waits for the coordinator's next turn: what coordinators say apart from what nodes and operators do, so
//! that neither votes nor the log wait behind requests, however many there are.
//!
//! Both are bounded; whoever has more to say waits, and with it its link.

use crate::coordinator::Event;

/// What may wait of coordinators, and of nodes and operators.
const COORDINATORS_MAX: usize = 1024;
const REQUESTS_MAX: usize = 4096;

/// Most events of one turn that come from nodes and operators.
const REQUESTS_PER_TURN: usize = 1024;

/// Where events go: of coordinators, and of nodes and operators.
#[derive(Clone, Debug)]
pub(super) struct Senders(
    pub(super) flume::Sender<Event>,
    pub(super) flume::Sender<Event>,
);

/// The other end.
#[derive(Debug)]
pub(super) struct Inbox {
    coordinators: flume::Receiver<Event>,
    requests: flume::Receiver<Event>,
}

pub(super) fn inbox() -> (Senders, Inbox) {
    let (to_coordinators, coordinators) = flume::bounded(COORDINATORS_MAX);
    let (to_requests, requests) = flume::bounded(REQUESTS_MAX);
    let inbox = Inbox {
        coordinators,
        requests,
    };
    (Senders(to_coordinators, to_requests), inbox)
}

impl Inbox {
    /// What is there, coordinators' first.
    pub(super) fn take(&self) -> Vec<Event> {
        let requests = self.requests.try_iter().take(REQUESTS_PER_TURN);
        self.coordinators.try_iter().chain(requests).collect()
    }

    /// The next event, once there is one.
    pub(super) async fn first(&self) -> Option<Event> {
        let coordinators = async { self.coordinators.recv_async().await.ok() };
        let requests = async { self.requests.recv_async().await.ok() };
        futures_lite::future::or(coordinators, requests).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::RaftId;
    use crate::coordinator::SessionId;

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
        let taken = inbox.take();
        assert_eq!(taken.len(), COORDINATORS_MAX + REQUESTS_PER_TURN);
        let (first, rest) = taken.split_at(COORDINATORS_MAX);
        assert!(first.iter().all(|event| matches!(event, Event::Lost(_))));
        assert!(rest.iter().all(|event| matches!(event, Event::Closed(_))));
    }
}
