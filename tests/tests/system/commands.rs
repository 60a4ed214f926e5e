//! Every command against a real Redis: the same requests, the same replies.

mod connection;
mod databases;
mod debug;
mod expiry;
mod figures;
mod functions;
mod generated;
mod migrate;
mod programs;
mod protocol;
mod pubsub;
mod scripted;
mod scripts;
mod server;
mod set_options;
mod statistics;
mod tracking;
mod transactions;
mod users;
mod within;

use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Client, Node, Options, Reply};

/// Which of the node's ports is compared, and so with which kind of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    /// The entry port with several shards behind it, against a standalone Redis.
    Entry,
    /// The direct port of a node's only shard, against a Redis Cluster node that owns every slot.
    Direct,
}

const PORTS: [Port; 2] = [Port::Entry, Port::Direct];
const PROTOCOLS: [u8; 2] = [2, 3];

/// A node and a Redis that are told the same.
struct Pair {
    _node: Node,
    _oracle: Oracle,
    port: Port,
    ours: Client,
    theirs: Client,
}

impl Pair {
    fn new(port: Port, protocol: u8) -> Self {
        let (oracle, shards) = match port {
            Port::Entry => (Oracle::standalone(), 3),
            Port::Direct => (Oracle::cluster(), 1),
        };
        let node = Node::start(Options {
            shards,
            ..Options::default()
        });
        let ours = match port {
            Port::Entry => node.client(),
            Port::Direct => node.direct_client(0),
        };
        let mut pair = Self {
            ours,
            theirs: oracle.client(),
            port,
            _node: node,
            _oracle: oracle,
        };
        if protocol == 3 {
            pair.ours.say("HELLO 3");
            pair.theirs.say("HELLO 3");
        }
        pair
    }

    /// Another connection to each.
    fn others(&self) -> [Client; 2] {
        let ours = match self.port {
            Port::Entry => self._node.client(),
            Port::Direct => self._node.direct_client(0),
        };
        [ours, self._oracle.client()]
    }

    /// Sends the same to both and returns (ours, theirs).
    fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> (Reply, Reply) {
        (self.ours.call(args), self.theirs.call(args))
    }

    /// Sends the same to both, which must answer the same.
    fn same<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        let (ours, theirs) = self.ask(args);
        assert!(
            ours == theirs,
            "{}: we say {ours:?}, Redis says {theirs:?}",
            shown(args)
        );
        ours
    }

    /// The same for words separated by blanks; `''` is an empty argument.
    fn same_line(&mut self, line: &str) -> Reply {
        let words: Vec<&str> = line
            .split_whitespace()
            .map(|word| if word == "''" { "" } else { word })
            .collect();
        self.same(&words)
    }

    /// The same set of elements in any order.
    fn same_unordered<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let (ours, theirs) = self.ask(args);
        let sorted = |reply: &Reply| {
            let mut items: Vec<String> = reply
                .items()
                .iter()
                .map(|item| format!("{item:?}"))
                .collect();
            items.sort();
            items
        };
        assert_eq!(sorted(&ours), sorted(&theirs), "{}", shown(args));
        assert_eq!(
            std::mem::discriminant(&ours),
            std::mem::discriminant(&theirs),
            "{}: the type of the reply",
            shown(args)
        );
    }

    /// Two integers that may differ by what the clock did between the two requests.
    fn close<A: AsRef<[u8]>>(&mut self, args: &[A], tolerance: i64) {
        let (ours, theirs) = self.ask(args);
        let close = match (&ours, &theirs) {
            (Reply::Integer(ours), Reply::Integer(theirs)) if *ours >= 0 && *theirs >= 0 => {
                (ours - theirs).abs() <= tolerance
            }
            _ => ours == theirs,
        };
        assert!(
            close,
            "{}: we say {ours:?}, Redis says {theirs:?}",
            shown(args)
        );
    }
}

/// A request, readable.
fn shown<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words: Vec<String> = args
        .iter()
        .map(|arg| {
            let arg = arg.as_ref();
            let head = &arg[..arg.len().min(60)];
            format!(
                "{}{}",
                head.escape_ascii(),
                if arg.len() > 60 { "..." } else { "" }
            )
        })
        .collect();
    words.join(" ")
}
