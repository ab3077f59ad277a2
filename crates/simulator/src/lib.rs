//! Virtual drives and clusters driven from one seed, checked against a plain model
