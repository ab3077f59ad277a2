//! The load generator
