//! One connection for the streams of several migrations, from the node, which opens it, to the shard that uses it.

use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use ephesus_wire::MigrationId;

/// What one migration has of a connection: each of the orders that were given for it has one, and who carries
/// out the first takes the connection over for all.
#[derive(Clone, Debug)]
pub struct Line(Arc<Mutex<Option<Connection>>>);

/// What a line leads to.
#[derive(Debug)]
pub struct Connection {
    /// The handshake is done and OPEN said, frame 0 of each migration's direction; non-blocking, and nothing else
    /// was read from it.
    pub stream: TcpStream,
    /// Migrations that it was opened for and that do not come about: REFUSED is still to be said, and why.
    pub refused: Vec<(MigrationId, String)>,
}

impl Line {
    /// A line over this connection.
    #[must_use]
    pub fn new(stream: TcpStream) -> Line {
        let refused = Vec::new();
        Line(Arc::new(Mutex::new(Some(Connection { stream, refused }))))
    }

    /// Has REFUSED said, unless the connection was taken over already.
    pub fn refuse(&self, migration: MigrationId, reason: String) {
        if let Some(connection) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            connection.refused.push((migration, reason));
        }
    }

    /// The connection, for the first who asks.
    #[must_use]
    pub fn take(&self) -> Option<Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether both lead to the same connection.
    #[must_use]
    pub fn is_same(&self, other: &Line) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether orders for further migrations may be on their way.
    #[must_use]
    pub fn has_others(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
