//! A report as one page that needs nothing else: no network, no programs, no files beside it.
//!
//! Invariants:
//! - whatever comes from a report is escaped, for it may have been read from a file of others;
//! - targets are told apart by lines, marks and stripes, not by colour alone;
//! - the page of a thousand cases is smaller than 5 MB: plots and rows of evidence are limited, tables of figures are not.

mod bars;
mod cpu;
mod escape;
mod facts;
mod figures;
mod page;
mod plot;
mod readme;
mod scale;
mod style;
mod svg;
mod tables;
mod utilisation;

#[cfg(test)]
mod tests;

pub use page::render;
pub use readme::headline_svg;
