//! A node: reactors that carry shards, connections and gateways
