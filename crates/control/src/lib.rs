//! The cluster state and its coordinator, the REST interface and the metrics
