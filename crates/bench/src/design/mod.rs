//! The experiments of the design's section 9: each answers one question that decides something.

mod cleaner_model;
mod copies;
mod durable_append;
mod links;
mod message_passing;

pub use cleaner_model::{CleanerConfig, CleanerPolicy, CleanerReport, cleaner_model, cleaner_table};
pub use copies::{CopiesCell, CopiesConfig, CopiesReport, copies};
pub use durable_append::{
    AppendCell, AppendMethod, AppendReport, AppendSpace, DurableAppendConfig, durable_append,
};
pub use message_passing::{MessageCell, MessagePassingConfig, MessageReport, message_passing};

/// Names and one-line descriptions of the experiments, for `coquina bench design`.
pub const EXPERIMENTS: &[(&str, &str)] = &[
    ("durable-append", "which way of making appended frames durable costs least: O_DSYNC or a shared flush"),
    ("cleaner-model", "bytes written per user byte by a greedy and a cost-benefit cleaner, simulated"),
    ("message-passing", "what the network alone costs: client, primary and two backups without an engine"),
    (
        "copies",
        "what copies cost: client, primary and two backups with engine and replication, on a fixed map",
    ),
];
