//! Two shards without a node.
