//! The client on real servers: the cases of clients/conformance.md, and what is particular to this language.

mod conformance;
mod readme;
