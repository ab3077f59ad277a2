//! The native client: volumes as seen by a program
